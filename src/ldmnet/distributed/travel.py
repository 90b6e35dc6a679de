"""Rows that travel: features to the process that holds their sample, targets back to all.

A row is known by the number of its sample, not by who sent it or when: it is written once, never averaged. Where
several processes have one sample, as a sampler's padding makes them, the first process's row counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ldmnet.distributed.plan import Plan
from ldmnet.distributed.world import World
from ldmnet.errors import InputError
from ldmnet.graph.groups import checked_index

BUFFER_BYTES = 32 * 2**20  # that a process sends at one time


@dataclass(frozen=True, eq=False)
class Share:
    """The features of a part of a data set, as `ldmnet.sweep` gives them under a process group.

    Attributes:
        features: (b, d_feat).
        index: (b,) which samples they are.
        n: how many samples all processes have together, each once.
    """

    features: Tensor
    index: Tensor
    n: int


def in_order(features: Tensor | Share, index: Any, groups: Tensor | None) -> Tensor:
    """The features of all samples in their order, where one process has them all in the order of an index.

    Args:
        features: (b, d_feat), or a `Share`.
        index: (b,) which samples they are; None if they are in order.
        groups: (n,) the samples' classes, where these are known.
    """
    if isinstance(features, Share):
        features, index = features.features, features.index
    if index is None:
        return features
    index = checked_index(index, features)
    found, order = index.cpu().sort(stable=True)
    first = torch.ones_like(found, dtype=torch.bool)
    first[1:] = found[1:] != found[:-1]
    n = int(first.sum()) if groups is None else len(groups)
    if not torch.equal(found[first], torch.arange(n)):
        raise InputError(
            f"index names {int(first.sum())} different samples, from {int(index.min())} to {int(index.max())}, of the "
            f"{n} from 0 to {n - 1}: give the features of every sample of the training set (see ldmnet.sweep)."
        )
    return features[order[first].to(features.device)]


def to_holders(world: World, plan: Plan, rows: Tensor, features: Tensor, most: int, *, once: bool) -> Tensor:
    """Send features to who holds their rows; the features (m_here, d_feat) of the rows that this process holds.

    Args:
        world: the processes.
        plan: who holds what.
        rows: (b,) places in sorted order; -1 for samples of no class.
        features: (b, d_feat).
        most: the largest b of all processes.
        once: whether no row may come twice.
    """
    order = torch.argsort(rows, stable=True)
    ascending = rows[order]
    keep = ascending >= 0
    keep[1:] &= ascending[1:] != ascending[:-1]
    sent_twice = int((ascending >= 0).sum() - keep.sum())
    order = order[keep]
    goes_to = plan.holder[rows[order]].long()
    by_holder = torch.argsort(goes_to, stable=True)
    order, goes_to = order[by_holder], goes_to[by_holder]
    out = features.new_empty(len(plan.mine), features.shape[1])
    came_from = torch.full((len(out),), world.size, dtype=torch.int16, device=rows.device)
    block, repeated = rows_at_once(features), 0
    for start in range(0, most, block):
        some = order[start : start + block]
        send, receive = world.counts(torch.bincount(goes_to[start : start + block], minlength=world.size).cpu())
        slot = plan.slots(world.exchange(rows[some], send, receive))
        came = world.exchange(features[some], send, receive)
        begin = 0
        for sender, count in enumerate(receive):
            here = slice(begin, begin + count)
            first = came_from[slot[here]] > sender
            repeated += int((came_from[slot[here]] < world.size).sum())
            place = slot[here][first]
            out[place], came_from[place] = came[here][first], sender
            begin += count
    missing = came_from == world.size
    error = None
    if bool(missing.any()):
        error = InputError(
            f"{int(missing.sum())} of the {len(out)} samples that this process holds came from no process. Give the "
            "features of every sample of the training set, by one process at least (see ldmnet.sweep)."
        )
    elif once and repeated + sent_twice:
        error = InputError(f"{repeated + sent_twice} samples of a sweep came twice: give all processes one data set.")
    world.agree(error)
    return out


def to_all(world: World, plan: Plan, rows: Tensor, out: Tensor | None, readers: Sequence[int]) -> None:
    """Send rows from who holds them to every reader.

    Args:
        world: the processes.
        plan: who holds what.
        rows: (m_here, d_feat) of the rows that this process holds.
        out: (m, d_feat) where they are written, in sorted order; None in a process that does not read.
        readers: the processes that do.
    """
    block = max(1, rows_at_once(rows) // len(readers))
    places = [plan.rows_of(rank) for rank in range(world.size)]
    for start in range(0, max(map(len, places)), block):
        there = [place[start : start + block] for place in places]
        mine = rows[start : start + block]
        send = [len(mine) if rank in readers else 0 for rank in range(world.size)]
        receive = [len(place) if world.rank in readers else 0 for place in there]
        came = world.exchange(torch.cat([mine] * len(readers)), send, receive)
        if out is not None:
            out[torch.cat(there)] = came.to(out)


def rows_at_once(like: Tensor) -> int:
    """How many rows of a tensor (n, d) travel at one time."""
    return max(1, BUFFER_BYTES // max(1, like.shape[1] * like.element_size()))
