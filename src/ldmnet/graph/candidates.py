"""Exact neighbours of points that move little: a short list of candidates, and a proof that nobody else came nearer.

A group is searched once in full, for more neighbours than are wanted. From then on only the distances to these
candidates are computed. Whoever is not on point i's list was at least `reach[i]` away, and has come nearer by at most
its own move and i's; if i's k-th candidate is nearer than that, the answer is the same as that of a full search. Points
for which this fails are searched in full again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ldmnet.graph.sparse import csr

CANDIDATES = 48
REBUILD_SHARE = 0.1  # of the points: when more than these fail, the whole group gets new lists
CANCELLATION = 0.01  # below this share of |a|^2 + |b|^2 a squared distance is computed again, directly
ROUNDING = 1e-5  # how much nearer, relatively, the k-th must be

# (points (m, d) centred, base (m, m) or None, k, rows (r,) or None for all) -> (r, k) indices and distances, ascending
FullSearch = Callable[[Tensor, Tensor | None, int, Tensor | None], tuple[Tensor, Tensor]]


class CandidateSearch:
    """Repeated search among the m points of one group.

    Args:
        full: how to search in full.
    """

    def __init__(self, full: FullSearch) -> None:
        self._full = full
        self._lists: Tensor | None = None  # (m, CANDIDATES), ascending by index
        self._reach: Tensor | None = None  # (m,) distance of the nearest point that is not on the list
        self._reference: Tensor | None = None  # (m, d) the points when the lists were made

    def __call__(self, points: Tensor, base: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
        """The k nearest candidates of every point, ascending, and their squared distances.

        Args:
            points: (m, d), centred: a common drift is no move.
            base: (m, m) squared distances in further coordinates, which do not change, or None.
            k: at most CANDIDATES.
        """
        lists = self._lists
        if lists is None or self._reference is None or self._reference.shape != points.shape:
            lists = self._rebuild(points, base)
            return _nearest(points, base, lists, k, None)
        index, squared = _nearest(points, base, lists, k, None)
        doubtful = self._doubtful(points, squared[:, -1].clamp(min=0).sqrt())
        if len(doubtful) > REBUILD_SHARE * len(points):
            return _nearest(points, base, self._rebuild(points, base), k, None)
        if len(doubtful):
            fresh, _ = self._full(points, base, CANDIDATES, doubtful)
            index[doubtful], squared[doubtful] = _nearest(points, base, fresh.sort(1).values, k, doubtful)
        return index, squared

    def _rebuild(self, points: Tensor, base: Tensor | None) -> Tensor:
        index, distance = self._full(points, base, CANDIDATES + 1, None)
        self._lists = index[:, :CANDIDATES].sort(1).values
        self._reach, self._reference = distance[:, CANDIDATES], points.clone()
        return self._lists

    def _doubtful(self, points: Tensor, farthest: Tensor) -> Tensor:
        """The rows whose k-th candidate, at distance `farthest`, may be farther than somebody not on the list."""
        assert self._reach is not None
        assert self._reference is not None
        move = torch.linalg.vector_norm(points - self._reference, dim=1)
        bound = (self._reach - move - move.max()) * (1 - ROUNDING)
        return torch.nonzero(~(farthest < bound)).squeeze(1)


def _nearest(points: Tensor, base: Tensor | None, lists: Tensor, k: int, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    """The k nearest on each row's list, ascending, and their squared distances.

    Each distance depends on its two points alone, not on who else is on the list, so that the answer does not depend
    on how the list came about.
    """
    squared, _ = listed_distances(points, lists, slice(None) if rows is None else rows)
    if base is not None:
        squared += base.gather(1, lists) if rows is None else base[rows].gather(1, lists)
    squared, by_distance = squared.sort(dim=1, stable=True)
    return lists.gather(1, by_distance[:, :k]), squared[:, :k].contiguous()


def squared_lengths(points: Tensor) -> Tensor:
    """|a|^2 of every point, (m,), in one pass."""
    length: Tensor = torch.linalg.vector_norm(points, dim=1)
    return length.square_()


def listed_distances(
    points: Tensor, lists: Tensor, rows: Tensor | slice, square: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Squared distances of some points to those on their lists, and |a|^2 + |b|^2, what they were subtracted from.

    Args:
        points: (m, d), centred.
        lists: (r, L) indices.
        rows: which r points the lists belong to.
        square: (m,) the points' squared lengths, where known.
    """
    square = squared_lengths(points) if square is None else square
    count, width = lists.shape
    starts = torch.arange(0, count * width + 1, width, device=lists.device)
    pattern = csr(starts, lists.flatten(), points.new_zeros(count * width), count, len(points))
    dots = torch.sparse.sampled_addmm(pattern, points[rows], points.T, beta=0.0).values().view(count, width)
    size = square[rows, None] + square[lists]
    return size - 2 * dots, size
