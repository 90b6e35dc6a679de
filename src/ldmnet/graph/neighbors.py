"""The k nearest neighbours of every point, searched within its group.

In training only the features move. Where the inputs are part of the points, `NeighborSearch` keeps their part of every
distance, and looks first among the last search's nearest (see `candidates`). Features alone move farther between two
updates than neighbours are apart, so there each search is a full one (see `distances`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.graph.approximate import LISTED, ApproximateSearch
from ldmnet.graph.candidates import CANDIDATES, CandidateSearch
from ldmnet.graph.distances import BLOCK_BYTES, Room, differences, mend, nearest
from ldmnet.graph.groups import Groups, checked_groups
from ldmnet.graph.points import checked_points, largest, power_of_two
from ldmnet.saved import check_lists, check_mapping, check_number, refuse

SearchKind = Literal["exact", "auto"]
AUTO_FROM = 4096  # points in a group: from here on "auto" searches approximately
CACHE_BYTES = 2 * 2**30  # what the inputs' part of the distances may take
LARGE = 512  # points in a group: smaller ones are searched in full, all of one size together
NEAR_COPY = 1e-6  # below this share float64's own product is not exact enough


@dataclass(frozen=True)
class Neighbors:
    """The nearest neighbours of n points, nearest first, the point itself never among them.

    Attributes:
        index: (n, k) int64, -1 where a group has fewer than k others.
        distance: (n, k), unsquared, inf where index is -1.
    """

    index: Tensor
    distance: Tensor


def knn(points: Tensor, k: int = 20, groups: Tensor | None = None) -> Neighbors:
    """Find the k nearest neighbours of each point among the points of its own group.

    Args:
        points: (n, d) floating point, finite.
        k: how many neighbours; a smaller group gives fewer and pads with -1 and inf.
        groups: (n,) integers, or None to search among all points; a point of group -1 has no neighbours.

    Returns:
        `Neighbors`, in the points' order, dtype and device.
    """
    points = checked_points(points, "points")
    parts = Groups(checked_groups(groups, len(points), points.device))
    found = NeighborSearch(parts, k, once=True)(points[parts.order])
    index = torch.where(found.index < 0, -1, parts.order[found.index])
    return Neighbors(parts.scatter(index, -1), parts.scatter(found.distance, torch.inf))


class NeighborSearch:
    """Repeated search among points (input, feature) whose inputs stay the same.

    Works in the groups' sorted order: row i is `groups.order[i]` of the data set.

    Args:
        groups: the partition.
        k: how many neighbours.
        inputs: (n, d_in) in the data set's order, or None to search among the features alone.
        once: True if there will be no second search.
        kind: "auto" searches groups of `AUTO_FROM` points or more approximately (see `approximate`).
    """

    def __init__(
        self,
        groups: Groups,
        k: int,
        inputs: Tensor | None = None,
        *,
        once: bool = False,
        kind: SearchKind = "exact",
    ) -> None:
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}.")
        if kind not in ("exact", "auto"):
            raise InputError(f"neighbors must be 'exact' or 'auto', got {kind!r}.")
        self.groups = groups
        self.k = k
        self.inputs = inputs
        self._scale = 1.0  # a power of two by which everything is multiplied while it is searched
        self._largest = 0.0 if inputs is None else largest(inputs)
        self._cache: dict[int, Tensor] | None = None  # first row of a batch -> (g, m, m) squared distances
        self._approximate: dict[int, ApproximateSearch] = {}  # first row of a group -> its search
        if kind == "auto" and k <= LISTED:
            for start, size in zip(groups.starts, groups.sizes, strict=True):
                if size >= AUTO_FROM:
                    self._approximate[start] = self._approximately(start, size)
        cached = sum(m * m for s, m in zip(groups.starts, groups.sizes, strict=True) if s not in self._approximate)
        if inputs is not None and cached * inputs.element_size() <= CACHE_BYTES:
            self._cache = {}
        self._once = once or inputs is None or k > CANDIDATES
        self._moving: dict[int, CandidateSearch] = {}  # first row of a group -> its search
        self._room = Room()

    def __call__(self, features: Tensor) -> Neighbors:
        """The neighbours of all points, given their features in sorted order, (n, d_feat)."""
        self._rescale(power_of_two(features, self._largest))
        found = self._found(features if self._scale == 1 else features * self._scale)
        self._room.leave()
        return found if self._scale == 1 else Neighbors(found.index, found.distance / self._scale)

    def _rescale(self, scale: float) -> None:
        """Multiply by another number from now on: the squares of very small points are zero."""
        if scale == self._scale:
            return
        self._scale = scale
        self._moving.clear()
        if self._cache is not None:
            self._cache.clear()
        sizes = dict(zip(self.groups.starts, self.groups.sizes, strict=True))
        for start, search in self._approximate.items():
            self._approximate[start] = self._approximately(start, sizes[start])
            self._approximate[start].load(search.state())

    def _approximately(self, start: int, size: int) -> ApproximateSearch:
        """The approximate search in the group that begins at row `start`."""
        fixed = None if self.inputs is None else self.inputs[self.groups.order[start : start + size]] * self._scale
        return ApproximateSearch(fixed, seed=start)

    def _found(self, features: Tensor) -> Neighbors:
        """The neighbours of all points, given their scaled features."""
        n = len(features)
        index = torch.full((n, self.k), -1, dtype=torch.int64, device=features.device)
        distance = torch.full((n, self.k), torch.inf, dtype=features.dtype, device=features.device)
        for size, rows in self.groups.buckets(BLOCK_BYTES // features.element_size()):
            width = min(self.k, size - 1)
            if width == 0:
                continue
            if size < LARGE or features.device.type not in ("cpu", "cuda"):
                points, base = self._points(features, rows)
                local, dist = _exact(points, base, width)
                index[rows, :width] = local + rows[:, :1, None]
                distance[rows, :width] = dist
                continue
            for group in rows:
                start, here = int(group[0]), slice(int(group[0]), int(group[-1]) + 1)
                if start in self._approximate:
                    local, dist = self._approximate[start](features[here], width)
                    index[here], distance[here] = local + start, dist
                    continue
                points, base = self._points(features, group[None])
                apart = None if base is None else base[0]
                if self._once:
                    local, dist = nearest(points[0], apart, width, room=self._room)
                else:
                    local, dist = self._moving.setdefault(start, CandidateSearch(self._room))(points[0], apart, width)
                index[here], distance[here] = local + start, dist
        return Neighbors(index, distance)

    @property
    def approximates(self) -> bool:
        """Whether any group is searched approximately."""
        return bool(self._approximate)

    @property
    def recall(self) -> float:
        """The share of the neighbours that the last search found, on samples of the groups searched approximately."""
        found = [search.recall for search in self._approximate.values()]
        return math.fsum(found) / len(found) if found else 1.0

    def state(self) -> dict[int, dict[str, Any]]:
        """What approximate searches remember, by group; an exact search does not depend on what was before it."""
        return {start: search.state() for start, search in self._approximate.items()}

    def check_state(self, state: Any) -> None:
        """Refuse, with a `StateError`, what `state` cannot have returned."""
        check_mapping("search", state)
        if set(state) != set(self._approximate):
            raise refuse("search", list(state))
        sizes = dict(zip(self.groups.starts, self.groups.sizes, strict=True))
        for start, kept in state.items():
            check_mapping("search", kept, ("lists", "probes"))
            check_number("probes of the search", kept["probes"], 1, 2**30, whole=True)
            if kept["lists"] is not None:
                check_lists("a list of the search", kept["lists"], sizes[start], min(LISTED, sizes[start] - 1))

    def load(self, state: dict[int, dict[str, Any]]) -> None:
        """Take what `state` returned, and `check_state` found good."""
        for start, search in self._approximate.items():
            search.load(state[start])

    def _points(self, features: Tensor, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """A batch's moving coordinates (g, m, d), and the squared distances of its fixed ones, if kept."""
        one = len(rows) == 1  # a group's rows follow each other: no copy
        moving = features[None, int(rows[0, 0]) : int(rows[0, -1]) + 1] if one else features[rows]
        if self.inputs is None:
            return moving, None
        key = int(rows[0, 0])
        if self._cache is not None and key in self._cache and self._cache[key].dtype == features.dtype:
            return moving, self._cache[key]
        fixed = self._rounded(self.groups.order[rows], features)
        if self._cache is None:
            return torch.cat([fixed, moving], dim=2), None
        base = self._cache[key] = _squared_distances(fixed)
        return moving, base

    def _rounded(self, place: Tensor, features: Tensor) -> Tensor:
        """The inputs (g, m, d) of some rows in the features' type; what they have in common would take its digits."""
        assert self.inputs is not None
        fixed = self.inputs[place] if self._scale == 1 else self.inputs[place] * self._scale
        if fixed.dtype == features.dtype:
            return fixed
        fixed = (fixed - fixed.mean(1, keepdim=True)).to(features.dtype)
        checked_points(fixed.flatten(0, 1), "inputs")
        return fixed


