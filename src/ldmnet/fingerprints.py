"""Hashes: which data set something belongs to, and which settings name a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ldmnet.errors import DataError


def fingerprint(inputs: Tensor, *more: Tensor | None) -> str:
    """A hash of a data set: what a saved state belongs to."""
    digest = hashlib.sha256(str(tuple(inputs.shape)).encode())
    for part in (inputs, *(part for part in more if part is not None)):
        digest.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def samples_fingerprint(groups: Tensor | None, inputs: Tensor | None, n: int | None = None) -> str | None:
    """A hash of samples by their classes and inputs; n counts them where nothing else tells yet, or nobody knows."""
    if groups is None and n is None:
        return None
    return fingerprint(torch.zeros(n or 0, dtype=torch.int64) if groups is None else groups, inputs)


def short_hash(content: Any) -> str:
    """Twelve hex digits of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def settings_hash(settings: Any) -> str:
    """Twelve hex digits. Fields at their default do not enter, so a new one leaves old runs' names alone."""
    return short_hash(_departures(settings))


def _departures(value: Any) -> dict[str, Any]:
    """A dataclass as a dictionary of the fields that differ from their defaults, recursively."""
    out: dict[str, Any] = {}
    for f in fields(value):
        current = getattr(value, f.name)
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if is_dataclass(current):
            if inner := _departures(current):
                out[f.name] = inner
        elif default is MISSING or current != default:
            out[f.name] = current
    return out


def file_hash(path: Path) -> str:
    """Twelve hex digits of a file's content, or of a folder's files by name, size and time."""
    try:
        if path.is_dir():
            files = [(str(file.relative_to(path)), file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
            listed = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
            return hashlib.sha256(repr(listed).encode()).hexdigest()[:12]
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
