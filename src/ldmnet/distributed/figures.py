"""The numbers of an update that depend on all samples: one sum over the processes each, the same on every one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ldmnet.distributed.plan import Shard
from ldmnet.distributed.system import SpreadSystem
from ldmnet.distributed.world import World
from ldmnet.graph.groups import Groups
from ldmnet.graph.points import largest
from ldmnet.pim.solve import Solution, Status
from ldmnet.pim.system import PointIntegralSystem
from ldmnet.strength import FAR, OUTLIER, Width
from ldmnet.updates import Update, logged

BITS = 8  # of a number that one round of the median settles


def spread_width(world: World, f: Tensor, groups: Groups, shards: Sequence[Shard], n: int, classes: int) -> Width:
    """What `ldmnet.strength.measured` measures, of the features (m_here, d_feat) that every process holds.

    Args:
        world: the processes.
        f: the features.
        groups: the classes that this process owns, whose rows come first.
        shards: its parts of others.
        n: how many rows all processes hold.
        classes: how many classes there are.
    """
    mean = (world.total(f.sum(0, dtype=torch.float64)) / n).to(f)
    distance = (f - mean).square_().sum(1)
    near = (distance <= FAR * median(world, distance, n)).to(f.dtype)
    sums = world.total(torch.cat([near @ f, near.sum()[None]]).double())
    centred = f - (sums[:-1] / sums[-1]).to(f)
    distance = centred.square().sum(1)
    clamped = distance.clamp(max=OUTLIER * median(world, distance, n))
    within = torch.zeros((), dtype=torch.float64)
    if classes > 1:
        owned = centred[: len(groups.order)]
        if len(owned):
            within += (owned - groups.means(owned)).square_().sum(dtype=torch.float64).cpu()
        for shard in shards:
            here = centred[shard.here]
            middle = (world.total(here.sum(0, dtype=torch.float64)) / shard.bounds[-1]).to(here)
            within += (here - middle).square_().sum(dtype=torch.float64).cpu()
    parts = [distance.sum(dtype=torch.float64).cpu(), clamped.sum(dtype=torch.float64).cpu(), within]
    whole, spread, inside = (world.total(torch.stack(parts)) / n).tolist()
    highest = float(world.most(torch.tensor(largest(centred), dtype=torch.float64)))
    return Width.of(whole, spread, inside if classes > 1 else None, highest, f.dtype)


def median(world: World, values: Tensor, n: int) -> float:
    """The lower median of the n values (m_here,), zero or above, that all processes have together, exactly.

    Such numbers are ordered as their bits are: a few bits at a time are settled by counting.
    """
    kind, width = (torch.int32, 32) if values.element_size() == 4 else (torch.int64, 64)
    code, rest, prefix = values.contiguous().view(kind), (n - 1) // 2, 0
    for shift in range(width - BITS, -1, -BITS):
        digit = (code >> shift) & (2**BITS - 1)
        counts = world.total(torch.bincount(digit.long(), minlength=2**BITS).cpu())
        below = counts.cumsum(0)
        chosen = int((below <= rest).sum())
        rest -= int(below[chosen] - counts[chosen])
        code = code[digit == chosen]
        prefix |= chosen << shift
    return float(torch.tensor(prefix, dtype=kind).view(values.dtype))


def describe_spread(
    world: World,
    f: Tensor,
    Z: Tensor,
    target: Tensor,
    n: int,
    solutions: Sequence[Solution],
    systems: Sequence[tuple[PointIntegralSystem, slice]],
    seconds: dict[str, float],
    recall: float,
) -> Update:
    """The log's entry: what `ldmnet.updates.describe` says, of the rows (m_here, d_feat) that every process holds.

    `solutions` and `systems`, with the rows that each is of, are this process's; there are none for the control.
    """
    before, after = logged(f), logged(target) - logged(Z)
    mean = (world.total(before.sum(0, dtype=torch.float64)) / n).to(before)
    now = then = 0.0
    for system, here in systems:
        energies = system.dirichlet_energies(after[here] - mean, before[here] - mean)  # L is blind to it
        if isinstance(system, SpreadSystem) and world.rank:  # of all processes: counted once
            continue
        now, then = now + energies[0], then + energies[1]
    squares = [(before - mean).square().sum(), (after - before).square().sum(), Z.square().sum()]
    sums = world.total(torch.tensor([*map(float, squares), now, then], dtype=torch.float64)).tolist()
    status = max((list(Status).index(s.status) for s in solutions), default=0)
    residual = max((float(s.residual.max()) for s in solutions if len(s.residual)), default=0.0)
    worst = [status, max((s.steps for s in solutions), default=0), residual, -recall]
    worst += [max((s.negative_curvature for s in solutions), default=0), *seconds.values()]
    status, steps, residual, lowest, bent, *slowest = world.most(torch.tensor(worst, dtype=torch.float64)).tolist()
    return Update(
        status=list(Status)[int(status)].name,
        solver_steps=int(steps),
        residual=residual,
        negative_curvature=int(bent),
        move=math.sqrt(sums[1]) / max(math.sqrt(sums[0]), 1e-30),
        dual=math.sqrt(sums[2]),
        energy=sums[3] / max(sums[4], torch.finfo(f.dtype).tiny) if sums[4] or sums[3] else 1.0,
        seconds=dict(zip(seconds, slowest, strict=True)),
        recall=-lowest,
    )
