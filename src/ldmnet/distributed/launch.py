"""Processes that torchrun started: joined, and given one model."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ldmnet.distributed.world import TIMEOUT, World, join, world_of
from ldmnet.errors import InputError

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells every process


def launched() -> bool:
    """Whether torchrun started this process, beside others."""
    several = all(name in os.environ for name in LAUNCHED) and int(os.environ["WORLD_SIZE"]) > 1
    return several and multiprocessing.parent_process() is None  # one of our own is not of them


def joined(timeout: float = TIMEOUT) -> World | None:
    """The processes that train together: those of the initialised group, or of torchrun, which are then joined."""
    if dist.is_available() and not dist.is_initialized() and launched():
        join(timeout)
    return world_of(None, timeout)


def refuse_split_weights(model: nn.Module) -> None:
    """Refuse a model whose weights are split over processes (FSDP, tensor parallelism)."""
    kinds = {type(part).__name__ for part in (*model.modules(), *model.parameters())}
    if kinds & {"FullyShardedDataParallel", "DTensor"}:
        raise InputError(
            "the model's weights are split over processes (FSDP or tensor parallelism), where a sweep of each "
            "process's own samples would wait for the others for ever. Train with DistributedDataParallel, "
            "where every process has the whole model."
        )


def same_buffers(model: nn.Module) -> None:
    """Give all processes the buffers of the first, as BatchNorm's statistics. All call it, before a sweep.

    DistributedDataParallel does so in every training pass, but after the last one each process has its own.
    """
    if world_of() is not None:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


def average_gradients(world: World, weights: Iterable[nn.Parameter]) -> None:
    """The mean over the processes of the gradients of all weights, in place; every process has the same ones."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for gradient in gradients:
        by_type.setdefault(gradient.dtype, []).append(gradient)
    for some in by_type.values():
        mean = world.total(torch.cat([gradient.flatten() for gradient in some])) / world.size
        for gradient, part in zip(some, torch.split(mean, [gradient.numel() for gradient in some]), strict=True):
            gradient.copy_(part.view_as(gradient))
