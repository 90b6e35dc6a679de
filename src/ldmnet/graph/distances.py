"""Distances within one group, and the smallest of them.

|a - b|^2 = |a|^2 + |b|^2 - 2 a.b is one matrix product, by blocks of rows. Points are centred, so that float32 keeps
its digits at pixels 0..255, and where the subtraction cancelled distances are computed again from the difference.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ldmnet.graph.sparse import csr

BLOCK_BYTES = 64 * 2**20  # what one block of the distance matrix may take
ONCE_FROM, ONCE_UP_TO = 2048, 8192  # points in a group: between these each pair's distance is computed once, not twice,
STRIP = 512  # so many rows at a time; a smaller group gains nothing by it, a larger one takes too much memory
CANCELLATION = 0.01  # below this share of |a|^2 + |b|^2 a squared distance is computed again, directly
NEAR_COPY_ROW = 1e-3  # below this share float32 cannot tell neighbours apart: the row is searched again in float64


class Room:
    """Memory for a block of distances, taken once for all groups of a search: a page first touched is slow."""

    def __init__(self) -> None:
        self._memory: Tensor | None = None

    def take(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """A (rows, columns) tensor of the type of `like`, with what was left in it."""
        size = rows * columns
        if self._memory is None or len(self._memory) < size or self._memory.dtype != like.dtype:
            self._memory = like.new_empty(size)
        return self._memory[:size].view(rows, columns)

    def leave(self) -> None:
        """Give the memory back."""
        self._memory = None


def nearest(
    points: Tensor, base: Tensor | None, k: int, rows: Tensor | None = None, room: Room | None = None
) -> tuple[Tensor, Tensor]:
    """Search in full: the k nearest of each row among the group's others.

    Args:
        points: (m, d).
        base: (m, m) squared distances in further coordinates, exact, or None.
        k: below m.
        rows: (r,) whose neighbours are wanted; None for all m.
        room: to work in.

    Returns:
        (r, k) indices and distances, ascending.
    """
    points = points - points.mean(0)
    square = squared_lengths(points)
    whole = (points[None], square[None], None if base is None else base[None])
    indices, distances = [], []
    for here, apart, own in blocks(points, base, square, rows, room):
        index, squared = smallest(apart, k)
        squared, by_distance = (squared + own).sort(dim=1, stable=True)
        squared, index = squared[None, :, :k].contiguous(), index.gather(1, by_distance[:, :k])[None]
        if mend(squared, index, *whole, here):
            squared, by_distance = squared.sort(dim=2, stable=True)
            index = index.gather(2, by_distance)
        indices.append(index[0])
        distances.append(squared[0].sqrt_())
    return torch.cat(indices), torch.cat(distances)


def blocks(
    points: Tensor, base: Tensor | None, square: Tensor, rows: Tensor | None = None, room: Room | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor | float]]:
    """Squared distances to everybody, by blocks of rows; a point's own is infinite.

    Args:
        points: (m, d), centred.
        base: (m, m) squared distances in further coordinates, or None.
        square: (m,) the points' squared lengths.
        rows: (r,) which rows; None for all m.
        room: to work in.

    Yields:
        Some of the rows, (s,); their distances, (s, m), less what does not change a row's order; and that, (s, 1).
    """
    room, m = room or Room(), len(points)
    everyone = torch.arange(m, device=points.device)
    if rows is None and ONCE_FROM < m <= ONCE_UP_TO:
        one, apart = torch.ones_like(square)[:, None], room.take(m, m, points)
        left = torch.cat([-2 * points, square[:, None], one], 1)  # left.right = |a|^2 + |b|^2 - 2 a.b
        right = torch.cat([points, one, square[:, None]], 1)
        for start in range(0, m, STRIP):
            stop = min(m, start + STRIP)
            torch.mm(left[start:stop], right[start:].T, out=apart[start:stop, start:])
            apart[stop:, start:stop] = apart[start:stop, stop:].T
        if base is not None:
            apart += base
        yield everyone, apart.fill_diagonal_(torch.inf), 0.0
        return
    wanted = everyone if rows is None else rows
    for here in torch.split(wanted, max(1, BLOCK_BYTES // (m * points.element_size()))):
        apart = room.take(len(here), m, points)
        torch.addmm(
            square, points[here] if len(here) < m or rows is not None else points, points.T, alpha=-2, out=apart
        )
        if base is not None:
            apart += base[here]
        apart[everyone[: len(here)], here] = torch.inf
        yield here, apart, square[here, None]


def smallest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """At least the k smallest entries of each row: all up to some bound.

    Columns are taken together by the dozen, and the bound is the k-th smallest of their minima. That is several times
    faster than to find the k smallest themselves. Where many entries are equal, they are the k smallest.

    Args:
        values: (r, m).
        k: at most m.

    Returns:
        (r, L) columns, ascending in a row, and their values; a row that has fewer is filled with column 0 and infinity.
    """
    r, m = values.shape
    together = m // (4 * k)
    if together > 1:
        width = m // together
        bound = _kth(values[:, : together * width].view(r, together, width).amin(1), k)
        row, column = torch.nonzero(values <= bound[:, None], as_tuple=True)
        count = torch.bincount(row, minlength=r)
        longest = int(count.max())
        if longest <= 4 * k:
            place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
            columns = column.new_zeros(r, longest)
            found = values.new_full((r, longest), torch.inf)
            columns[row, place] = column
            found[row, place] = values[row, column]
            return columns, found
    found, columns = values.topk(k, dim=1, largest=False, sorted=False)
    columns, order = columns.sort(1)
    return columns, found.gather(1, order)


def _kth(values: Tensor, k: int) -> Tensor:
    """The k-th smallest of each row, (r,)."""
    if values.device.type != "cpu":
        return values.kthvalue(k, dim=1).values
    return torch.from_numpy(np.partition(values.numpy(), k - 1, axis=1)[:, k - 1].copy())  # five times as fast


def mend(squared: Tensor, index: Tensor, points: Tensor, square: Tensor, base: Tensor | None, rows: Tensor) -> bool:
    """Where |a|^2 + |b|^2 - 2 a.b lost digits, find the neighbours or their distances again, in place.

    Args:
        squared: (g, r, k) squared distances.
        index: (g, r, k) the neighbours.
        points: (g, m, d), centred.
        square: (g, m) their squared lengths.
        base: (g, m, m) squared distances in further coordinates, exact, or None.
        rows: (r,) whose neighbours they are.

    Returns:
        Whether there were any.
    """
    size = square[:, rows, None] + square.gather(1, index.flatten(1)).view_as(squared)
    lost = squared < CANCELLATION * size
    if not bool(lost.any()):
        return False
    blurred = (squared < NEAR_COPY_ROW * size).any(2)  # the choice itself is in doubt
    if bool(blurred.any()) and points.dtype != torch.float64:
        g, place = torch.nonzero(blurred, as_tuple=True)
        chunk = max(1, BLOCK_BYTES // (8 * points.shape[1]))
        for group in torch.unique(g).tolist():
            double = points[group].double()
            length = double.square().sum(1)
            for some in torch.split(place[g == group], chunk):
                own = rows[some]
                again = torch.addmm(length, double[own], double.T, alpha=-2)
                if base is not None:
                    again += base[group, own]
                again[torch.arange(len(some), device=own.device), own] = torch.inf
                index[group, some] = again.topk(index.shape[2], dim=1, largest=False, sorted=False).indices
    lost |= blurred[..., None]
    g, place, slot = torch.nonzero(lost, as_tuple=True)
    there = index[g, place, slot]
    direct = differences(points, g, rows[place], there)
    squared[g, place, slot] = direct if base is None else direct + base[g, rows[place], there]
    return True


def differences(points: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Squared distances of some pairs of g groups' points, from their differences."""
    chunk = max(1, BLOCK_BYTES // max(1, points.shape[2] * points.element_size()))
    out = points.new_empty(len(g))
    for start in range(0, len(g), chunk):
        some = slice(start, start + chunk)
        out[some] = (points[g[some], i[some]] - points[g[some], j[some]]).square_().sum(1)
    return out


def squared_lengths(points: Tensor) -> Tensor:
    """|a|^2 of every point, (m,)."""
    return points.square().sum(1)


def listed(points: Tensor, lists: Tensor, rows: Tensor | slice, square: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances of some points to those on their lists, and |a|^2 + |b|^2, what they were subtracted from.

    Args:
        points: (m, d), centred.
        lists: (r, L) indices.
        rows: which r points the lists belong to.
        square: (m,) the points' squared lengths.
    """
    count, width = lists.shape
    starts = torch.arange(0, count * width + 1, width, device=lists.device)
    pattern = csr(starts, lists.flatten(), points.new_zeros(count * width), count, len(points))
    dots = torch.sparse.sampled_addmm(pattern, points[rows], points.T, beta=0.0).values().view(count, width)
    size = square[rows, None] + square[lists]
    return size - 2 * dots, size
