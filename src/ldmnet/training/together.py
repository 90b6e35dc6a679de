"""Several processes that train one model in `fit`: what they must have alike, and what only one of them does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ldmnet.distributed.launch import refuse_split_weights
from ldmnet.distributed.world import World
from ldmnet.errors import InputError, StateError
from ldmnet.fingerprints import fingerprint
from ldmnet.training.checkpoint import read_checkpoint

T = TypeVar("T")


def start_alike(world: World | None, model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> None:
    """Give all processes the first one's weights, and refuse what cannot be trained together."""
    if world is None:
        return
    world.doing = "training began"
    refuse_split_weights(model)
    if isinstance(model, DistributedDataParallel):
        raise InputError("fit averages the gradients of the processes itself: give it the model, not DDP(model).")
    if min(batch_size, len(x)) < 2 * world.size:
        raise InputError(
            f"batch_size is {batch_size}, with {len(x)} samples, for {world.size} processes, which share every batch "
            f"out: it must be at least {2 * world.size}, two samples for each."
        )
    if len(set(world.objects(fingerprint(x, y)))) > 1:
        raise InputError("the processes have different training data: load and draw it alike in all of them.")
    world.same([*model.parameters(), *model.buffers()])
    world.doing = "training went on"


def read_once(world: World | None, path: Path | None) -> dict[str, Any] | None:
    """A checkpoint, if it is there: read by one process, for all."""
    if world is None or path is None:
        return read_checkpoint(path) if path is not None and path.exists() else None
    state, error = None, None
    if world.rank == 0 and path.exists():
        try:
            state = read_checkpoint(path)
        except StateError as fault:
            error = fault
    world.agree(error)
    found: dict[str, Any] | None = world.from_first(state)
    return found


def stream(name: str, world: World | None) -> str:
    """The name of a process's own random numbers: those of the first are those of a process alone."""
    return name if world is None or world.rank == 0 else f"{name} of process {world.rank}"


def of_first(world: World | None, value: T) -> T:
    """The first process's value, which all go by."""
    found: T = value if world is None else world.from_first(value)
    return found
