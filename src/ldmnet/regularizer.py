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

from ldmnet.errors import InputError, NumericalWarning, StateError
from ldmnet.fingerprints import fingerprint
from ldmnet.graph.groups import UNLABELLED, Groups, checked_groups
from ldmnet.graph.neighbors import NeighborSearch
from ldmnet.graph.points import at_least_single, checked_points, count_samples, flat_points
from ldmnet.iteration import iterate, tolerance
from ldmnet.pim.solve import Solution, Status
from ldmnet.saved import checked_rows, checked_target, entries_of
from ldmnet.seen import Seen
from ldmnet.settings import ManifoldSettings
from ldmnet.strength import LONG, Pull, check_pull
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
        options: `strength`, `coupling` and the other fields of `ManifoldSettings`, by name; they come before those of
            `settings`.

    Attributes:
        settings: the `ManifoldSettings`.
        target: (n, d_feat) alpha + Z, what the penalty pulls the features toward; NaN for samples labelled -1.
        Z: (n, d_feat) the dual variable, likewise.
        log: one `Update` per step.
    """

    def __init__(
        self,
        inputs: Tensor | None = None,
        groups: Any = None,
        *,
        settings: ManifoldSettings | None = None,
        **options: Any,
    ) -> None:
        self.settings = ManifoldSettings.named(options if settings is None else vars(settings) | options)
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
        # each (m, d_feat), with the rows sorted by group, as the graph and the solve want them
        self._target: Tensor | None = None
        self._Z: Tensor | None = None
        self._seen: Seen | None = None
        self._warned: set[str] = set()
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
        search = NeighborSearch(groups, self.settings.n_neighbors, inputs, kind=self.settings.neighbors)
        self._parts = groups, search

    @property
    def _groups(self) -> Groups:
        return self._after_first_step(self._parts, "the graph")[0]

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
        rough = self._parts is not None and self._parts[1].approximates
        return tolerance(self.settings, rough=rough)

    @property
    def target(self) -> Tensor:
        """(n, d_feat): alpha + Z."""
        return self._groups.scatter(self._after_first_step(self._target, "target"))

    @property
    def Z(self) -> Tensor:
        """(n, d_feat): the dual variable, zero until the second step."""
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
        return self._seen is None or not self._seen.complete

    def step(self, features: Tensor | None = None) -> Update:
        """One outer iteration of Algorithm 1: dual step, graph, alpha.

        Args:
            features: (n, d_feat) features of the whole training set, in its order (see `ldmnet.sweep`); None takes
                what `penalty` saw since the last step, where the regulariser was made with features="running".

        Returns:
            The update's log entry, also appended to `log`.
        """
        started = time.perf_counter()
        with torch.inference_mode(False), torch.no_grad():  # what is kept must serve training, wherever this is called
            f = self._remembered() if features is None else self._sorted(features)
            with torch.autocast(f.device.type, enabled=False):  # the solve needs the digits
                update = self._step(f)
        update.seconds["other"] = time.perf_counter() - started - sum(update.seconds.values())
        return update

    def _step(self, f: Tensor) -> Update:
        """One outer iteration from features (m, d_feat) sorted by group."""
        groups, search = self._after_first_step(self._parts, "the graph")
        done = iterate(f, self._target, groups, search, self._pull, self.settings)
        self._target, self._Z = done.target, done.Z
        self.log.append(done.update)
        seen, self._seen = self._seen, Seen.nothing(f, keep_features=self.settings.features == "running")
        self._report(done.solution, seen)
        return done.update

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
        if not isinstance(index, Tensor):
            index = torch.as_tensor(index)
        if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
            raise InputError(f"index must be whole numbers (b,), got {index.dtype} {tuple(index.shape)}.")
        if features.shape != (len(index), target.shape[1]):
            raise InputError(
                f"features has shape {tuple(features.shape)} but index names {len(index)} samples of "
                f"{target.shape[1]} features each: expected {(len(index), target.shape[1])}."
            )
        if len(index) == 0:
            return features.sum()
        rows = self._groups.rows(index)
        if len(self._groups.rank) > len(target):  # some samples are in no group
            grouped = rows >= 0
            rows, features = rows[grouped], features[grouped.to(features.device)]
            if len(rows) == 0:
                return features.sum()
        if self._seen is not None:
            self._seen.add(rows, features)
        wanted = target.index_select(0, rows).to(features.device)
        return self._pull.penalty(features, wanted, len(index))

    def state_dict(self) -> dict[str, Any]:
        """Everything a later process needs to resume: target and Z, the clock, and what they belong to."""
        running, visits = (None, None) if self._seen is None else (self._seen.features, self._seen.visits)
        kept = {"target": self._target, "Z": self._Z, "running": running}
        return {
            **{name: None if value is None else self._groups.scatter(value) for name, value in kept.items()},
            "visits": None if visits is None else self._groups.scatter(visits, 0),
            "pull": self._pull.state(),
            "search": {} if self._parts is None else self._parts[1].state(),
            "steps": [asdict(update) for update in self.log],
            "data": self._fingerprint(),
            "settings": asdict(self.settings),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state from `state_dict`, whole or not at all.

        Raises:
            StateError: a key is missing, a part is damaged, or the state belongs to other inputs, groups or settings.
        """
        target = checked_target(state)
        if state["data"] != self._fingerprint(None if target is None else len(target)):
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
        if self._parts is not None:
            self._target, self._Z, running, visits = taken
            self._seen = None if visits is None else Seen(visits, running)
            self._parts[1].load(state["search"])
        self._pull.load(state["pull"], self._target)
        self.log = log

    def _taken(self, state: Mapping[str, Any]) -> list[Tensor | None]:
        """A state's target, Z, running and visits in the order of the groups, checked, as is its search."""
        if self._parts is None or self.groups is None:
            return [None] * 4
        groups, search = self._parts
        search.check_state(state["search"])
        kept = checked_rows(state, self.groups != UNLABELLED)
        return [None if value is None else groups.gather(value.to(groups.order.device)) for value in kept]

    def _remembered(self) -> Tensor:
        """The features that `penalty` saw since the last step, if it saw them all."""
        if self._seen is None:
            raise StateError("step() was called without features: pass them (see ldmnet.sweep) at the first step.")
        return checked_points(self._seen.features_of_all(), "features")

    def _sorted(self, features: Tensor) -> Tensor:
        """The features of all samples, checked, sorted by group, on the device of the inputs, or on their own."""
        f = checked_points(at_least_single(features), "features")
        if self.groups is not None and len(f) != len(self.groups):
            raise InputError(
                f"features has {len(f)} rows but the regularizer was built for {len(self.groups)} samples. Pass the "
                "features of the whole training set, in its order (see ldmnet.sweep)."
            )
        if self._target is not None and f.shape[1] != self._target.shape[1]:
            raise InputError(
                f"features has {f.shape[1]} columns but the last step had {self._target.shape[1]}. "
                "Pass the same layer's features at every step."
            )
        if self._parts is None:
            self._settle(len(f), f.device)
        return self._groups.gather(f.to(self._groups.order.device))

    def _report(self, solution: Solution, seen: Seen | None) -> None:
        """Warn once about each status that is not CONVERGED, the brake, a pull that waits, and samples left out."""
        told = {"brake": self._pull.braked, "waiting": self.waiting if len(self.log) == LONG else ""}
        if solution.status is not Status.CONVERGED:
            told[solution.status.name] = f"the alpha update {solution.told()}. Shown once; every update is in the log."
        told["visits"] = "" if seen is None or "visits" in self._warned else seen.left_out()
        for kind, words in told.items():
            if words and kind not in self._warned:
                self._warned.add(kind)
                warnings.warn(words, UserWarning if kind == "waiting" else NumericalWarning, stacklevel=4)

    def _fingerprint(self, n: int | None = None) -> str | None:
        """Which data the state is of; n counts the samples where nothing else tells yet."""
        if self.groups is None and n is None:
            return None
        groups = torch.zeros(n or 0, dtype=torch.int64) if self.groups is None else self.groups
        return fingerprint(groups, self.inputs)

    def _after_first_step(self, value: T | None, name: str) -> T:
        if value is None:
            raise StateError(f"{name} is not there yet: call step(features) once before the first epoch.")
        return value
