"""From neighbours to the sparse symmetric weight matrix W.

W = max(W, W'), W_ii = 1. Both kernels depend on the pair only through symmetric quantities, so an edge has the
same weight seen from either end and the maximum is the union of the two directed graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.graph.neighbors import Neighbors
from ldmnet.graph.sparse import csr

SIGMA_FLOOR = 1e-4  # of the distance to the farthest neighbour: duplicates get weight 1 instead of 0/0
# Rows, at least, that are made symmetric at a time, where no edge leaves them: all 54,000 at once take 2.0 times as
# long (`benchmarks/constants.py`).
BLOCK = 2**12


def self_tuned_weights(
    neighbors: Neighbors,
    sigma_neighbor: int = 10,
    *,
    cuts: Sequence[int] = (),
) -> Tensor:
    """W of eq. (23): exp(-|p - q|^2 / (sigma(p) sigma(q))), sigma the distance to a near neighbour.

    Args:
        neighbors: the graph's edges, from `knn`.
        sigma_neighbor: which neighbour gives the local scale, the point itself not counted; where there are
            fewer, the farthest does.
        cuts: ascending rows that no edge crosses, as where a group ends: large graphs are then made in parts that
            the processor's cache can hold. W is the same.

    Returns:
        (n, n) sparse CSR, symmetric, ones on the diagonal.
    """
    sigma = local_scale(neighbors, sigma_neighbor)

    def kernel(rows: Tensor, cols: Tensor, distance: Tensor) -> Tensor:
        scaled = (distance / sigma[rows]) * (distance / sigma[cols])
        return torch.exp(-scaled)  # eq. (23)

    return _assembled(neighbors, kernel, cuts)


def heat_weights(neighbors: Neighbors, t: float) -> Tensor:
    """W of eq. (20): exp(-|p - q|^2 / 4t), one t for all points.

    Args:
        neighbors: the graph's edges, from `knn`.
        t: the heat kernel's time, above zero.

    Returns:
        (n, n) sparse CSR, symmetric, ones on the diagonal.
    """
    if not t > 0:
        raise InputError(f"t must be above zero, got {t}.")
    return _assembled(neighbors, lambda rows, cols, distance: torch.exp(-distance.square() / (4 * t)))  # eq. (20)


def local_scale(neighbors: Neighbors, sigma_neighbor: int) -> Tensor:
    """sigma(p) of eq. (23), (n,): floored relative to the neighbourhood's size, never zero."""
    if sigma_neighbor < 1:
        raise InputError(f"sigma_neighbor must be at least 1, got {sigma_neighbor}.")
    if sigma_neighbor > neighbors.distance.shape[1]:
        raise InputError(
            f"sigma_neighbor is {sigma_neighbor} but the graph has only {neighbors.distance.shape[1]} neighbours "
            "a point. Search for at least that many."
        )
    finite = neighbors.distance.masked_fill(neighbors.distance.isinf(), 0)
    sigma = finite[:, :sigma_neighbor].amax(1)  # ascending: the last finite one
    floor = SIGMA_FLOOR * finite.amax(1)  # DEVIATION(2)
    return torch.maximum(sigma, floor).clamp(min=torch.finfo(sigma.dtype).tiny)


def _assembled(
    neighbors: Neighbors,
    kernel: Callable[[Tensor, Tensor, Tensor], Tensor],
    cuts: Sequence[int] = (),
) -> Tensor:
    """W from the weights that a kernel gives to edges (from, to, distance)."""
    n = len(neighbors.index)
    counts, columns, values = [], [], []
    for start, stop in _blocks(cuts, n):
        rows, cols, distance = _edges(neighbors, start, stop)
        weight = kernel(rows, cols, distance)
        count, col, value = _symmetric(rows - start, cols - start, weight, stop - start)
        counts.append(count)
        columns.append(col + start)
        values.append(value)
    row_start = torch.zeros(n + 1, dtype=torch.int64, device=neighbors.index.device)
    torch.cumsum(torch.cat(counts), 0, out=row_start[1:])
    return csr(row_start, torch.cat(columns), torch.cat(values), n)


def _blocks(cuts: Sequence[int], n: int) -> Iterator[tuple[int, int]]:
    """Rows (start, stop) between cuts, as few as have `BLOCK` rows each."""
    start = 0
    for cut in cuts:
        if cut - start >= BLOCK and n - cut >= BLOCK:
            yield start, cut
            start = cut
    yield start, n


def _edges(neighbors: Neighbors, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
    """The directed edges (from, to, distance) of some rows, padding left out."""
    index, distance = neighbors.index[start:stop], neighbors.distance[start:stop]
    present = index >= 0
    rows = torch.arange(start, stop, device=present.device)[:, None].expand_as(present)
    if bool(present.all()):
        return rows.flatten(), index.flatten(), distance.flatten()
    return rows[present], index[present], distance[present]


def _symmetric(rows: Tensor, cols: Tensor, weight: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The union of an edge list with its transpose, and the diagonal: entries a row, columns, values."""
    if n * n < 2**31:  # keys of 32 bits sort faster
        rows, cols = rows.int(), cols.int()
    everyone = torch.arange(n, dtype=rows.dtype, device=rows.device)
    key = torch.cat([rows * n + cols, cols * n + rows, everyone * (n + 1)])
    weight = torch.cat([weight, weight, weight.new_ones(n)])
    key, by_key = key.sort()
    first = torch.ones_like(key, dtype=torch.bool)
    first[1:] = key[1:] != key[:-1]  # an edge that is there in both directions has one weight
    place = first.nonzero().squeeze(1)
    key, weight = key[place], weight[by_key[place]]
    row = key // n
    return torch.bincount(row, minlength=n), (key - row * n).long(), weight
