"""Approximate neighbours in large groups: short lists that are kept from one search to the next, and checked.

The first lists come from a partition: points in cells around centres, each cell searched against the cells nearest to
it. Features move little between searches, so that a later search only ranks each point's list again. Every search is
checked against a full one on a sample of points; where fewer than `RECALL` of their neighbours were found, the lists
are widened by the neighbours of neighbours, and if that is not enough made anew from a wider partition.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ldmnet.graph.distances import CANCELLATION, listed, nearest, squared_lengths
from ldmnet.seeds import generator

# Recall and time at other values: `benchmarks/constants.py --only rough`; misses and alpha: `benchmarks/rough.py`.
LISTED = 48  # points on a list
RECALL = 0.97  # what the sample must show
SAMPLE = 16  # points a group that are searched in full
FULL_UP_TO = 8192  # points: smaller groups get their first lists from a full search
CELL = 512  # points per cell, about
PROBES = 8  # cells that a point is searched in
KEPT = 24  # points kept of each cell
HOP = 14  # nearest of the nearest, when lists are widened
ROUNDS = 5  # of k-means
BLOCK = 2**24  # entries that a block of distances may have
SAME = 1e-4  # relative: a point no farther than the k-th neighbour by this much counts as found


class ApproximateSearch:
    """Repeated approximate search among the m points of one group.

    Args:
        fixed: (m, d_in) the coordinates that stay, or None.
        seed: of the sample and the centres.

    Attributes:
        recall: the share of the sample's neighbours that the last search found.
    """

    def __init__(self, fixed: Tensor | None, seed: int = 0) -> None:
        self._fixed = None if fixed is None else fixed - fixed.mean(0)
        self._fixed_square = None if self._fixed is None else squared_lengths(self._fixed)
        self._seed = seed
        self._probes = PROBES
        self._rows: Tensor | None = None  # (r,) the sample
        self._rows_fixed: Tensor | None = None  # (r, m) their squared distances in the fixed coordinates
        self._lists: Tensor | None = None  # (m, L) indices, ascending
        self._base: Tensor | None = None  # (m, L) squared distances in the fixed coordinates
        self.recall = 1.0

    def __call__(self, moving: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k nearest of every point, ascending, and their distances.

        Args:
            moving: (m, d) the coordinates that change from search to search.
            k: below m and at most LISTED.
        """
        moving = moving - moving.mean(0)
        square = squared_lengths(moving)
        if self._lists is None:
            self._start(moving)
        rows, truth = self._farthest(moving, square, k)
        for mend in (self._widen, self._restart, self._widen, self._restart, self._widen, None):
            index, distance = self._nearest(moving, square, k)
            self.recall = float((distance[rows] <= truth[:, None] * (1 + SAME)).double().mean())
            if mend is None or self.recall >= RECALL:
                break
            mend(moving)
        return index, distance

    def state(self) -> dict[str, Any]:
        """What a later process needs to go on as this one would."""
        lists = None if self._lists is None else self._lists.to(torch.int32)
        return {"lists": lists, "probes": self._probes}

    def load(self, state: dict[str, Any]) -> None:
        """Take what `state` returned."""
        self._probes = state["probes"]
        if state["lists"] is not None:
            self._take(state["lists"].to(torch.int64))

    def _points(self, moving: Tensor) -> Tensor:
        return moving if self._fixed is None else torch.cat([self._fixed.to(moving), moving], 1)

    def _farthest(self, moving: Tensor, square: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The sample (r,), and the distances of its points' k-th neighbours among all: what recall is judged by."""
        if self._rows is None:  # no list is made from it, so that one sample serves every search
            draw = generator(self._seed, "neighbours")
            self._rows = torch.randperm(len(moving), generator=draw)[:SAMPLE].to(moving.device)
            if self._fixed is not None and self._fixed_square is not None:
                self._rows_fixed = _reduced(self._fixed, self._fixed_square, self._rows)
        rows = self._rows
        reduced = _reduced(moving, square, rows)
        if self._rows_fixed is not None:
            reduced += self._rows_fixed.to(reduced)
        reduced[torch.arange(len(rows), device=rows.device), rows] = torch.inf
        near = reduced.topk(k, dim=1, largest=False, sorted=False).indices
        exact = (moving[rows, None] - moving[near]).square().sum(2)
        if self._fixed is not None:
            exact += (self._fixed[rows, None] - self._fixed[near]).square().sum(2)
        return rows, exact.amax(1).sqrt()

    def _take(self, lists: Tensor) -> None:
        self._lists = lists
        self._base = None if self._fixed is None else _squared(self._fixed, lists, self._fixed_square)

    def _nearest(self, moving: Tensor, square: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rank the lists."""
        assert self._lists is not None
        squared = _squared(moving, self._lists, square)
        if self._base is not None:
            squared += self._base.to(squared)
        nearest, place = squared.topk(k, dim=1, largest=False, sorted=True)
        return self._lists.gather(1, place), nearest.sqrt_()

    def _start(self, moving: Tensor) -> None:
        """First lists: by a full search where the group is not too large, else from a partition."""
        points = self._points(moving)
        cells = round(len(points) / CELL)
        if len(points) <= FULL_UP_TO or 2 * self._probes >= cells:
            self._take(self._listed(points, None))
        else:
            draw = generator(self._seed, f"cells {self._probes}")
            lists, few = _search_cells(points, cells, self._probes, draw)
            if len(few):
                lists[few] = self._listed(points, few)
            self._take(lists)

    def _listed(self, points: Tensor, rows: Tensor | None) -> Tensor:
        """The nearest of each point, or of some, by a full search, ascending by index."""
        index, _ = nearest(points, None, min(LISTED, len(points) - 1), rows)
        return index.sort(1).values

    def _restart(self, moving: Tensor) -> None:
        self._probes *= 2
        self._start(moving)

    def _widen(self, moving: Tensor) -> None:
        """Put the neighbours of neighbours on the lists, and keep the nearest."""
        assert self._lists is not None
        square = squared_lengths(moving)
        near, _ = self._nearest(moving, square, min(HOP, self._lists.shape[1]))
        lists = torch.empty_like(self._lists)
        block = max(1, BLOCK // (near.shape[1] ** 2 + lists.shape[1]))
        for start in range(0, len(lists), block):
            here = slice(start, start + block)
            wide = torch.cat([self._lists[here], near[near[here]].flatten(1)], 1).sort(1).values
            squared = _squared(moving, wide, square, here)
            if self._fixed is not None:
                squared += _squared(self._fixed, wide, self._fixed_square, here).to(squared)
            own = torch.arange(start, start + len(wide), device=wide.device)
            squared[wide == own[:, None]] = torch.inf
            squared[:, 1:][wide[:, 1:] == wide[:, :-1]] = torch.inf  # twice on the list
            place = squared.topk(lists.shape[1], dim=1, largest=False, sorted=False).indices
            lists[here] = wide.gather(1, place.sort(1).values)
        self._take(lists)


def _reduced(points: Tensor, square: Tensor, rows: Tensor) -> Tensor:
    """(r, m): |b|^2 - 2 a.b, which orders the points b by their distance to a row's point a."""
    return torch.addmm(square, points[rows], points.T, alpha=-2)


def _squared(points: Tensor, lists: Tensor, square: Tensor | None, rows: slice = slice(None)) -> Tensor:
    """Squared distances of each row's point to those on its list, (r, L), from differences where they cancelled."""
    assert square is not None
    squared, size = listed(points, lists, rows, square)
    row, slot = torch.nonzero(squared < CANCELLATION * size, as_tuple=True)
    if len(row):
        here = points[rows]
        for some in torch.split(torch.arange(len(row), device=row.device), max(1, BLOCK // points.shape[1])):
            apart = here[row[some]] - points[lists[row[some], slot[some]]]
            squared[row[some], slot[some]] = apart.square_().sum(1)
    return squared


def _centres(points: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """(count, d): k-means on a sample of the points."""
    order = torch.randperm(len(points), generator=draw).to(points.device)
    sample = points[order[: 32 * count]]
    centres = sample[:count].clone()
    for _ in range(ROUNDS):
        cell = _closest(sample, centres, 1)[:, 0]
        total = torch.zeros_like(centres).index_add_(0, cell, sample)
        size = torch.bincount(cell, minlength=count)
        centres = torch.where(size[:, None] > 0, total / size.clamp(min=1)[:, None], centres)
    return centres


def _closest(points: Tensor, centres: Tensor, k: int) -> Tensor:
    """(m, k) the centres closest to each point, nearest first."""
    square = centres.square().sum(1)
    parts = []
    for some in torch.split(points, max(1, BLOCK // len(centres))):
        reduced = torch.addmm(square, some, centres.T, alpha=-2)
        parts.append(reduced.topk(k, dim=1, largest=False).indices if k > 1 else reduced.argmin(1, keepdim=True))
    return torch.cat(parts)


def _search_cells(points: Tensor, count: int, probes: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """The LISTED nearest of each point within the `probes` of `count` cells closest to it, ascending by index.

    Returns:
        (m, LISTED) lists, and the rows whose cells hold fewer points than that.
    """
    m = len(points)
    closest = _closest(points, _centres(points, count, draw), probes)
    inside, size = torch.argsort(closest[:, 0], stable=True), torch.bincount(closest[:, 0], minlength=count)
    asking = torch.argsort(closest.flatten(), stable=True)  # point * probes + slot, cell by cell
    asked = torch.bincount(closest.flatten(), minlength=count)
    square = points.square().sum(1)
    index = torch.zeros(m * probes, KEPT, dtype=torch.int32, device=points.device)
    reduced = torch.full((m * probes, KEPT), torch.inf, dtype=points.dtype, device=points.device)
    for here, queries in zip(torch.split(inside, size.tolist()), torch.split(asking, asked.tolist()), strict=True):
        if len(here) == 0:
            continue
        cell, width = points[here].T, min(KEPT, len(here))
        for some in torch.split(queries, max(1, BLOCK // len(here))):
            point = some // probes
            distance = torch.addmm(square[here], points[point], cell, alpha=-2)
            distance[point[:, None] == here] = torch.inf  # a point is not its own neighbour
            nearest, place = distance.topk(width, dim=1, largest=False, sorted=False)
            reduced[some, :width], index[some, :width] = nearest, here[place].to(torch.int32)
    reduced, index = reduced.view(m, -1), index.view(m, -1)
    nearest, place = reduced.topk(min(LISTED, m - 1), dim=1, largest=False, sorted=False)
    lists = index.gather(1, place).to(torch.int64).sort(1).values
    return lists, torch.nonzero(nearest.isinf().any(1)).squeeze(1)  # tiny cells do not fill a list
