"""One seed a run, and from it a separate one for each use, by name.

The same seed thus gives the same subset, the same initial weights and the same batches whatever else draws random
numbers, and methods are compared on equal ground.
"""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, use: str) -> int:
    """The seed for one named use ("subset", "init", "batches", "dropout", ...) of a run's seed."""
    digest = hashlib.sha256(f"{seed}/{use}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def generator(seed: int, use: str) -> torch.Generator:
    """A CPU random generator for one named use of a run's seed."""
    return torch.Generator().manual_seed(derive_seed(seed, use))
