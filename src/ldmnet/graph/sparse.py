"""Sparse CSR tensors: making one, multiplying with one, and the row of each entry."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


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


def product(W: Tensor, x: Tensor) -> Tensor:
    """W x for a CSR tensor and a dense (n, m), by the kernel that is fastest where the columns are many."""
    if x.device.type != "cpu":
        return W @ x
    summed: Tensor = torch.sparse.mm(W, x, "sum")
    return summed