def _squared_distances(points: Tensor) -> Tensor:
    """(g, m, m) squared distances within each of g groups, exact to the last digits of the points' type."""
    out = torch.empty(*points.shape[:2], points.shape[1], dtype=points.dtype, device=points.device)
    double = points.double()
    double -= double.mean(1, keepdim=True)
    square = double.square().sum(2)
    block = max(1, BLOCK_BYTES // (8 * len(points) * points.shape[1]))
    for start in range(0, points.shape[1], block):
        here = slice(start, start + block)
        size = square[:, here, None] + square[:, None, :]
        squared = torch.baddbmm(size, double[:, here], double.mT, alpha=-2)
        g, i, j = torch.nonzero(squared < NEAR_COPY * size, as_tuple=True)
        squared[g, i, j] = differences(double, g, start + i, j)
        out[:, here] = squared
    return out


def _exact(points: Tensor, base: Tensor | None, k: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k nearest of each row of g groups among the group's others.

    Args:
        points: (g, m, d).
        base: (g, m, m) squared distances in further coordinates, or None.
        k: below m.
        rows: (r,) which rows to search for; None for all m.

    Returns:
        (g, r, k) indices within the group, and distances, ascending.
    """
    m = points.shape[1]
    points = points - points.mean(1, keepdim=True)
    square = points.square().sum(2)  # (g, m)
    # [-2 a, 1].[b, |b|^2] = |b|^2 - 2 a.b: the row's own |a|^2 does not change its order
    left = torch.cat([-2 * points, torch.ones_like(square)[..., None]], dim=2)
    right = torch.cat([points, square[..., None]], dim=2)
    block = max(1, BLOCK_BYTES // (len(points) * m * points.element_size()))
    wanted = torch.arange(m, device=points.device) if rows is None else rows
    indices, distances = [], []
    for here in torch.split(wanted, block):
        if len(points) == 1:  # DEVIATION(4): one product, which is faster than a batch of one
            reduced = (left[0, here] @ right[0].T)[None]
            if base is not None:
                reduced += base[:, here]
        elif base is None:
            reduced = torch.bmm(left[:, here], right.mT)
        else:
            reduced = torch.baddbmm(base[:, here], left[:, here], right.mT)
        reduced[:, torch.arange(len(here), device=here.device), here] = torch.inf  # a point is not its own neighbour
        nearest = reduced.topk(k, dim=2, largest=False, sorted=False)
        squared, index = nearest.values + square[:, here, None], nearest.indices
        mend(squared, index, points, square, base, here)
        squared, by_distance = squared.sort(dim=2)
        distances.append(squared.sqrt_())
        indices.append(index.gather(2, by_distance))
    return torch.cat(indices, dim=1), torch.cat(distances, dim=1)
