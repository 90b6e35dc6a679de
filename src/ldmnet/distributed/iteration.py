"""One outer iteration of Algorithm 1 by several processes: features come to who holds their class, targets go to all.

A process builds the graph of the classes that it owns and solves for them as one process does; of a class that is
sharded it has some rows, and the processes work on it together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ldmnet.dimension import inverse_sums
from ldmnet.distributed.figures import describe_spread, spread_width
from ldmnet.distributed.plan import Plan, Shard
from ldmnet.distributed.ring import ring_search, spread_weights
from ldmnet.distributed.system import SpreadSystem
from ldmnet.distributed.targets import Sharing, Targets
from ldmnet.distributed.travel import to_all, to_holders
from ldmnet.distributed.world import World
from ldmnet.errors import InputError
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import AUTO_FROM, NeighborSearch
from ldmnet.graph.points import checked_points
from ldmnet.graph.weights import self_tuned_weights
from ldmnet.iteration import Iteration, tolerance
from ldmnet.pim.grouped import solve_grouped
from ldmnet.pim.solve import Solution, Status
from ldmnet.pim.system import PointIntegralSystem
from ldmnet.settings import ManifoldSettings
from ldmnet.strength import Pull


@dataclass(eq=False)
class Work:
    """What one outer iteration works on, and what this process has found so far.

    Attributes:
        f: (m_here, d_feat) the features of the rows that it holds.
        v: v of eq. (22), which becomes alpha in place: no further array of this size.
        coupling: mu / lambda_tilde.
        solutions: one per solve.
        systems: each with the rows that it is of.
        seconds: by phase.
    """

    f: Tensor
    v: Tensor
    coupling: float
    solutions: list[Solution] = field(default_factory=list)
    systems: list[tuple[PointIntegralSystem, slice]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"graph": 0.0, "solve": 0.0})

    def add(self, system: PointIntegralSystem, here: slice, solution: Solution, started: float, built: float) -> None:
        """Note a solve, and when its graph was begun and done."""
        self.solutions.append(solution)
        self.systems.append((system, here))
        self.seconds["graph"] += built - started
        self.seconds["solve"] += time.perf_counter() - built


@dataclass(eq=False)
class Part:
    """What this process does in every outer iteration.

    Attributes:
        world: the processes.
        sharing: how the targets are kept.
        settings: the regulariser's options.
        everyone: the partition of all samples.
        plan: who holds which rows.
        groups: the partition of the rows of the classes that this process owns.
        search: finds the neighbours in these.
        shards: its parts of sharded classes.
        inputs: by shard, the inputs of its rows, where the graph is on inputs, too.
        targets: where the targets are kept, once there are some.
    """

    world: World
    sharing: Sharing
    settings: ManifoldSettings
    everyone: Groups
    plan: Plan
    groups: Groups
    search: NeighborSearch
    shards: list[Shard]
    inputs: list[Tensor | None]
    targets: Targets | None = None

    @classmethod
    def of(
        cls, world: World, sharing: Sharing, settings: ManifoldSettings, everyone: Groups, inputs: Tensor | None
    ) -> Part:
        """The part of this process, from the partition of all samples and their inputs, if these count."""
        plan = Plan(everyone, world.size, world.rank, sharing.shard_from)
        groups, shards, samples = plan.groups(), plan.shards(), everyone.order[plan.mine]
        owned = None if inputs is None else inputs[samples[: plan.n_owned]]
        search = NeighborSearch(groups, settings.n_neighbors, owned, kind=settings.neighbors)
        fixed = [None if inputs is None else inputs[samples[shard.here]] for shard in shards]
        return cls(world, sharing, settings, everyone, plan, groups, search, shards, fixed)

    def receive(self, rows: Tensor, features: Tensor, most: int, *, once: bool) -> Tensor:
        """The features of the rows that this process holds; the arguments are those of `to_holders`."""
        self.world.doing = "features travelled"
        return to_holders(self.world, self.plan, rows, features, most, once=once)

    def iterate(self, f: Tensor, before: Tensor | None, pull: Pull) -> Iteration:
        """Dual step, graph and alpha of the rows that this process holds.

        Args:
            f: (m_here, d_feat) their features.
            before: (m, d_feat) the last target of all samples, sorted by group; None before the first update.
            pull: mu and lambda_tilde, which are updated.

        Returns:
            The iteration, with this process's rows of the target.
        """
        world, n = self.world, len(self.everyone.order)
        world.doing = "the strength was set"
        pull.pool(world.total)
        pulled, classes = pull.mu > 0, len(self.everyone.sizes)
        penalty = pull.update(lambda: spread_width(world, f, self.groups, self.shards, n, classes))
        Z = torch.zeros_like(f)
        if before is not None and pulled:
            Z = before[self.plan.mine].to(f) - f  # eq. (8): Z + alpha - f
        work, dimension = Work(f, f - Z, pull.coupling), None
        target = work.v if pull.smooths else f.clone()
        if pull.smooths:
            error, inverses = None, torch.zeros(2, dtype=torch.float64)
            try:
                inverses += self._owned(work)
            except (InputError, MemoryError, RuntimeError) as fault:  # the others must hear of it, not wait
                error = fault
            world.doing = "the others solved for their classes"
            world.agree(error, " The update failed there.")
            for shard, fixed in zip(self.shards, self.inputs, strict=True):
                sums = self._sharded(work, shard, fixed)
                inverses += sums if world.rank == 0 else 0
            target += Z
            top, count = world.total(inverses).tolist()
            dimension = top / count if count else None
        world.doing = "the update was logged"
        found = (work.solutions, work.systems, work.seconds, self.search.recall)
        update = describe_spread(world, f, Z, target, n, *found)
        update = replace(update, mu=pull.mu, lambda_tilde=pull.lambda_tilde, strength=pull.current)
        update = replace(update, penalty=penalty, dimension=dimension)
        residual, bent = f.new_tensor([update.residual]), update.negative_curvature
        solution = Solution(target, Status[update.status], update.solver_steps, residual, bent)
        return Iteration(target, None, solution, update)

    def spread(self, target: Tensor) -> Tensor:
        """Give every process the targets of all samples, from the rows that each holds."""
        world, shape = self.world, (len(self.everyone.order), target.shape[1])
        world.doing = "targets travelled"
        if self.targets is None or self.targets.values.shape != shape:
            self.targets = Targets(world, self.sharing, shape, target)
        stored = target.to(self.targets.values.dtype)
        error = None
        if not bool(stored.isfinite().all()):
            error = InputError("targets do not fit half precision: use Sharing(precision='features').")
        world.agree(error)
        to_all(world, self.plan, stored, self.targets.writable(world), self.targets.readers)
        world.agree(None)  # a machine's file is whole before any of its processes reads it
        return self.targets.values

    @property
    def rough(self) -> bool:
        """Whether any class is searched approximately, by whichever process."""
        owned = [c for classes in self.plan.owned for c in classes]
        return self.settings.neighbors == "auto" and any(self.everyone.sizes[c] >= AUTO_FROM for c in owned)

    def _owned(self, work: Work) -> Tensor:
        """Alpha of the classes that this process owns; the sums behind the log's dimension."""
        here = slice(0, len(self.groups.order))
        if here.stop == 0:
            return torch.zeros(2, dtype=torch.float64)
        settings, started = self.settings, time.perf_counter()
        nearest = self.search(work.f[here])
        W = self_tuned_weights(nearest, settings.sigma_neighbor, cuts=self.groups.starts[1:])
        system = PointIntegralSystem(W, work.coupling, settings.mass)
        built = time.perf_counter()
        tol = tolerance(settings, rough=self.rough)
        v, steps = work.v[here], settings.max_steps
        solution = solve_grouped(system, v, self.groups, tol=tol, max_steps=steps, overwrite=True)
        work.add(system, here, solution, started, built)
        return _dimension(*inverse_sums(nearest.distance, self.groups.sizes))

    def _sharded(self, work: Work, shard: Shard, fixed: Tensor | None) -> Tensor:
        """Alpha of this process's rows of a sharded class; the sums behind the log's dimension."""
        world, settings, here, started = self.world, self.settings, shard.here, time.perf_counter()
        n, points = shard.bounds[-1], work.f[here]
        world.doing = "the graph of a sharded class was made"
        if fixed is not None:
            mean = world.total(fixed.sum(0, dtype=torch.float64)) / n
            points = torch.cat([checked_points((fixed - mean.to(fixed)).to(points), "inputs"), points], 1)
        nearest = ring_search(world, shard.bounds, points, settings.n_neighbors)
        W = spread_weights(world, shard.bounds, nearest, settings.sigma_neighbor)
        system = SpreadSystem(W, work.coupling, settings.mass, world, n)
        built = time.perf_counter()
        world.doing = "a sharded class was solved for"
        solution = system.solve(work.v[here], tolerance(settings, rough=self.rough), settings.max_steps)
        work.v[here] = solution.value
        work.add(system, here, solution, started, built)
        sums = inverse_sums(nearest.distance, [len(nearest.distance)])
        return _dimension(*world.total(torch.stack(sums)))


def _dimension(n: Tensor, sums: Tensor) -> Tensor:
    """The two sums whose ratio is the mean dimension within groups, see `ldmnet.dimension.live`."""
    there = sums > 0
    return torch.stack([(n.square() / sums)[there].sum(), n[there].sum()]).cpu()
