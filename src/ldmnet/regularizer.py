"""The regulariser: what Algorithm 1 does between epochs, and the penalty that SGD sees.

    regularizer = ManifoldRegularizer(inputs=x, groups=y, mu=0.01, lambda_tilde=0.05)
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
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ldmnet.errors import InputError, NumericalWarning, StateError
from ldmnet.fingerprints import fingerprint
from ldmnet.graph.groups import Groups, checked_groups
from ldmnet.graph.neighbors import NeighborSearch, SearchKind, checked_points
from ldmnet.graph.weights import Symmetrize, self_tuned_weights
from ldmnet.pim.grouped import solve_grouped
from ldmnet.pim.solve import Solution, Status
from ldmnet.pim.system import Mass, PointIntegralSystem
from ldmnet.updates import Update, describe

TOL, ROUGH_TOL = 1e-5, 1e-3  # of the solve, where neighbours are exact and where they are not
SETTINGS = (
    "mu",
    "lambda_tilde",
    "n_neighbors",
    "sigma_neighbor",
    "epochs_per_update",
    "max_steps",
    "tol",
    "mass",
    "input_scale",
    "symmetrize",
    "self_weight",
    "keep_dual",
    "features",
    "neighbors",
)


class ManifoldRegularizer:
    """Low-dimensional-manifold regularisation of a network's features.

    Args:
        inputs: the whole training set, (n, ...) floating point, in the order that `index` counts. The graph, the solve
            and the target are where they are; the network may be on another device.
        groups: (n,) class labels: neighbours are searched within a class. None searches among all.
        mu: weight of the penalty, above zero. SGD is stable only while lr * mu * |h|^2 < 2 (1 + momentum), h the
            activations that feed the feature layer.
        lambda_tilde: strength of the manifold term, the paper's lambda~ = 2 lambda / t. Zero switches the graph
            off: the target is then the features at the last update (the control experiment).
        n_neighbors: neighbours a point in the graph.
        sigma_neighbor: which neighbour's distance is the local scale of eq. (23).
        epochs_per_update: the paper's M, epochs of SGD between updates.
        max_steps: at most this many products in the solver.
        tol: relative residual at which a column counts as solved; unless given 1e-5, or 1e-3 where neighbours are
            found approximately.
        mass: "lumped" or "consistent" (eq. (19) as printed), see docs/deviations.md.
        input_scale: factor on the inputs in p = (x, f(x)); zero builds the graph on the features alone.
        symmetrize: how W is made symmetric, see `self_tuned_weights`.
        self_weight: W_ii, zero or above.
        keep_dual: False sets Z to zero at every step, which makes the update a plain alternation.
        features: "sweep" expects every step's features from a sweep. "running" remembers what `penalty` sees, so that
            every step but the first may be called without features: no sweep, but features that are up to an epoch
            old and from training mode.
        neighbors: "exact", or "auto": groups of 4,096 points or more are searched approximately, with lists kept from
            step to step and the recall on a sample in every `Update`.
        across: (n,) whole numbers, as the sensor that saw a sample: a point's neighbours are then sought among those of
            its group that another sensor saw. None seeks among all.

    Attributes:
        target: (n, d_feat) alpha + Z, what the penalty pulls the features toward.
        Z: (n, d_feat) the dual variable.
        log: one `Update` a step.
    """

    _STATE_KEYS = ("target", "Z", "running", "search", "steps", "data", "settings")

    def __init__(
        self,
        inputs: Tensor,
        groups: Tensor | None = None,
        *,
        mu: float,
        lambda_tilde: float,
        n_neighbors: int = 20,
        sigma_neighbor: int = 10,
        epochs_per_update: int = 2,
        max_steps: int = 50,
        tol: float | None = None,
        mass: Mass = "lumped",  # DEVIATION(1)
        input_scale: float = 1.0,
        symmetrize: Symmetrize = "max",
        self_weight: float = 1.0,
        keep_dual: bool = True,
        features: Literal["sweep", "running"] = "sweep",
        neighbors: SearchKind = "exact",
        across: Tensor | None = None,
    ) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        if inputs.ndim < 2:
            raise InputError(f"inputs must have shape (n, ...), got {tuple(inputs.shape)}.")
        self.inputs = checked_points(_at_least_single(inputs).flatten(1), "inputs")
        self.groups = checked_groups(groups, len(self.inputs), self.inputs.device)
        self.across = None if across is None else checked_groups(across, len(self.inputs), self.inputs.device, "across")
        for name, value, least in (
            ("n_neighbors", n_neighbors, 1),
            ("sigma_neighbor", sigma_neighbor, 1),
            ("epochs_per_update", epochs_per_update, 1),
            ("max_steps", max_steps, 1),
        ):
            if value < least:
                raise InputError(f"{name} must be at least {least}, got {value}.")
        if sigma_neighbor > n_neighbors:
            raise InputError(
                f"sigma_neighbor is {sigma_neighbor} but n_neighbors is {n_neighbors}: the local scale is taken "
                "from the neighbours found. Lower sigma_neighbor."
            )
        if not 0 < mu < float("inf"):
            raise InputError(f"mu must be above zero and finite, got {mu}.")
        if not 0 <= lambda_tilde < float("inf"):
            raise InputError(f"lambda_tilde must be zero or above and finite, got {lambda_tilde}.")
        if mass not in ("lumped", "consistent"):
            raise InputError(f"mass must be 'lumped' or 'consistent', got {mass!r}.")
        if not 0 <= input_scale < float("inf"):
            raise InputError(f"input_scale must be zero or above and finite, got {input_scale}.")
        if tol is not None and not 0 < tol < 1:
            raise InputError(f"tol must be above zero and below one, got {tol}.")
        if features not in ("sweep", "running"):
            raise InputError(f"features must be 'sweep' or 'running', got {features!r}.")
        self.mu = float(mu)
        self.lambda_tilde = float(lambda_tilde)
        self.n_neighbors = int(n_neighbors)
        self.sigma_neighbor = int(sigma_neighbor)
        self.epochs_per_update = int(epochs_per_update)
        self.max_steps = int(max_steps)
        self.mass: Mass = mass
        self.input_scale = float(input_scale)
        self.symmetrize: Symmetrize = symmetrize
        self.self_weight = float(self_weight)
        self.keep_dual = bool(keep_dual)
        self.features: Literal["sweep", "running"] = features
        self.neighbors: SearchKind = neighbors
        self.log: list[Update] = []
        self._groups = Groups(self.groups)
        scaled = self.inputs if input_scale in (0, 1) else checked_points(self.inputs * input_scale, "scaled inputs")
        self._search = NeighborSearch(
            self._groups, n_neighbors, scaled if input_scale else None, kind=neighbors, across=self.across
        )
        self.tol = float(tol) if tol is not None else ROUGH_TOL if self._search.approximates else TOL
        # each (n, d_feat), with the rows sorted by group, as the graph and the solve want them
        self._target: Tensor | None = None
        self._Z: Tensor | None = None
        self._running: Tensor | None = None  # what penalty saw last, NaN where it saw nothing
        self._warned: set[Status] = set()

    @property
    def coupling(self) -> float:
        """The paper's mu / lambda_tilde in eq. (19); infinite when the graph is off."""
        return self.mu / self.lambda_tilde if self.lambda_tilde else float("inf")

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

    def due(self, epoch: int) -> bool:
        """Whether `step` belongs before this epoch, counted from zero."""
        return epoch % self.epochs_per_update == 0

    @property
    def needs_sweep(self) -> bool:
        """Whether the next `step` must be given features."""
        return self._running is None or bool(self._running.isnan().any())

    @torch.no_grad()
    def step(self, features: Tensor | None = None) -> Update:
        """One outer iteration of Algorithm 1: dual step, graph, alpha.

        Args:
            features: (n, d_feat) features of the whole training set, in its order (see `ldmnet.sweep`); None takes
                what `penalty` saw since the last step, where the regulariser was made with features="running".

        Returns:
            The update's log entry, also appended to `log`.
        """
        started = time.perf_counter()
        f = self._seen() if features is None else self._groups.gather(self._checked_features(features))
        with torch.autocast(f.device.type, enabled=False):  # the solve needs the digits
            update = self._step(f)
        update.seconds["other"] = time.perf_counter() - started - sum(update.seconds.values())
        return update

    def _step(self, f: Tensor) -> Update:
        """One outer iteration from features (n, d_feat) sorted by group."""
        if self._target is None or not self.keep_dual:
            Z = torch.zeros_like(f)
        else:
            Z = self._target - f  # eq. (8): Z + alpha - f
        v = f - Z  # eq. (22)
        system, started = None, time.perf_counter()
        if self.lambda_tilde == 0:
            built = started
            solution = Solution(v, Status.CONVERGED, 0, f.new_zeros(1))  # L = 0: the control
            target = f.clone()  # alpha + Z = v + Z, without the rounding
        else:
            W = self_tuned_weights(  # Algorithm 1, step 1
                self._search(f),
                self.sigma_neighbor,
                symmetrize=self.symmetrize,
                self_weight=self.self_weight,
                cuts=self._groups.starts[1:],
            )
            system = PointIntegralSystem(W, self.coupling, self.mass)
            built = time.perf_counter()
            solution = solve_grouped(  # step 2
                system, v, self._groups, tol=self.tol, max_steps=self.max_steps, overwrite=True
            )
            target = solution.value.add_(Z)  # in place: no second array of this size
        solved = time.perf_counter()
        self._target, self._Z = target, Z
        if self.features == "running":
            self._running = torch.full_like(f, torch.nan)
        seconds = {"graph": built - started, "solve": solved - built}
        update = describe(f, Z, target, solution, system, seconds, self._search.recall, self._groups.starts)
        self.log.append(update)
        self._report(solution)
        return update

    def penalty(self, features: Tensor, index: Tensor) -> Tensor:
        """The mean over a batch of E_i, eq. (9): mu/2 |f(x_i) - Z_i - alpha_i|^2.

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
        try:
            rows = self._groups.rank.index_select(0, index.to(target.device, torch.int64))
        except (IndexError, RuntimeError) as error:
            raise _index_error(index, len(target)) from error
        if self._running is not None:
            self._running[rows] = features.detach().to(target)
        wanted = target.index_select(0, rows).to(features.device)
        distance = F.mse_loss(features.to(target.dtype), wanted, reduction="sum")  # summed: |f - Z - alpha|^2
        return distance * _scalar(self.mu / (2 * len(index)), distance.dtype, distance.device)  # eqs. (9), (10)

    def state_dict(self) -> dict[str, Any]:
        """Everything a later process needs to go on: target and Z, the clock, and what they belong to."""
        return {
            "target": None if self._target is None else self._groups.scatter(self._target),
            "Z": None if self._Z is None else self._groups.scatter(self._Z),
            "running": None if self._running is None else self._groups.scatter(self._running),
            "search": self._search.state(),
            "steps": [asdict(update) for update in self.log],
            "data": self._fingerprint(),
            "settings": self.settings(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state from `state_dict`, whole or not at all.

        Raises:
            StateError: a key is missing, or the state belongs to other inputs, groups or settings.
        """
        missing = [key for key in self._STATE_KEYS if key not in state]
        if missing:
            raise StateError(f"the state lacks {', '.join(missing)}. Pass what state_dict() returned, whole.")
        if state["data"] != self._fingerprint():
            raise StateError(
                "the state was saved for another data set (inputs or groups differ). Build the regularizer with "
                "the same inputs and groups, in the same order."
            )
        mine, theirs = self.settings(), state["settings"]
        changed = [f"{k} {theirs.get(k)} (now {v})" for k, v in mine.items() if theirs.get(k) != v]
        if changed:
            raise StateError(f"the state was saved with other settings: {', '.join(changed)}.")
        try:
            log = [Update(**entry) for entry in state["steps"]]
        except TypeError as error:
            raise StateError(f"the state's log cannot be read: {error}.") from error
        self._target, self._Z, self._running = (
            None if state[key] is None else self._groups.gather(state[key].to(self.inputs.device))
            for key in ("target", "Z", "running")
        )
        self._search.load(state["search"])
        self.log = log

    def settings(self) -> dict[str, Any]:
        """The numbers that define the method, by name."""
        return {name: getattr(self, name) for name in SETTINGS}

    def _seen(self) -> Tensor:
        """The features that `penalty` saw since the last step, if it saw them all."""
        if self._running is None:
            raise StateError("step() was called without features: pass them (see ldmnet.sweep) at the first step.")
        unseen = int(self._running.isnan().any(1).sum())
        if unseen:
            raise StateError(
                f"step() was called without features, but penalty() has not seen {unseen} of the {len(self.inputs)} "
                "samples since the last step. Pass the features, or run a whole epoch first."
            )
        return checked_points(self._running, "features")

    def _checked_features(self, features: Tensor) -> Tensor:
        f = checked_points(_at_least_single(features), "features")
        n = len(self.inputs)
        if len(f) != n:
            raise InputError(
                f"features has {len(f)} rows but the regularizer was built for {n} inputs. Pass the features of the "
                "whole training set, in its order (see ldmnet.sweep)."
            )
        if self._target is not None and f.shape[1] != self._target.shape[1]:
            raise InputError(
                f"features has {f.shape[1]} columns but the last step had {self._target.shape[1]}. "
                "Pass the same layer's features at every step."
            )
        return f.to(self.inputs.device)

    def _report(self, solution: Solution) -> None:
        """Warn once about each status that is not CONVERGED."""
        if solution.status is Status.CONVERGED or solution.status in self._warned:
            return
        self._warned.add(solution.status)
        counted = f" in {solution.negative_curvature} columns" if solution.negative_curvature else ""
        warnings.warn(
            f"the alpha update ended with {solution.status.name}{counted} (largest relative residual "
            f"{float(solution.residual.max()):.1e}); to mend it: {solution.status.value}. Shown once; every update is "
            "in the log.",
            NumericalWarning,
            stacklevel=3,
        )

    def _fingerprint(self) -> str:
        return fingerprint(self.inputs, self.groups, self.across)

    def _after_first_step(self, value: Tensor | None, name: str) -> Tensor:
        if value is None:
            raise StateError(f"{name} is not there yet: call step(features) once before the first epoch.")
        return value


@lru_cache(maxsize=16)
def _scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor, kept: to make one takes as long as a batch's distances."""
    with torch.inference_mode(False):  # or a penalty that is only looked at would spoil the next one's gradient
        return torch.tensor(value, dtype=dtype, device=device)


def _index_error(index: Tensor, n: int) -> InputError:
    low, high = int(index.min()), int(index.max())
    return InputError(f"index holds {low if low < 0 else high} but the training set has samples 0 to {n - 1}.")


def _at_least_single(values: Tensor) -> Tensor:
    """Half precision becomes float32: distances and the solve need the digits."""
    half = isinstance(values, Tensor) and values.dtype in (torch.float16, torch.bfloat16)
    return values.float() if half else values
