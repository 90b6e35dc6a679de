"""The regulariser: what Algorithm 1 does between epochs, and the penalty that SGD sees.

    regularizer = ManifoldRegularizer(groups=y)
    for epoch in range(300):
        if regularizer.due(epoch):
            regularizer.step(sweep(model, x, layer="features"))
        for index, x_b, y_b in loader:
            f = model.features(x_b)
            loss = cross_entropy(model.head(f), y_b) + regularizer.penalty(f, index)

It is like an optimizer, not a module: its state is of the size of the training set and belongs beside the model's
checkpoint, not in it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from ldmnet.distributed.iteration import Part
from ldmnet.distributed.meeting import meet
from ldmnet.distributed.targets import Sharing
from ldmnet.distributed.travel import Share, in_order
from ldmnet.distributed.world import World, world_of
from ldmnet.errors import InputError, NumericalWarning, StateError
from ldmnet.fingerprints import samples_fingerprint
from ldmnet.graph.groups import UNLABELLED, Groups, checked_groups, checked_index
from ldmnet.graph.neighbors import NeighborSearch
from ldmnet.graph.points import at_least_single, checked_points, count_samples, flat_points
from ldmnet.iteration import Iteration, checked_features, iterate, tolerance
from ldmnet.pim.solve import Solution, Status
from ldmnet.saved import checked_rows, checked_target, entries_of
from ldmnet.seen import Seen, remembered
from ldmnet.settings import ManifoldSettings
from ldmnet.strength import Pull, check_pull
from ldmnet.updates import Update

T = TypeVar("T")


class ManifoldRegularizer:
    """Low-dimensional-manifold regularisation of a network's features. No number has to be given.

    Args:
        inputs: the whole training set, (n, ...) floating point, in the order that `index` counts. The graph, the solve
            and the target are where they are; the network may be on another device. None builds the graph on the
            features alone, on their device.
        groups: (n,) class labels, numbers or names: neighbours are searched within a class. Samples labelled -1 take
            no part and are not pulled. None searches among all.
        settings: the options together.
        process_group: the processes that train together, where torch.distributed is initialised; all unless given.
        sharing: how these share work and targets.
        options: `strength`, `coupling` and the other fields of `ManifoldSettings`, by name; they come before those of
            `settings`.

    Attributes:
        settings: the `ManifoldSettings`.
        target: (n, d_feat) alpha + Z, what the penalty pulls the features toward; NaN for samples labelled -1.
        Z: (n, d_feat) the dual variable, likewise; several processes do not keep it.
        log: one `Update` per step.
        warned: the kinds of things that it has warned of, each once.
    """

    def __init__(
        self,
        inputs: Tensor | None = None,
        groups: Any = None,
        *,
        settings: ManifoldSettings | None = None,
        process_group: ProcessGroup | None = None,
        sharing: Sharing | None = None,
        **options: Any,
    ) -> None:
        self.settings = ManifoldSettings.named(options if settings is None else vars(settings) | options)
        self._sharing = sharing or Sharing()
        self._world = world_of(process_group, self._sharing.timeout)
        self._part: Part | None = None  # what this process does, where there are several
        self._met = self._failed = False  # whether the processes have compared their data; and lost each other
        self.inputs = None if inputs is None else flat_points(inputs)
        n = count_samples(inputs=inputs, groups=groups)
        device = torch.device("cpu") if self.inputs is None else self.inputs.device
        self.groups = None if n is None else checked_groups(groups, n, device)
        if self.groups is not None and bool((self.groups == UNLABELLED).all()):
            raise InputError("every sample of groups is labelled -1, unlabelled: there is nothing to build a graph on.")
        self.epochs_per_update = self.settings.epochs_per_update
        self.log: list[Update] = []
        self._pull = Pull(self.settings)
        self._parts: tuple[Groups, NeighborSearch] | None = None
        self._target: Tensor | None = None  # (m, d_feat), rows sorted by group, as the graph and the solve want them
        self._Z: Tensor | None = None  # likewise
        self._seen: Seen | None = None
        self.warned: set[str] = set()
        if self.inputs is not None:
            self._settle(len(self.inputs), self.inputs.device)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.given().items())
        n = "any number of" if self.groups is None else str(len(self.groups))
        on = "features" if self.inputs is None or not self.settings.input_scale else "inputs and features"
        state = f"{len(self.log)} updates" + (f", mu {self.mu:.3g}" if self.mu else "")
        return f"ManifoldRegularizer({given}) of {n} samples, graph on the {on}, {state}"

    def _settle(self, n: int, device: torch.device) -> None:
        """Sort the samples by group on the device where the work will be done."""
        self.groups = checked_groups(self.groups, n, device)
        groups = Groups(self.groups)
        scale, inputs = self.settings.input_scale, None
        if self.inputs is not None and scale:
            inputs = self.inputs if scale == 1 else checked_points(self.inputs * scale, "scaled inputs")
        k, kind = self.settings.n_neighbors, self.settings.neighbors
        if self._world is not None:
            self._part = Part.of(self._world, self._sharing, self.settings, groups, inputs)
        search = NeighborSearch(groups, k, inputs, kind=kind) if self._part is None else self._part.search
        self._parts, self._pull.sizes = (groups, search), groups.sizes

    @property
    def _groups(self) -> Groups:
        return self._after_first_step(self._parts, "the graph")[0]

    @property
    def _shape(self) -> tuple[int | None, int | None]:
        return None if self.groups is None else len(self.groups), None if self._target is None else len(self._target.T)

    @property
    def mu(self) -> float:
        """The weight of the penalty since the last step; zero before the first, unless it was given."""
        return self._pull.mu

    @property
    def lambda_tilde(self) -> float:
        """The strength of the manifold term since the last step; zero where the graph is off."""
        return self._pull.lambda_tilde

    @property
    def coupling(self) -> float:
        """The paper's mu / lambda_tilde in eq. (19); infinite when the graph is off."""
        return self._pull.coupling

    @property
    def tol(self) -> float:
        """The relative residual at which a column counts as solved."""
        alone = self._parts is not None and self._parts[1].approximates
        return tolerance(self.settings, rough=alone if self._part is None else self._part.rough)

    @property
    def target(self) -> Tensor:
        """(n, d_feat): alpha + Z."""
        return at_least_single(self._groups.scatter(self._after_first_step(self._target, "target")))

    @property
    def Z(self) -> Tensor:
        """(n, d_feat): the dual variable, zero until the second step."""
        if self._world is not None:
            raise StateError("several processes keep no Z and no alpha, only their sum, the target.")
        return self._groups.scatter(self._after_first_step(self._Z, "Z"))

    @property
    def alpha(self) -> Tensor:
        """(n, d_feat): the solution of eq. (19), the perturbed coordinate functions at the points."""
        return self.target - self.Z

    @property
    def waiting(self) -> str:
        """Why the pull has not begun, in words; nothing once it has."""
        return self._pull.waiting

    def due(self, epoch: int) -> bool:
        """Whether `step` belongs before this epoch, counted from zero."""
        return epoch % self.epochs_per_update == 0

    @property
    def needs_sweep(self) -> bool:
        """Whether the next `step` must be given features."""
        return self._world is not None or self._seen is None or not self._seen.complete

    def step(self, features: Tensor | Share | None = None, index: Any = None) -> Update:
        """One outer iteration of Algorithm 1: dual step, graph, alpha.

        Where several processes train together, all call it, and it is the only method in which they talk.

        Args:
            features: (n, d_feat) features of the whole training set, in its order (see `ldmnet.sweep`); None takes
                what `penalty` saw since the last step, where the regulariser was made with features="running". With
                an `index`, or as `sweep` gives them under a process group, the features that this process has.
            index: (b,) which samples they are. Of a sample that comes twice the first row counts.

        Returns:
            The update's log entry, also appended to `log`.
        """
        started = time.perf_counter()
        with torch.inference_mode(False), torch.no_grad():  # what is kept must serve training, wherever this is called
            update = self._step(features, index)
        update.seconds["other"] = max(0.0, time.perf_counter() - started - sum(update.seconds.values()))
        return update

    def _step(self, features: Tensor | Share | None, index: Any) -> Update:
        seen = self._seen
        if self._world is not None:
            done = self._together(self._world, features, index)
            self._seen = Seen.nothing(self._groups.order[:, None], keep_features=False)
        else:
            f = remembered(self._seen) if features is None else self._sorted(in_order(features, index, self.groups))
            groups, search = self._after_first_step(self._parts, "the graph")
            with torch.autocast(f.device.type, enabled=False):  # the solve needs the digits
                done = iterate(f, self._target, groups, search, self._pull, self.settings)
            self._target, self._Z = done.target, done.Z
            self._seen = Seen.nothing(f, keep_features=self.settings.features == "running")
        self.log.append(done.update)
        if self._world is None or self._world.rank == 0:  # all know the same: one tells it
            self._report(done.solution, seen)
        return done.update

    def _together(self, world: World, features: Tensor | Share | None, index: Any) -> Iteration:
        """One outer iteration by several processes; only its end is kept."""
        data = None if self._met else samples_fingerprint(self.groups, self.inputs)
        brought = meet(world, features, index, *self._shape, (len(self.log), self.settings, data))
        if self._part is None:
            self._settle(brought.n, brought.features.device)
        assert self._part is not None
        place, self._met, self._failed = self._groups.order.device, True, True
        with torch.autocast(place.type, enabled=False):
            rows, f = self._groups.rows(brought.index), brought.features.to(place)
            f = self._part.receive(rows, f, brought.most, once=brought.once)
            done = self._part.iterate(f, self._target, self._pull)
            if self._seen is not None:
                self._seen.visits = world.total(self._seen.visits)
            self._target = self._part.spread(done.target)
        self._failed = False
        return done

    def penalty(self, features: Tensor, index: Tensor) -> Tensor:
        """The mean over a batch of E_i, eq. (9): mu/2 |f(x_i) - Z_i - alpha_i|^2, zero for samples labelled -1.

        Without the paper's numbers, mu is that of the batch's spread where it is wider than at the update, and the pull
        on a sample farther than four spreads from its target falls again: an outlier, or a network that ran away.

        Args:
            features: (b, d_feat) the batch's features, with gradient.
            index: (b,) which training samples they are.

        Returns:
            A scalar to add to the loss. Its gradient at f(x_i) is eq. (11) over b.
        """
        target = self._after_first_step(self._target, "target")
        index = checked_index(index, features, target.shape[1])
        rows = self._groups.rows(index)
        if len(self._groups.rank) > len(target):  # some samples are in no group
            grouped = rows >= 0
            rows, features = rows[grouped], features[grouped.to(features.device)]
        if len(rows) == 0:
            return features.sum()
        if self._seen is not None:
            self._seen.add(rows, features)
        wanted = at_least_single(target.index_select(0, rows)).to(features.device)
        return self._pull.penalty(features, wanted, len(index))

    def pool(self) -> None:
        """Bring what `penalty` saw in all processes to the first, whose state then lacks nothing. All call it."""
        if self._world is not None:
            self._pull.pool(self._world.total, keep=self._world.rank == 0)

    def state_dict(self) -> dict[str, Any]:
        """Everything a later process needs to resume: target and Z, the clock, and what they belong to."""
        if self._failed:
            raise StateError("the last step() did not end: take the state that was saved before it.")
        seen = self._seen if self._world is None else None
        running, visits = (None, None) if seen is None else (seen.features, seen.visits)
        kept = {"target": self._target, "Z": self._Z, "running": running}
        none = {} if self._target is None or self._Z is not None else {"Z": self._target[:0].clone()}
        return {
            **{name: None if value is None else self._groups.scatter(value) for name, value in kept.items()},
            **none,  # several processes keep no Z
            "visits": None if visits is None else self._groups.scatter(visits, 0),
            "pull": self._pull.state(),
            "search": None if self._world is not None else {} if self._parts is None else self._parts[1].state(),
            "steps": [asdict(update) for update in self.log],
            "data": samples_fingerprint(self.groups, self.inputs),
            "settings": asdict(self.settings),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state from `state_dict`, whole or not at all.

        Raises:
            StateError: a key is missing, a part is damaged, or the state belongs to other inputs, groups or settings.
        """
        target = checked_target(state)
        if state["data"] != samples_fingerprint(self.groups, self.inputs, None if target is None else len(target)):
            raise StateError(
                "the state was saved for another data set (inputs or groups differ). Build the regularizer with "
                "the same inputs and groups, in the same order."
            )
        self.settings.check_same(state["settings"])
        check_pull(state["pull"])
        log = entries_of("steps", Update, state["steps"])
        before = self.groups, self._parts
        try:
            if self._parts is None and target is not None:
                self._settle(len(target), target.device)
            taken = self._taken(state)
        except StateError:
            self.groups, self._parts = before
            raise
        alone, first = self._world is None, self._world is None or self._world.rank == 0
        if self._parts is not None:
            self._target, self._Z, running, visits = taken
            self._seen = Seen(visits, running) if visits is not None and alone else None
            self._parts[1].load(state["search"] if alone else None)
        seen = {} if first else {"seen": None, "count": 0}  # one of several processes counts what all have seen
        self._pull.load({**state["pull"], **seen}, self._target)
        self.log, self._failed = log, False

    def _taken(self, state: Mapping[str, Any]) -> list[Tensor | None]:
        """A state's target, Z, running and visits in the order of the groups, checked, as is its search."""
        if self._parts is None or self.groups is None:
            return [None] * 4
        groups, search = self._parts
        search.check_state(state["search"] if self._world is None else None)
        kept, place = checked_rows(state, self.groups != UNLABELLED), groups.order.device
        return [None if value is None else at_least_single(groups.gather(value.to(place))) for value in kept]

    def _sorted(self, features: Tensor) -> Tensor:
        """The features of all samples, checked, sorted by group, on the device of the inputs, or on their own."""
        f = checked_features(features, *self._shape)
        if self._parts is None:
            self._settle(len(f), f.device)
        return self._groups.gather(f.to(self._groups.order.device))

    def _report(self, solution: Solution, seen: Seen | None) -> None:
        """Warn once about each status that is not CONVERGED, what the pull tells, and samples left out."""
        told = self._pull.told()
        if solution.status is not Status.CONVERGED:
            told[solution.status.name] = f"the alpha update {solution.told()}. Shown once; every update is in the log."
        told["visits"] = "" if seen is None else seen.left_out(padded=self._world is not None)
        for kind, words in told.items():
            if words and kind not in self.warned:
                self.warned.add(kind)
                warnings.warn(words, UserWarning if kind == "waiting" else NumericalWarning, stacklevel=4)

    def _after_first_step(self, value: T | None, name: str) -> T:
        if value is None:
            raise StateError(f"{name} is not there yet: call step(features) once before the first epoch.")
        return value
