"""Where the targets of all samples are kept: in every process, or once per machine in a file that all map."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ldmnet.distributed.plan import SHARD_FROM
from ldmnet.distributed.world import TIMEOUT, World
from ldmnet.errors import InputError

MACHINE_FROM = 2**30  # bytes of all targets: from here on they are kept once per machine unless asked otherwise


@dataclass(frozen=True)
class Sharing:
    """How several processes share the work and the targets of a regulariser.

    Attributes:
        store: "rank" keeps all targets in every process, "machine" once per machine, in a file that its processes map
            into memory; "auto" does that from 1 GB on.
        precision: "features" keeps targets in the features' own precision, "half" in float16: half the memory and
            the bytes, and targets that are rounded to 1 / 2,048 of their size.
        timeout: seconds that a process waits for the others before it gives up with a `DistributedError`. It must be
            above what the slowest process takes for its part of an update. A `process_group` that is given keeps its
            own.
        shard_from: samples from which a class may be spread over all processes. It is where its class is so large that
            one process would have far more than its share.
        folder: of the file of "machine"; the system's shared memory, or else its folder for temporary files.
    """

    store: Literal["auto", "rank", "machine"] = "auto"
    precision: Literal["features", "half"] = "features"
    timeout: float = TIMEOUT
    shard_from: int = SHARD_FROM
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        if self.store not in ("auto", "rank", "machine"):
            raise InputError(f"store must be 'auto', 'rank' or 'machine', got {self.store!r}.")
        if self.precision not in ("features", "half"):
            raise InputError(f"precision must be 'features' or 'half', got {self.precision!r}.")
        if self.shard_from < 1:
            raise InputError(f"shard_from must be at least 1, got {self.shard_from}.")


class Targets:
    """Room for the targets (m, d_feat) of all samples. To make one is collective.

    Args:
        world: the processes.
        sharing: where and in which precision.
        shape: (m, d_feat).
        like: of the features' type, on their device.

    Attributes:
        values: the room, in sorted order; to be read by all.
        readers: the processes that write it, each for itself or for its machine.
    """

    def __init__(self, world: World, sharing: Sharing, shape: tuple[int, int], like: Tensor) -> None:
        dtype = torch.float16 if sharing.precision == "half" else like.dtype
        size = shape[0] * shape[1] * torch.empty(0, dtype=dtype).element_size()
        shared = sharing.store == "machine" or (sharing.store == "auto" and size >= MACHINE_FROM)
        self.readers = list(range(world.size))
        if not shared or not size:
            self.values = torch.empty(shape, dtype=dtype, device=like.device)
            return
        machines = world.objects(socket.gethostname())
        leader = [machines.index(name) for name in machines]  # the first process of each machine
        self.readers = sorted(set(leader))
        path, error = None, None
        if world.rank in self.readers:
            try:
                path = _made(sharing, size)
            except InputError as fault:
                error = fault
        try:
            world.agree(error)
            place = str(world.objects(path)[leader[world.rank]])
            try:
                self.values = torch.from_file(place, shared=True, size=shape[0] * shape[1], dtype=dtype).view(shape)
            except RuntimeError as fault:
                error = InputError(
                    f"{place}, the targets of this machine, cannot be mapped ({' '.join(str(fault).split()):.200}). "
                    "Do two machines have one host name? Sharing(store='rank') keeps targets in every process."
                )
            world.agree(error)  # all have it: the name can go, so that nothing is left however this ends
        finally:
            if path is not None:
                os.unlink(path)

    def writable(self, world: World) -> Tensor | None:
        """Where this process writes; None if another one of its machine does."""
        return self.values if world.rank in self.readers else None


def _made(sharing: Sharing, size: int) -> str:
    """The path of a new file of so many bytes."""
    memory = Path("/dev/shm")  # noqa: S108 the name is made by mkstemp
    folder = sharing.folder or (memory if memory.is_dir() and os.access(memory, os.W_OK) else None)
    handle, path = tempfile.mkstemp(prefix="ldmnet-targets-", dir=folder)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)  # or a full disk would be told by a signal, later
        else:
            os.truncate(handle, size)
    except OSError as error:
        os.unlink(path)
        raise InputError(f"there is no room for {size:,} bytes of targets in {Path(path).parent}: {error}.") from error
    finally:
        os.close(handle)
    return path
