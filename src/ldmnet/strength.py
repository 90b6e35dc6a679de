"""The regulariser's numbers: each option once, and how strong the pull is at every update.

Unless the paper's `mu` and `lambda_tilde` are given, the strength has no unit. At every update the spread s2 of the
features is measured, the mean over samples of |f - mean f|^2, and

    mu = strength / s2,    lambda_tilde = mu / coupling,

so that the penalty is strength / 2 times |f - target|^2 over that variance, whatever the network, the optimizer, the
initialisation or the scale of the inputs. An untrained network's features say nothing yet, and a strong pull would
keep them from learning: the pull waits until the classes begin to come apart in them, then trebles from update to
update until it is whole, and falls back when features shrink or run away. docs/defaults.md has the measurements.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import SearchKind
from ldmnet.graph.weights import Symmetrize
from ldmnet.pim.system import Mass
from ldmnet.saved import check_mapping, check_number, refuse

STRENGTH, COUPLING = 0.3, 0.2
OUTLIER = 9.0  # a sample counts with at most so many times the median of |f - mean f|^2
FAR = 81.0  # times that median: a sample beyond does not count in the mean of f
ALIKE = 1e-10  # of the whole variance: the rest, but for rounding, where more than half of the samples are alike
REACH = 4.0  # spreads: a sample farther from its target is pulled with a force that falls again
LEARNT = 0.75  # the share of s2 within classes over that of the untrained network: below, the pull begins
MOVED = 0.5  # of s2: without classes, the mean squared move since the last update above which it begins
PATIENCE = 15  # updates after which it begins in any case
START, RISE, FALL = 0.001, 3.0, 0.25  # of the level: the first, and the factors on it
FORGET = 0.9  # of the widest spread, per update
SHRINKING = 2.0  # the widest spread over this one: above, the level does not rise
SHRUNK, COLLAPSED = 4.0, 16.0  # the same: above, it falls, while it is below one and once it is one
RUNAWAY = 50.0  # |f - target|^2 over s2, mean over the batches of an update: above, the level falls


@dataclass(frozen=True)
class ManifoldSettings:
    """What defines the method, beside the data.

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
    symmetrize: Symmetrize = "max"
    self_weight: float = 1.0
    keep_dual: bool = True
    features: Literal["sweep", "running"] = "sweep"
    neighbors: SearchKind = "exact"

    def __post_init__(self) -> None:
        for field in fields(self):  # plain numbers, which every file of ours can hold
            value = getattr(self, field.name)
            if hasattr(value, "item"):
                object.__setattr__(self, field.name, value.item())
        for name in ("n_neighbors", "sigma_neighbor", "epochs_per_update", "max_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.sigma_neighbor > self.n_neighbors:
            raise InputError(
                f"sigma_neighbor is {self.sigma_neighbor} but n_neighbors is {self.n_neighbors}: the local scale is "
                "taken from the neighbours found. Lower sigma_neighbor."
            )
        check_strengths(self.strength, self.coupling, self.mu, self.lambda_tilde)
        if self.mass not in ("lumped", "consistent"):
            raise InputError(f"mass must be 'lumped' or 'consistent', got {self.mass!r}.")
        if not 0 <= self.input_scale < math.inf:
            raise InputError(f"input_scale must be zero or above and finite, got {self.input_scale}.")
        if self.tol is not None and not 0 < self.tol < 1:
            raise InputError(f"tol must be above zero and below one, got {self.tol}.")
        if self.features not in ("sweep", "running"):
            raise InputError(f"features must be 'sweep' or 'running', got {self.features!r}.")

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


def check_strengths(
    strength: float | None, coupling: float | None, mu: float | None, lambda_tilde: float | None
) -> None:
    """Refuse numbers out of range, half a pair of the paper's, and numbers of both kinds together."""
    for name, value in (("strength", strength), ("mu", mu)):
        if value is not None and not (_number(name, value) and 0 < value < math.inf):
            raise InputError(f"{name} must be above zero and finite, got {value}.")
    if coupling is not None and not (_number("coupling", coupling) and coupling > 0):
        raise InputError(f"coupling must be above zero, got {coupling}; infinity switches the graph off.")
    if lambda_tilde is not None and not (_number("lambda_tilde", lambda_tilde) and 0 <= lambda_tilde < math.inf):
        raise InputError(f"lambda_tilde must be zero or above and finite, got {lambda_tilde}.")
    ours = [name for name, value in (("strength", strength), ("coupling", coupling)) if value is not None]
    paper = [name for name, value in (("mu", mu), ("lambda_tilde", lambda_tilde)) if value is not None]
    if ours and paper:
        raise InputError(
            f"{ours[0]} has no unit and {paper[0]} is tied to the scale of the features: give strength and coupling, "
            "or mu and lambda_tilde, or none of them."
        )
    if len(paper) == 1:
        missing = "lambda_tilde" if paper[0] == "mu" else "mu"
        raise InputError(f"{paper[0]} was given without {missing}: they go together. Without both, none is needed.")


def _number(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a number, got {value!r}. Leave it out to have it chosen.")
    return True


class Pull:
    """mu and lambda_tilde from update to update: the rule, its slow start and its brake.

    Args:
        settings: whose numbers count.

    Attributes:
        absolute: whether they are the paper's, which stay as they are.
        mu: the weight of the penalty.
        coupling: mu / lambda_tilde.
        spread: s2 at the last update.
        widest: the largest spread of the batches, slowly forgotten.
        within: the share of s2 within groups in the untrained network; zero where that tells nothing.
        level: the part of the strength that is in force, 0 to 1.
        braked: why the last update lowered the level, in words, or nothing.
    """

    def __init__(self, settings: ManifoldSettings) -> None:
        self.absolute = settings.mu is not None
        self.strength = float(STRENGTH if settings.strength is None else settings.strength)
        self.coupling = float(COUPLING if settings.coupling is None else settings.coupling)
        self.mu = self._lambda_tilde = 0.0
        if settings.mu is not None and settings.lambda_tilde is not None:
            self.mu, self._lambda_tilde = float(settings.mu), float(settings.lambda_tilde)
            self.coupling = self.mu / self._lambda_tilde if self._lambda_tilde else math.inf
        self.updates, self.level, self.spread, self.widest, self.within = 0, 0.0, 0.0, 0.0, 0.0
        self.braked = ""
        self._seen: Tensor | None = None  # sums over the samples seen: |f - target|^2, and their batches' spread
        self._count = 0

    @property
    def lambda_tilde(self) -> float:
        """Strength of the manifold term; zero where the graph is off."""
        return self._lambda_tilde if self.absolute else self.mu / self.coupling

    @property
    def current(self) -> float | None:
        """The strength in force; None for the paper's numbers."""
        return None if self.absolute else self.strength * self.level

    @property
    def smooths(self) -> bool:
        """Whether the graph takes part."""
        return self.coupling < math.inf and self.mu > 0

    def update(self, f: Tensor, groups: Groups) -> float | None:
        """Set mu from the features (m, d_feat) of an update, sorted by group.

        Returns:
            The mean penalty since the last update, if there was any.
        """
        penalty = away = None
        if self._seen is not None:
            away, batch_spread = (self._seen / self._count).tolist()
            penalty = self.mu / 2 * away
            self.widest = max(FORGET * self.widest, batch_spread)
        self._seen, self._count = None, 0
        self.updates += 1
        self.braked = ""
        if self.absolute:
            return penalty
        centred = _centred(f)
        distance = centred.square().sum(1)
        whole, spread = torch.stack([distance.mean(), distance.clamp(max=OUTLIER * distance.median()).mean()]).tolist()
        spread = spread if spread > ALIKE * whole else whole
        if away is not None:
            self._adjust(away, spread, self.widest / max(batch_spread, 1e-300))
        if self.level == 0 and len(groups.sizes) > 1:
            within = float((centred - groups.means(centred)).square_().sum(1).mean()) / max(whole, 1e-300)
            self.within = within if self.updates == 1 else self.within
            if within < LEARNT * self.within:
                self.level = START
        self.spread = spread
        unit = max(spread, self.widest) if self.level < 1 else spread
        self.mu = self.strength * self.level / unit if unit > 0 else 0.0
        return penalty

    def _adjust(self, away: float, spread: float, shrunk: float) -> None:
        """Begin, raise or lower the level.

        Args:
            away: the mean of |f - target|^2 since the last update.
            spread: s2 at this one.
            shrunk: the widest spread over that of the batches since the last update.
        """
        if self.level == 0:
            if (self.within == 0 and away > MOVED * self.spread) or self.updates > PATIENCE:
                self.level = START
        elif away > RUNAWAY * max(self.spread, spread):
            far = math.sqrt(away / max(self.spread, spread, 1e-300))
            self._brake(f"the features were {far:.3g} times their spread away from their targets")
        elif shrunk > (SHRUNK if self.level < 1 else COLLAPSED):
            self._brake(f"the spread of the features fell to {1 / math.sqrt(shrunk):.2g} of what it was")
        elif shrunk <= SHRINKING:
            self.level = min(1.0, RISE * self.level)

    def _brake(self, why: str) -> None:
        before, self.level = self.level, FALL * self.level
        if before == 1.0:  # on the way up it finds its place without a word
            self.braked = (
                f"{why} before update {self.updates}: the regulariser's strength falls from {self.strength:g} to "
                f"{self.strength * self.level:g} and rises again while that does not recur. If it recurs (shown once; "
                "`strength` in the log of every update), lower the learning rate or the strength."
            )

    def penalty(self, distance: Tensor, size: int, spread: Tensor) -> Tensor:
        """The penalty of a batch of `size` samples.

        Args:
            distance: |f - target|^2 of those that are pulled, with gradient.
            size: how many samples the batch has.
            spread: the mean of |f - mean f|^2 in the batch: features may have grown since the update.
        """
        if self.mu == 0:
            return 0 * distance.sum()
        unit = torch.maximum(spread.clamp(min=self.strength * self.level / self.mu), distance.detach() / REACH**2)
        return (distance / unit).sum() * (self.strength * self.level / (2 * size))

    def see(self, distance: Tensor, spread: Tensor, count: int) -> None:
        """Remember the sum of |f - target|^2 over `count` samples, and their spread."""
        seen = torch.stack([distance.detach(), spread * count])
        self._seen = seen if self._seen is None else self._seen.to(seen.device) + seen
        self._count += count

    def state(self) -> dict[str, Any]:
        """What a later process needs to resume."""
        seen = None if self._seen is None else self._seen.tolist()
        return {name: getattr(self, name) for name in _REMEMBERED} | {"seen": seen, "count": self._count}

    def load(self, state: Mapping[str, Any], like: Tensor | None) -> None:
        """Take what `state` returned; `like` is on the device that the features are on."""
        for name in _REMEMBERED:
            setattr(self, name, type(getattr(self, name))(state[name]))
        self._count = int(state["count"])
        self._seen = None if state["seen"] is None or like is None else like.new_tensor(state["seen"])


def _centred(f: Tensor) -> Tensor:
    """Features less their mean, without the samples that alone would move it by spreads."""
    distance = (f - f.mean(0)).square_().sum(1)
    near = (distance <= FAR * distance.median()).to(f.dtype)
    return f - near @ f / near.sum()


def check_pull(state: Any) -> None:
    """Refuse, with a `StateError`, what `Pull.state` cannot have returned."""
    check_mapping("pull", state, (*_REMEMBERED, "seen", "count"))
    for name in (*_REMEMBERED, "count"):
        check_number(name, state[name], 0, 1 if name == "level" else math.inf, whole=name in ("updates", "count"))
    seen = state["seen"]
    pair = isinstance(seen, list) and len(seen) == 2 and all(isinstance(value, float) for value in seen)
    if seen is not None and not (pair and state["count"]):
        raise refuse("seen", seen)


_REMEMBERED = ("mu", "updates", "level", "spread", "widest", "within")
