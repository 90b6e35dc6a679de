"""Who works on which rows: whole classes have owners, a class too large for one process is sharded over all."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ldmnet.graph.groups import Groups

SHARD_FROM = 8192  # rows of a class: smaller ones are never sharded
EVEN = 1.25  # times the even share of rows: a class larger than that cannot be balanced by giving it to one process


@dataclass(frozen=True)
class Shard:
    """A part of a sharded class.

    Attributes:
        bounds: where the part of each process begins within the class, and the class's size: (size + 1,) numbers.
        here: where the rows of this process are among all that it holds.
    """

    bounds: tuple[int, ...]
    here: slice


class Plan:
    """The rows of all classes, shared out among processes; every process makes the same plan.

    Args:
        groups: the partition of all samples.
        size: how many processes.
        rank: which one this is.
        shard_from: rows from which a class may be sharded.

    Attributes:
        holder: (m,) the process that holds each row, in sorted order.
        owned: by process, the numbers of the classes that it owns.
        sharded: the numbers of the classes that all have a part of.
    """

    def __init__(self, groups: Groups, size: int, rank: int, shard_from: int = SHARD_FROM) -> None:
        self.rank, self.size = rank, size
        self._starts, self._sizes, self._device = groups.starts, groups.sizes, groups.order.device
        m = len(groups.order)
        largest = max(shard_from, size, int(EVEN * m / size))
        self.sharded = [c for c, n in enumerate(groups.sizes) if n > largest]
        loads = [(sum(self._part(c, r)[1] for c in self.sharded), r) for r in range(size)]
        heapq.heapify(loads)
        self.owned: list[list[int]] = [[] for _ in range(size)]
        whole = set(range(len(groups.sizes))) - set(self.sharded)
        for c in sorted(whole, key=lambda c: (-groups.sizes[c], c)):  # the largest first, to who has least
            load, r = heapq.heappop(loads)
            self.owned[r].append(c)
            heapq.heappush(loads, (load + groups.sizes[c], r))
        for classes in self.owned:
            classes.sort()
        self.holder = torch.empty(m, dtype=torch.int16, device=self._device)
        for r in range(size):
            self.holder[self.rows_of(r)] = r

    def _part(self, c: int, rank: int) -> tuple[int, int]:
        """Where a process's part of a sharded class begins, and how many rows it has."""
        start, stop = (self._sizes[c] * r // self.size for r in (rank, rank + 1))
        return self._starts[c] + start, stop - start

    def rows_of(self, rank: int) -> Tensor:
        """The rows that a process holds, by sorted order: its own classes', then its parts of sharded classes."""
        spans = [(self._starts[c], self._sizes[c]) for c in self.owned[rank]]
        spans += [self._part(c, rank) for c in self.sharded]
        pieces = [torch.arange(start, start + n, device=self._device) for start, n in spans]
        return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.int64, device=self._device)

    @cached_property
    def mine(self) -> Tensor:
        """The rows that this process holds, see `rows_of`."""
        return self.rows_of(self.rank)

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        ascending, place = self.mine.sort()
        return ascending, place

    def slots(self, rows: Tensor) -> Tensor:
        """Where rows that this process holds are among `mine`."""
        ascending, place = self._sorted
        return place[torch.searchsorted(ascending, rows)]

    @property
    def n_owned(self) -> int:
        """How many of the rows that this process holds are of classes that it owns; they come first."""
        return sum(self._sizes[c] for c in self.owned[self.rank])

    def groups(self) -> Groups:
        """The partition of the rows of the classes that this process owns."""
        sizes = torch.tensor([self._sizes[c] for c in self.owned[self.rank]], dtype=torch.int64, device=self._device)
        out = Groups(torch.repeat_interleave(sizes))
        out.keys = [self._starts[c] for c in self.owned[self.rank]]
        return out

    def shards(self) -> list[Shard]:
        """This process's parts of the sharded classes."""
        out, start = [], self.n_owned
        for c in self.sharded:
            bounds = tuple(self._sizes[c] * r // self.size for r in range(self.size + 1))
            stop = start + bounds[self.rank + 1] - bounds[self.rank]
            out.append(Shard(bounds, slice(start, stop)))
            start = stop
        return out
