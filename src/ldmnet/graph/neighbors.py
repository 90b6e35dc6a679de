"""The k nearest neighbours of every point, searched within its group.

Exact search is one matrix product by blocks: |a - b|^2 = |a|^2 + |b|^2 - 2 a.b, taken about the group's mean so
that float32 keeps its digits at pixels 0..255, with the chosen distances computed again from the difference
wherever the subtraction cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ldmnet.errors import InputError

BLOCK_BYTES = 64 * 2**20  # what one block of the distance matrix may take
CANCELLATION = 0.1  # below this share of |a|^2 + |b|^2 a squared distance is computed again, directly


@dataclass(frozen=True)
class Neighbors:
    """The nearest neighbours of n points, nearest first, the point itself never among them.

    Attributes:
        index: (n, k) int64, -1 where a group has fewer than k others.
        distance: (n, k), unsquared, inf where index is -1.
    """

    index: Tensor
    distance: Tensor


class Groups:
    """The rows of a data set, sorted by group: `order[start:stop]` are the rows of one group."""

    def __init__(self, labels: Tensor) -> None:
        self.order = torch.argsort(labels, stable=True)  # (n,)
        _, sizes = torch.unique_consecutive(labels[self.order], return_counts=True)
        self.sizes: list[int] = sizes.tolist()

    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.split(self.order, self.sizes)


def knn(points: Tensor, k: int = 20, groups: Tensor | None = None) -> Neighbors:
    """Find the k nearest neighbours of each point among the points of its own group.

    Args:
        points: (n, d) floating point, finite.
        k: how many neighbours; a smaller group gives fewer and pads with -1 and inf.
        groups: (n,) integers, or None to search among all points.

    Returns:
        `Neighbors`, in the points' order, dtype and device.
    """
    points = checked_points(points, "points")
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}.")
    n = len(points)
    index = torch.full((n, k), -1, dtype=torch.int64, device=points.device)
    distance = torch.full((n, k), torch.inf, dtype=points.dtype, device=points.device)
    for rows in Groups(checked_groups(groups, n, points.device)):
        width = min(k, len(rows) - 1)
        if width == 0:
            continue
        local, dist = _exact(points[rows], width)
        index[rows, :width] = rows[local]
        distance[rows, :width] = dist
    return Neighbors(index, distance)


def _exact(points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest of each row among the others: (m, k) local indices and distances, ascending."""
    m = len(points)
    points = points - points.mean(0)
    square = points.square().sum(1)  # (m,)
    block = max(1, BLOCK_BYTES // (m * points.element_size()))
    indices, distances = [], []
    for start in range(0, m, block):
        here = points[start : start + block]
        # |b|^2 - 2 a.b: the row's own |a|^2 does not change its order
        reduced = torch.addmm(square, here, points.T, alpha=-2)  # (block, m)
        reduced.diagonal(offset=start).fill_(torch.inf)  # the point is not its own neighbour
        nearest = reduced.topk(k, dim=1, largest=False, sorted=False)
        own = square[start : start + block, None]
        squared = nearest.values + own
        _recompute_cancelled(squared, own + square[nearest.indices], here, points, nearest.indices)
        squared, by_distance = squared.sort(dim=1)
        distances.append(squared.sqrt())
        indices.append(nearest.indices.gather(1, by_distance))
    return torch.cat(indices), torch.cat(distances)


def _recompute_cancelled(squared: Tensor, size: Tensor, here: Tensor, points: Tensor, index: Tensor) -> None:
    """Replace, in place, the squared distances whose digits were lost in |a|^2 + |b|^2 - 2 a.b."""
    row, slot = torch.nonzero(squared < CANCELLATION * size, as_tuple=True)
    chunk = max(1, BLOCK_BYTES // max(1, points.shape[1] * points.element_size()))
    for start in range(0, len(row), chunk):
        r, s = row[start : start + chunk], slot[start : start + chunk]
        squared[r, s] = (here[r] - points[index[r, s]]).square_().sum(1)


def checked_points(points: Tensor, name: str) -> Tensor:
    """`points` as an (n, d) floating tensor without gradient, or a sentence that says what is wrong with it."""
    if not isinstance(points, Tensor):
        points = torch.as_tensor(points)
    points = points.detach()
    if points.ndim != 2 or len(points) == 0:
        raise InputError(f"{name} must have shape (n, d) with n at least 1, got {tuple(points.shape)}.")
    if not points.is_floating_point():
        raise InputError(f"{name} must be floating point, got {points.dtype}. Convert with .float().")
    if not torch.isfinite(points).all():
        bad = int((~torch.isfinite(points)).any(1).sum())
        raise InputError(f"{name} has NaN or infinite values in {bad} of its {len(points)} rows.")
    return points


def checked_groups(groups: Tensor | None, n: int, device: torch.device) -> Tensor:
    """`groups` as n integers on `device`; None makes one group of all."""
    if groups is None:
        return torch.zeros(n, dtype=torch.int64, device=device)
    if not isinstance(groups, Tensor):
        groups = torch.as_tensor(groups)
    if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
        raise InputError(f"groups must be integers, got {groups.dtype}. Pass the class labels as int64.")
    if groups.shape != (n,):
        raise InputError(f"groups has shape {tuple(groups.shape)} but there are {n} points: one label a point.")
    return groups.to(device=device, dtype=torch.int64)
