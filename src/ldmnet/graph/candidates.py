"""Exact neighbours of points that move little: a short list of candidates, and a proof that nobody else came nearer.

A group is searched once in full: point i's list is everybody within `reach[i]`, more than are wanted. From then on
only the distances to these candidates are computed. Whoever is not on the list was farther than `reach[i]`, and
has come nearer by at most its own move and i's; if i's k-th candidate is nearer than that, the answer is the same as
that of a full search. Points for which this fails are searched in full again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ldmnet.graph.distances import NEAR_COPY_ROW, Room, blocks, listed, mend, nearest, smallest, squared_lengths

CANDIDATES = 40  # points on a list, at least
REBUILD_SHARE = 0.1  # of the points: when more than these fail, the whole group gets new lists
ROUNDING = 64  # units in the last place of |a|^2 + |b|^2: by so much a distance from a product may be wrong


class CandidateSearch:
    """Repeated search among the m points of one group.

    Args:
        room: shared with the searches in other groups.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._lists: Tensor | None = None  # (m, L), ascending by index; a point that needs fewer has itself there
        self._reach: Tensor | None = None  # (m,) whoever is not on the list is at least as far as this
        self._reference: Tensor | None = None  # (m, d) the points when the lists were made

    def __call__(self, points: Tensor, base: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
        """The k nearest of every point, ascending, and their distances.

        Args:
            points: (m, d).
            base: (m, m) squared distances in further coordinates, which do not change, or None.
            k: at most CANDIDATES.
        """
        points = points - points.mean(0)  # a common drift is no move
        square = squared_lengths(points)
        index, squared = self._among_lists(points, base, k, square)
        whole = (points[None], square[None], None if base is None else base[None])
        if mend(squared[None], index[None], *whole, torch.arange(len(points), device=points.device)):
            squared, by_distance = squared.sort(dim=1, stable=True)
            index = index.gather(1, by_distance)
        return index, squared.sqrt_()

    def _among_lists(self, points: Tensor, base: Tensor | None, k: int, square: Tensor) -> tuple[Tensor, Tensor]:
        """The k nearest of every point and their squared distances, by way of the lists."""
        if self._lists is not None and self._reference is not None and self._reference.shape == points.shape:
            index, squared = _ranked(points, base, self._lists, k, square)
            doubtful = self._doubtful(points, squared[:, -1].clamp(min=0).sqrt())
            if len(doubtful) <= REBUILD_SHARE * len(points):
                if len(doubtful):
                    fresh = nearest(points, base, CANDIDATES, doubtful)[0].sort(1).values
                    index[doubtful], squared[doubtful] = _ranked(points, base, fresh, k, square, doubtful)
                return index, squared
        return _ranked(points, base, self._rebuild(points, base, square), k, square)

    def _rebuild(self, points: Tensor, base: Tensor | None, square: Tensor) -> Tensor:
        """Make everybody's list; where float32 is too coarse, by a search in float64."""
        everyone = torch.arange(len(points), device=points.device)
        parts, reaches = [], []
        for here, apart, own in blocks(points, base, square, room=self._room):
            index, squared = smallest(apart, CANDIDATES)
            short = squared.isinf()
            parts.append(torch.where(short, here[:, None], index))
            reaches.append((squared + own).masked_fill(short, -torch.inf).amax(1))
        longest = max(part.shape[1] for part in parts)
        lists, reach, done = everyone[:, None].repeat(1, longest), torch.cat(reaches), 0
        for part in parts:
            lists[done : done + len(part), : part.shape[1]] = part
            done += len(part)
        coarse = torch.nonzero(reach < 2 * NEAR_COPY_ROW * square).squeeze(1)
        if len(coarse):
            index, distance = nearest(points, base, longest, coarse)
            lists[coarse], reach[coarse] = index.sort(1).values, distance[:, -1].square()
        reach -= 2 * ROUNDING * torch.finfo(points.dtype).eps * square
        self._lists, self._reach, self._reference = lists, reach.clamp_(min=0).sqrt_(), points
        return lists

    def _doubtful(self, points: Tensor, farthest: Tensor) -> Tensor:
        """The rows whose k-th candidate, at distance `farthest`, may be farther than somebody not on the list."""
        assert self._reach is not None
        assert self._reference is not None
        move = torch.linalg.vector_norm(points - self._reference, dim=1)
        return torch.nonzero(~(farthest < self._reach - move - move.max())).squeeze(1)


def _ranked(
    points: Tensor, base: Tensor | None, lists: Tensor, k: int, square: Tensor, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k nearest on each row's list, ascending, and their squared distances.

    Each distance depends on its two points alone, not on who else is on the list, so that the answer does not depend
    on how the list came about.
    """
    own = torch.arange(len(points), device=points.device) if rows is None else rows
    squared, _ = listed(points, lists, slice(None) if rows is None else rows, square)
    if base is not None:
        squared += base.gather(1, lists) if rows is None else base[rows].gather(1, lists)
    squared.masked_fill_(lists == own[:, None], torch.inf)
    squared, by_distance = squared.sort(dim=1, stable=True)
    return lists.gather(1, by_distance[:, :k]), squared[:, :k].contiguous()
