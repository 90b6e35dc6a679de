"""The graph of a class whose rows are spread over all processes.

The shards go round in a ring: in each round a process compares its own points with the shard that is visiting, and
passes it on. Of each visitor the nearest are chosen by one matrix product and their distances computed again from the
differences, so that the graph is that of one process but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ldmnet.distributed.system import SpreadMatrix
from ldmnet.distributed.world import World
from ldmnet.graph.distances import BLOCK_BYTES, NEAR_COPY_ROW
from ldmnet.graph.neighbors import Neighbors
from ldmnet.graph.points import largest, power_of_two
from ldmnet.graph.weights import local_scale

SPARE = 12  # of each visitor, beyond the neighbours wanted: the product's rounding may put a few in the wrong order


def ring_search(world: World, bounds: Sequence[int], points: Tensor, k: int) -> Neighbors:
    """The k nearest of this process's points among those of all.

    Args:
        world: the processes.
        bounds: where each process's rows begin, and how many there are in all.
        points: (m_here, d).
        k: how many neighbours.

    Returns:
        (m_here, k) places counted over all rows, and distances, ascending.
    """
    n, rank, size = bounds[-1], world.rank, world.size
    width = min(k, n - 1)
    scale = power_of_two(points, float(world.most(torch.tensor(largest(points), dtype=torch.float64))))
    points = points if scale == 1 else points * scale
    points = points - (world.total(points.sum(0, dtype=torch.float64)) / n).to(points)
    index = torch.full((len(points), width), -1, device=points.device)
    squared = torch.full((len(points), width), torch.inf, dtype=points.dtype, device=points.device)
    visitor = points
    for round_ in range(size):
        whose = (rank - round_) % size
        near, distance = _nearest(points, visitor, width + SPARE, itself=whose == rank)
        squared, place = torch.cat([squared, distance], 1).topk(width, dim=1, largest=False, sorted=True)
        index = torch.cat([index, near + bounds[whose]], 1).gather(1, place)
        if round_ + 1 < size:
            after, before = (rank + 1) % size, (whose - 1) % size  # who gets this visitor, and who comes
            send = [len(visitor) if other == after else 0 for other in range(size)]
            comes = bounds[before + 1] - bounds[before]
            receive = [comes if other == (rank - 1) % size else 0 for other in range(size)]
            visitor = world.exchange(visitor, send, receive)
    found = torch.full((len(points), k), -1, device=points.device)
    distances = torch.full((len(points), k), torch.inf, dtype=points.dtype, device=points.device)
    found[:, :width], distances[:, :width] = index, squared.sqrt_() / scale
    return Neighbors(found, distances)


def _nearest(points: Tensor, others: Tensor, k: int, *, itself: bool) -> tuple[Tensor, Tensor]:
    """(m, k) the nearest others of each point, and their squared distances; fewer if there are not so many.

    `itself` says that the others are the points: none is its own neighbour.
    """
    k = min(k, len(others) - itself)
    square, theirs = points.square().sum(1), others.square().sum(1)
    indices, distances = [], []
    for here in torch.split(
        torch.arange(len(points), device=points.device),
        max(1, BLOCK_BYTES // (max(len(others), k * points.shape[1]) * points.element_size())),
    ):
        some = points[here]
        near = _chosen(some, others, theirs, k, here if itself else None)
        squared = _direct(some, others, near)
        size = square[here, None] + theirs[near]
        blurred = (squared < NEAR_COPY_ROW * size).any(1)  # the choice itself is in doubt
        if bool(blurred.any()) and points.dtype != torch.float64:
            double = others.double()
            own = here[blurred] if itself else None
            near[blurred] = _chosen(some[blurred].double(), double, double.square().sum(1), k, own)
            squared[blurred] = _direct(some[blurred], others, near[blurred])
        indices.append(near)
        distances.append(squared)
    return torch.cat(indices), torch.cat(distances)


def _chosen(some: Tensor, others: Tensor, square: Tensor, k: int, own: Tensor | None) -> Tensor:
    """(b, k) the nearest others of some points by |b|^2 - 2 a.b; `own` are the places that are the points' own."""
    reduced = torch.addmm(square, some, others.T, alpha=-2)
    if own is not None:
        reduced[torch.arange(len(own), device=own.device), own] = torch.inf
    return reduced.topk(k, dim=1, largest=False, sorted=False).indices


def _direct(some: Tensor, others: Tensor, near: Tensor) -> Tensor:
    return (some[:, None] - others[near]).square_().sum(2)


def spread_weights(world: World, bounds: Sequence[int], nearest: Neighbors, sigma_neighbor: int) -> SpreadMatrix:
    """W of eq. (23) from this process's neighbours: its rows of the symmetric matrix. Collective."""
    start, n = bounds[world.rank], bounds[-1]
    mine = local_scale(nearest, sigma_neighbor)
    most = max(stop - begin for begin, stop in pairwise(bounds))
    padded = mine.new_zeros(most)
    padded[: len(mine)] = mine
    every = world.every(padded)
    sigma = torch.cat([every[r, : bounds[r + 1] - bounds[r]] for r in range(world.size)])  # (n,) of all
    present = nearest.index >= 0
    row = torch.arange(len(mine), device=mine.device)[:, None].expand_as(present)[present] + start
    col, distance = nearest.index[present], nearest.distance[present]
    weight = torch.exp(-(distance / sigma[row]) * (distance / sigma[col]))  # eq. (23)
    owner = torch.searchsorted(torch.tensor(bounds[1:], device=col.device), col, right=True)
    by_owner = torch.argsort(owner, stable=True)
    send, receive = world.counts(torch.bincount(owner, minlength=world.size).cpu())
    turned = world.exchange(torch.stack([col, row], 1)[by_owner], send, receive)
    turned_weight = world.exchange(weight[by_owner], send, receive)
    diagonal = torch.arange(start, start + len(mine), device=mine.device)
    rows = torch.cat([row, turned[:, 0], diagonal]) - start
    key, order = (rows * n + torch.cat([col, turned[:, 1], diagonal])).sort()
    first = torch.ones_like(key, dtype=torch.bool)
    first[1:] = key[1:] != key[:-1]  # an edge that is there in both directions has one weight
    values = torch.cat([weight, turned_weight, torch.ones_like(mine)])[order[first]]
    key = key[first]
    row = key // n
    crow = torch.zeros(len(mine) + 1, dtype=torch.int64, device=mine.device)
    torch.cumsum(torch.bincount(row, minlength=len(mine)), 0, out=crow[1:])
    return SpreadMatrix.of(world, bounds, crow, key - row * n, values)
