"""Sparse CSR tensors: making one, multiplying with one, and the row of each entry."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

# Columns of a dense factor from which torch's own kernel is faster than the BLAS library's: that takes 1.9 times as
# long at 500, torch's 1.3 times at 64 (`benchmarks/constants.py`).
WIDE = 128


def csr(row_start: Tensor, col: Tensor, values: Tensor, n: int, n_cols: int | None = None) -> Tensor:
    """An (n, n) or (n, n_cols) sparse CSR tensor, without torch's remark that such tensors are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        size = (n, n if n_cols is None else n_cols)
        return torch.sparse_csr_tensor(row_start, col, values, size=size, check_invariants=False)


def row_of_entry(W: Tensor) -> Tensor:
    """The row index of every stored entry of a CSR tensor."""
    crow = W.crow_indices()
    return torch.repeat_interleave(torch.arange(len(crow) - 1, device=crow.device), crow.diff())


def multiplier(row_start: Tensor, col: Tensor, values: Tensor, columns: int) -> Callable[[Tensor], Tensor]:
    """The product W x, by the faster kernel, for the (n, n) CSR matrix of these parts and x of so many columns."""
    n = len(row_start) - 1
    if columns >= WIDE and values.device.type == "cpu":
        wide = csr(row_start, col, values, n)
        return lambda x: torch.sparse.mm(wide, x, "sum")
    narrow = csr(row_start.int(), col.int(), values, n)  # with 64 bits they would be converted at every call
    return lambda x: narrow @ x
