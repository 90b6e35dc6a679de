"""The regulariser's settings: each option, its default, its range and its sentence, once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from ldmnet.errors import InputError, StateError
from ldmnet.graph.neighbors import SearchKind
from ldmnet.pim.system import Mass
from ldmnet.saved import check_mapping

STRENGTHS = (("strength", "coupling"), ("mu", "lambda_tilde"))  # without a unit, and the paper's


def with_python_numbers(settings: Any) -> None:
    """Turn NumPy's and torch's numbers in a frozen dataclass into Python's, which every file of ours can hold."""
    for name, value in vars(settings).items():
        if hasattr(value, "item"):
            object.__setattr__(settings, name, value.item())


def check_counts(settings: Any, *names: str) -> None:
    """Refuse numbers of things that are no whole numbers, or below one; None is none."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InputError(f"{name} must be a whole number, got {value!r}.")
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value}.")


@dataclass(frozen=True, kw_only=True)
class ManifoldSettings:
    """The options of `ManifoldRegularizer` and, by inheritance, of `Method`; all are given by name.

    Attributes:
        strength: weight of the pull, in units of the features' own variance; 0.3 unless given.
        coupling: mu / lambda_tilde, the pull over the graph; a smaller one smooths more, infinity switches the graph
            off; 0.2 unless given.
        mu: the paper's weight of the penalty, above zero, in place of `strength`. SGD is stable only while
            lr * mu * |h|^2 < 2 (1 + momentum), h the activations that feed the feature layer.
        lambda_tilde: the paper's strength of the manifold term, 2 lambda / t, in place of `coupling`. Zero switches
            the graph off: the target is then the features at the last update (the control experiment).
        n_neighbors: neighbours per point in the graph.
        sigma_neighbor: which neighbour's distance is the local scale of eq. (23).
        epochs_per_update: the paper's M, epochs of SGD between updates.
        max_steps: at most this many products in the solver.
        tol: relative residual at which a column counts as solved; unless given 1e-5 with the paper's `mu`, and
            1e-3 without it or where neighbours are found approximately.
        mass: "lumped" or "consistent" (eq. (19) as printed), see docs/deviations.md.
        input_scale: factor on the inputs in p = (x, f(x)); zero builds the graph on the features alone.
        features: "sweep" expects every step's features from a sweep. "running" remembers what `penalty` sees, so that
            every step but the first may be called without features: no sweep, but features that are up to an epoch
            old and from training mode. Unless given it is "sweep" in a loop of your own and with the paper's `mu`;
            elsewhere (`fit`, `LDMClassifier`, the commands) "running", which is as accurate and costs less.
        neighbors: "exact", or "auto": groups of 4,096 points or more are searched approximately, with lists kept from
            step to step and the recall on a sample in every `Update`.
    """

    strength: float | None = None
    coupling: float | None = None
    mu: float | None = None
    lambda_tilde: float | None = None
    n_neighbors: int = 20
    sigma_neighbor: int = 10
    epochs_per_update: int = 2
    max_steps: int = 50
    tol: float | None = None
    mass: Mass = "lumped"  # DEVIATION(1)
    input_scale: float = 1.0
    features: Literal["sweep", "running"] | None = None
    neighbors: SearchKind = "exact"

    def __post_init__(self) -> None:
        with_python_numbers(self)
        check_counts(self, "n_neighbors", "sigma_neighbor", "epochs_per_update", "max_steps")
        if self.sigma_neighbor > self.n_neighbors:
            raise InputError(
                f"sigma_neighbor is {self.sigma_neighbor} but n_neighbors is {self.n_neighbors}: the local scale is "
                "taken from the neighbours found. Lower sigma_neighbor."
            )
        self._check_strengths()
        if self.mass not in ("lumped", "consistent"):
            raise InputError(f"mass must be 'lumped' or 'consistent', got {self.mass!r}.")
        if not 0 <= self.input_scale < math.inf:
            raise InputError(f"input_scale must be zero or above and finite, got {self.input_scale}.")
        if self.tol is not None and not 0 < self.tol < 1:
            raise InputError(f"tol must be above zero and below one, got {self.tol}.")
        if self.features not in ("sweep", "running", None):
            raise InputError(f"features must be 'sweep' or 'running', got {self.features!r}.")

    def check_same(self, saved: Any) -> None:
        """Refuse, with a `StateError`, the settings of a state that was saved with others."""
        check_mapping("settings", saved)
        changed = [f"{k} {saved.get(k)} (now {v})" for k, v in asdict(self).items() if not _same(saved.get(k), v)]
        if changed:
            raise StateError(f"the state was saved with other settings: {', '.join(changed)}.")

    def _check_strengths(self) -> None:
        """Refuse numbers out of range, half a pair of the paper's, and numbers of both kinds together."""
        given = {name: getattr(self, name) for pair in STRENGTHS for name in pair if getattr(self, name) is not None}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name} must be a number, got {value!r}. Leave it out to have it chosen.")
            if name == "coupling" and not value > 0:
                raise InputError(f"coupling must be above zero, got {value}; infinity switches the graph off.")
            if name == "lambda_tilde" and not 0 <= value < math.inf:
                raise InputError(f"lambda_tilde must be zero or above and finite, got {value}.")
            if name in ("strength", "mu") and not 0 < value < math.inf:
                raise InputError(f"{name} must be above zero and finite, got {value}.")
        ours, paper = ([name for name in pair if name in given] for pair in STRENGTHS)
        if ours and paper:
            raise InputError(
                f"{ours[0]} has no unit and {paper[0]} is tied to the scale of the features: give strength and "
                "coupling, or mu and lambda_tilde, or none of them."
            )
        if len(paper) == 1:
            missing = "lambda_tilde" if paper[0] == "mu" else "mu"
            raise InputError(f"{paper[0]} was given without {missing}: they go together. Without both, none is needed.")

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> ManifoldSettings:
        """Settings from options by name; a name that is none of them is an error that offers the nearest."""
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"Did you mean {near[0]}?" if near else f"The options: {', '.join(names)}."
                raise InputError(f"there is no option {name!r}. {hint}")
        return cls(**options)


def _same(saved: Any, now: Any) -> bool:
    """Whether a saved setting is the one of now; what is no setting at all, as an array, is another."""
    return (saved is None or isinstance(saved, bool | int | float | str)) and bool(saved == now)
