"""How a step begins under a process group: every process says what it brings, and all go on, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ldmnet.distributed.travel import Share
from ldmnet.distributed.world import World
from ldmnet.errors import DistributedError, InputError
from ldmnet.graph.groups import checked_index
from ldmnet.graph.points import at_least_single, checked_points


@dataclass(frozen=True, eq=False)
class Brought:
    """What this process brings to a step.

    Attributes:
        features: (b, d_feat), checked.
        index: (b,) which samples they are.
        n: how many samples there are in all.
        most: the largest b of all processes.
        once: whether each sample must come once.
    """

    features: Tensor
    index: Tensor
    n: int
    most: int
    once: bool


def own_share(n: int, rank: int, size: int) -> range:
    """The samples of n that one of several processes takes where all have them: no padding, none left out."""
    return range(n * rank // size, n * (rank + 1) // size)


def meet(
    world: World, features: Tensor | Share | None, index: Any, n: int | None, width: int | None, alike: tuple[Any, ...]
) -> Brought:
    """Check what every process brings, before anything is sent.

    Args:
        world: the processes.
        features: what `step` was given.
        index: likewise.
        n: how many samples there are, where that is known.
        width: features per sample at the last step, if there was one.
        alike: what must be the same in all processes, as the number of steps so far.
    """
    world.doing = "an update began"
    brought, error = None, None
    try:
        brought = _brought(world, features, index, n)
        if width is not None and brought[0].shape[1] != width:
            raise InputError(
                f"features has {brought[0].shape[1]} columns but the last step had {width}. Pass the same layer's "
                "features at every step."
            )
    except InputError as fault:
        error = fault
    told: Any = None if brought is None else (len(brought[1]), brought[0].shape[1], str(brought[0].dtype), *brought[2:])
    every = world.objects((told, alike))
    world.agree(error)
    assert brought is not None
    for rank, (theirs, also) in enumerate(every):
        if also != every[0][1]:
            raise DistributedError(
                f"process {rank} of {world.size} has another training set, other settings or another number of steps "
                "behind it than process 0. Build the regularizer alike in all processes, and load one state in all."
            )
        if theirs[1:3] != every[0][0][1:3]:
            raise InputError(
                f"process {rank} of {world.size} has {theirs[1]} features of {theirs[2]} per sample and process 0 "
                f"{every[0][0][1]} of {every[0][0][2]}."
            )
    n = n if n is not None else max(theirs[3] for theirs, _ in every)
    return Brought(brought[0], brought[1], n, max(theirs[0] for theirs, _ in every), once=brought[3])


def _brought(
    world: World, features: Tensor | Share | None, index: Any, n: int | None
) -> tuple[Tensor, Tensor, int, bool]:
    """Features and index, checked, how many samples there must be at least, and whether each comes once."""
    if features is None:
        raise InputError("under a process group every step needs features: pass those of ldmnet.sweep.")
    once, total = isinstance(features, Share), 0
    if isinstance(features, Share):
        index, total = features.index, features.n
        features = features.features
    if not isinstance(features, Tensor):
        features = torch.as_tensor(features)
    if features.ndim == 2 and len(features) == 0 and features.is_floating_point():
        features = at_least_single(features.detach())  # a process may have no samples
    else:
        features = checked_points(at_least_single(features), "features")
    if index is None:
        if n is not None and len(features) != n:
            raise InputError(
                f"features has {len(features)} rows but the regularizer was built for {n} samples. Under a process "
                "group pass the features that this process has, and index=, which samples they are."
            )
        total = len(features)
        mine = own_share(total, world.rank, world.size)  # all have all: each sends its part
        features, index = features[mine.start : mine.stop], torch.arange(mine.start, mine.stop)
    index = checked_index(index, features)
    if len(index):
        low, high = int(index.min()), int(index.max())
        most = high if n is None else n - 1
        if low < 0 or high > most:
            raise InputError(f"index holds {low if low < 0 else high} but the training set has samples 0 to {most}.")
        total = max(total, high + 1)
    if once and n is not None and total != n:
        raise InputError(f"the sweep was over {total} samples but the regularizer was built for {n}.")
    return features, index.to(features.device, torch.int64), total, once
