"""The processes that work on one update, and what they say to each other.

Every call here is collective: all processes make it, in one order. Each ends in a bounded time, with its result or with
a `DistributedError` that says where it stood.
"""

from __future__ import annotations

import atexit
import gc
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before any group is there: its defaults keep the one of that time for ever
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from ldmnet.errors import DistributedError, InputError, LDMNetError

TIMEOUT = 300.0  # seconds; above what the slowest process takes for its part of an update
ORDERED = 2**16  # numbers: up to here they are added in the order of the processes, which gives one sum everywhere


_joined: list[float] = []  # the timeout of the group that `join` made, if it did


def join(timeout: float) -> None:
    """Make the group of the processes that torchrun started, with a timeout of our own."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    limit, attempt = timedelta(seconds=timeout), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store, rank, size = next(rendezvous("env://", timeout=limit))
    store = PrefixStore(f"ldmnet start {attempt}", store)  # a restart does not find the addresses of those before
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    _joined.append(timeout)
    atexit.register(_leave)


def _leave() -> None:
    """End the groups before the interpreter does: a thread of theirs that still lets a tensor go would abort it."""
    if dist.is_initialized():
        gc.collect()  # a trainer that nobody uses any more may hold a group, in a cycle
        dist.destroy_process_group()


class World:
    """A process group with a timeout of our own.

    The group that the calls go through is made at the first of them, so that a `World` can be made anywhere. It belongs
    to torch: a reference from here would keep its threads alive after `destroy_process_group`.

    Args:
        given: the group whose processes take part, with its own timeout; None makes one of all.
        timeout: seconds that a process of that one waits for the others.

    Attributes:
        rank: which process this is, counted from zero.
        size: how many there are.
        sent: bytes that this process has sent to others.
        doing: what the processes are at, in words that follow 'while'.
    """

    def __init__(self, given: dist.ProcessGroup | None = None, timeout: float = TIMEOUT) -> None:
        if not 0 < timeout < 1e9:
            raise InputError(f"timeout must be seconds above zero, got {timeout}.")
        if given is None and (_joined or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))):
            given = dist.group.WORLD  # after a restart a further group may find the addresses of the first start
        self._group, self._timeout = None if given is None else weakref.ref(given), timeout
        known = timeout if given is None else _joined[0] if _joined else None
        limit = "{:g} s (the timeout, see ldmnet.distributed.Sharing)"
        self._limit = "the group's timeout" if known is None else limit.format(known)
        self.rank, self.size = dist.get_rank(given), dist.get_world_size(given)
        self.sent = 0
        self.doing = "an update began"

    @property
    def group(self) -> dist.ProcessGroup:
        """The group, with its own timeout; the first use is collective."""
        if self._group is None:
            with self._told():
                self._group = weakref.ref(dist.new_group(timeout=timedelta(seconds=self._timeout)))
            atexit.register(_leave)
        if (group := self._group()) is None:
            raise DistributedError("the process group was destroyed before training was over. Destroy it at the end.")
        return group

    @property
    def device(self) -> torch.device:
        """Where tensors must be to travel."""
        nccl = dist.get_backend(None if self._group is None else self.group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def total(self, values: Tensor) -> Tensor:
        """The sum over the processes, the same bits on each."""
        if values.numel() > ORDERED:
            mine = values.to(self.device, copy=True)
            self._count(mine, 2)
            with self._told():
                dist.all_reduce(mine, group=self.group)
            return mine.to(values.device)
        every = self.every(values)
        return every.double().sum(0).to(values) if values.is_floating_point() else every.sum(0).to(values)

    def most(self, values: Tensor) -> Tensor:
        """The largest over the processes; a NaN anywhere comes through."""
        return self.every(values).amax(0)

    def every(self, values: Tensor) -> Tensor:
        """(size, ...) the values of every process, all of one shape."""
        mine = values.contiguous().to(self.device)
        out = [torch.empty_like(mine) for _ in range(self.size)]
        self._count(mine, self.size - 1)
        with self._told():
            dist.all_gather(out, mine, group=self.group)
        return torch.stack(out).to(values.device)

    def objects(self, mine: Any) -> list[Any]:
        """The small Python objects of every process."""
        out: list[Any] = [None] * self.size
        with self._told():
            dist.all_gather_object(out, mine, group=self.group)
        return out

    def from_first(self, mine: Any) -> Any:
        """The Python object of process 0."""
        out = [mine]
        with self._told():
            dist.broadcast_object_list(out, dist.get_global_rank(self.group, 0), group=self.group)
        return out[0]

    def same(self, tensors: Sequence[Tensor]) -> None:
        """Give all processes the tensors of process 0, in place."""
        first = dist.get_global_rank(self.group, 0)
        for tensor in tensors:
            there = tensor.detach().contiguous().to(self.device)
            self._count(there, self.size - 1 if self.rank == 0 else 0)
            with self._told():
                dist.broadcast(there, first, group=self.group)
            tensor.detach().copy_(there)

    def exchange(self, rows: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """Send the first `send[0]` rows to process 0, the next `send[1]` to process 1 and so on; what came, likewise.

        Args:
            rows: (sum of send, ...).
            send: rows for each process.
            receive: rows from each process.
        """
        mine = rows.contiguous().to(self.device)
        out = mine.new_empty(sum(receive), *rows.shape[1:])
        self._count(mine[: sum(send) - send[self.rank]], 1)
        with self._told():
            dist.all_to_all_single(out, mine, list(receive), list(send), group=self.group)
        return out.to(rows.device)

    def counts(self, send: Tensor) -> tuple[list[int], list[int]]:
        """From how many rows (size,) go to each process: these, and how many come from each."""
        came = self.exchange(send, [1] * self.size, [1] * self.size)
        return send.tolist(), came.tolist()

    def agree(self, error: Exception | None, others: str = "") -> None:
        """Go on if no process has an error; otherwise every one raises one.

        Args:
            error: what went wrong here, if anything did.
            others: what the processes where nothing went wrong say after whose error it was.
        """
        found = self.objects(None if error is None else (isinstance(error, InputError), f"{error}"))
        if error is not None:
            raise error
        for rank, theirs in enumerate(found):
            if theirs is not None:
                kind: type[LDMNetError] = InputError if theirs[0] else DistributedError
                raise kind(f"process {rank} of {self.size}: {theirs[1]}{others}")

    def _count(self, values: Tensor, times: int) -> None:
        self.sent += times * values.numel() * values.element_size()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except DistributedError:
            raise
        except RuntimeError as error:
            words = " ".join(str(error).split())
            raise DistributedError(
                f"process {self.rank} of {self.size} lost the others while {self.doing}: one of them died, failed or "
                f"took more than {self._limit}. Its own output says why. Start again from the last "
                f"checkpoint, with any number of processes. ({words:.300})"
            ) from error


def world_of(process_group: dist.ProcessGroup | None = None, timeout: float = TIMEOUT) -> World | None:
    """The processes that work together; None where there is only one."""
    if not dist.is_available() or not dist.is_initialized():
        if process_group is not None:
            raise InputError("process_group was given but torch.distributed is not initialised.")
        return None
    if dist.get_rank(process_group) < 0:
        raise InputError("this process is not in the process_group that was given.")
    return World(process_group, timeout) if dist.get_world_size(process_group) > 1 else None
