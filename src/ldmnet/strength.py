"""How strong the pull is at every update.

Unless the paper's `mu` and `lambda_tilde` are given, the strength has no unit. At every update the spread s2 of the
features is measured, the mean over samples of |f - mean f|^2, and

    mu = strength / s2,    lambda_tilde = mu / coupling,

so that the penalty is strength / 2 times |f - target|^2 over that variance, whatever the network, the optimizer, the
initialisation or the scale of the inputs. An untrained network's features say nothing yet, and a strong pull would
keep them from learning: the pull waits until the classes begin to come apart in them, then trebles from update to
update until it is whole, and falls back when the classes come together again, or features shrink or run away.
docs/defaults.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ldmnet.graph.groups import Groups
from ldmnet.graph.points import largest
from ldmnet.saved import check_mapping, check_number, refuse
from ldmnet.settings import ManifoldSettings

STRENGTH, COUPLING = 0.3, 0.2
OUTLIER = 9.0  # a sample counts with at most so many times the median of |f - mean f|^2
FAR = 81.0  # times that median: a sample beyond does not count in the mean of f
ALIKE = 1e-10  # of the whole variance: the rest, but for rounding, where more than half of the samples are alike
REACH = 4.0  # spreads: a sample farther from its target is pulled with a force that falls again
LEARNT = 0.85  # the share of s2 within classes over that of the untrained network: below, the pull begins
MOVED = 0.5  # of s2: without classes, the mean squared move since the last update above which it begins
STALLED, UNDONE = 0.02, 0.05  # by which that share is above its lowest, in features that shrink: no rise, and a fall
START, RISE, FALL = 0.001, 3.0, 0.25  # of the level: the first, and the factors on it
FORGET = 0.9  # of the widest spread, per update
SMALLER = 1.1  # the widest spread over this one: above, features that shrink may be losing their classes
SHRINKING = 2.0  # the same: above, the level does not rise
SHRUNK, COLLAPSED = 4.0, 16.0  # the same: above, it falls, while it is below one and once it is one
LONG = 15  # updates: a pull that has not begun by then is told
MOST = 0.8  # of all samples in one of several classes: above, the pull does not begin unless `strength` is given
RUNAWAY = 50.0  # |f - target|^2 over s2, mean over the batches of an update: above, the level falls


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
        within: the share of s2 within groups at the last update; zero where there is one group.
        untrained: the same of the untrained network.
        lowest: the lowest of all updates.
        level: the part of the strength that is in force, 0 to 1.
        braked: why the last update lowered the level, in words, or nothing.
        sizes: of the classes, once they are known.
    """

    def __init__(self, settings: ManifoldSettings) -> None:
        self.absolute = settings.mu is not None
        self.strength = float(STRENGTH if settings.strength is None else settings.strength)
        self.coupling = float(COUPLING if settings.coupling is None else settings.coupling)
        self.mu = self._lambda_tilde = 0.0
        if settings.mu is not None and settings.lambda_tilde is not None:
            self.mu, self._lambda_tilde = float(settings.mu), float(settings.lambda_tilde)
            self.coupling = self.mu / self._lambda_tilde if self._lambda_tilde else math.inf
        self.updates, self.level, self.spread, self.widest = 0, 0.0, 0.0, 0.0
        self.within, self.untrained, self.lowest = 0.0, 0.0, 1.0
        self.braked = ""
        self.sizes: Sequence[int] = ()
        self._chosen = settings.strength is not None
        self._seen: Tensor | None = None  # sums over the samples seen: |f - target|^2, their batches' spread, one

    @property
    def lambda_tilde(self) -> float:
        """Strength of the manifold term; zero where the graph is off."""
        return self._lambda_tilde if self.absolute else self.mu / self.coupling

    @property
    def current(self) -> float | None:
        """The strength in force; None for the paper's numbers."""
        return None if self.absolute else self.strength * self.level

    @property
    def waiting(self) -> str:
        """Why the pull has not begun, in words; nothing once it has."""
        if self.absolute or self.level > 0 or not self.updates:
            return ""
        if self.outweighed:
            return self.outweighed
        if self.lowest < LEARNT * self.untrained:
            return "the regulariser was not in force: penalty() must be called, and added to the loss, between updates."
        if self.untrained > 0:
            until = (
                f"the share of the features' variance within classes has fallen by {100 * (1 - LEARNT):.0f} %: it was "
                f"{self.untrained:.3g} at the first update and {self.lowest:.3g} at its lowest"
            )
        else:
            until = f"features move by more than {math.sqrt(MOVED):.1g} of their spread from one update to the next"
        return (
            f"the regulariser was not in force: in {self.updates} update{'s' * (self.updates > 1)} its pull waited "
            f"until {until}. So far this is training without a regulariser. Train longer, or with a higher learning "
            "rate. A network that knew its classes before the first update needs the regulariser's state from then, or "
            "mu and lambda_tilde."
        )

    @property
    def outweighed(self) -> str:
        """Why one class among several keeps the pull from beginning, in words, or nothing."""
        most, n = max(self.sizes, default=0), sum(self.sizes)
        if self._chosen or self.absolute or len(self.sizes) < 2 or most <= MOST * n:
            return ""
        return (
            f"the regulariser is not in force: one class has {most} of {n} samples. Beside so large a class, LDMNet "
            "found fewer of the others' new samples in trials than training without it. Give it a strength, say "
            f"strength={STRENGTH:g}, to have it all the same, and compare the two by balanced accuracy."
        )

    def told(self) -> dict[str, str]:
        """What there is to say after an update, by kind; mostly nothing."""
        return {"brake": self.braked, "waiting": self.waiting if self.outweighed or self.updates == LONG else ""}

    @property
    def smooths(self) -> bool:
        """Whether the graph takes part."""
        return self.coupling < math.inf and self.mu > 0

    def update(self, measure: Callable[[], Width]) -> float | None:
        """Set mu at an update, whose features `measure` looks at where their spread counts.

        Returns:
            The mean penalty since the last update, if there was any.
        """
        penalty = away = None
        *sums, count = [0.0] if self._seen is None else self._seen.tolist()
        if count:
            away, batch_spread = (total / count for total in sums)
            penalty = self.mu / 2 * away
            self.widest = max(FORGET * self.widest, batch_spread)
        self._seen = None
        self.updates += 1
        self.braked = ""
        if self.absolute:
            return penalty
        width, before = measure(), self.within
        spread, self.within, self.braked = width.spread, width.within, width.vanished
        self.untrained = self.within if self.updates == 1 else self.untrained
        self.lowest = min(self.lowest, self.within)
        if away is not None:
            lost = min(before, self.within) - self.lowest  # by two updates running: one alone may be noise
            self._adjust(away, spread, self.widest / max(batch_spread, 1e-300), lost)
        self.spread = spread
        unit = max(spread, self.widest) if self.level < 1 else spread
        self.mu = self.strength * self.level / unit if unit > 0 else 0.0
        return penalty

    def _adjust(self, away: float, spread: float, shrunk: float, lost: float) -> None:
        """Begin, raise or lower the level.

        Args:
            away: the mean of |f - target|^2 since the last update.
            spread: s2 at this one.
            shrunk: the widest spread over that of the batches since the last update.
            lost: how far the share within classes is above its lowest.
        """
        if self.level == 0:
            begins = self.within < LEARNT * self.untrained or (self.untrained == 0 and away > MOVED * self.spread)
            self.level = START if begins and not self.outweighed else 0.0
        elif away > RUNAWAY * max(self.spread, spread):
            far = math.sqrt(away / max(self.spread, spread, 1e-300))
            self._brake(f"the features were {far:.3g} times their spread away from their targets")
        elif shrunk > (SHRUNK if self.level < 1 else COLLAPSED):
            self._brake(f"the spread of the features fell to {1 / math.sqrt(shrunk):.2g} of what it was")
        elif shrunk > SMALLER and lost > UNDONE:
            self._brake(
                "the features shrank and the classes came together again: the share of the variance within them was "
                f"{self.lowest:.2g} and had risen to {self.within:.2g}"
            )
        elif shrunk <= (SMALLER if lost > STALLED else SHRINKING):
            self.level = min(1.0, RISE * self.level)

    def _brake(self, why: str) -> None:
        before, self.level = self.level, max(START, FALL * self.level)
        if before == 1.0:  # on the way up it finds its place without a word
            self.braked = (
                f"{why} before update {self.updates}: the regulariser's strength falls from {self.strength:g} to "
                f"{self.strength * self.level:g} and rises again while that does not recur. If it recurs (shown once; "
                "`strength` in the log of every update), lower the learning rate or the strength."
            )

    def penalty(self, features: Tensor, target: Tensor, size: int) -> Tensor:
        """The penalty of a batch.

        Args:
            features: (b, d_feat) of the samples that are pulled, with gradient.
            target: (b, d_feat) where to.
            size: how many samples the batch has, pulled or not.
        """
        features = features.to(target.dtype)
        if self.absolute:
            distance = F.mse_loss(features, target, reduction="sum")  # summed: |f - Z - alpha|^2
            self._see(distance, distance.detach(), len(features))
            return distance * _scalar(self.mu / (2 * size), distance.dtype, distance.device)  # eqs. (9), (10)
        distances = (features - target).square().sum(1)
        spread = features.detach().var(0, correction=0).sum()  # features may have grown since the update
        self._see(distances.sum(), spread, len(features))
        if self.mu == 0:
            return 0 * distances.sum()
        least = min(self.strength * self.level / self.mu, torch.finfo(spread.dtype).max)  # a state may hold any mu
        unit = torch.maximum(spread.clamp(min=least), distances.detach() / REACH**2)
        return (distances / unit).sum() * (self.strength * self.level / (2 * size))

    def pool(self, total: Callable[[Tensor], Tensor], *, keep: bool = True) -> None:
        """Make what this process saw since the last update what all processes saw.

        Args:
            total: adds up over the processes.
            keep: False in a process that leaves it to another one.
        """
        mine = torch.zeros(3) if self._seen is None else self._seen
        seen = total(mine.double().cpu())
        self._seen = seen if keep and seen[-1] else None

    def _see(self, distance: Tensor, spread: Tensor, count: int) -> None:
        """Remember the sum of |f - target|^2 over `count` samples, and their spread.

        One broken batch must not outweigh the others: one that is not finite counts for nothing, and a spread for no
        more than an outlier's.
        """
        if self.spread > 0:
            spread = spread.clamp(max=OUTLIER * self.spread)
        seen = torch.stack([distance.detach(), spread * count, torch.full_like(spread, count)])
        seen = seen.where(seen.isfinite().all(), 0.0)
        self._seen = seen if self._seen is None else self._seen.to(seen.device) + seen

    def state(self) -> dict[str, Any]:
        """What a later process needs to resume."""
        *seen, count = [0.0] if self._seen is None else self._seen.tolist()
        return {name: getattr(self, name) for name in _REMEMBERED} | {
            "seen": seen if count else None,
            "count": int(count),
        }

    def load(self, state: Mapping[str, Any], like: Tensor | None) -> None:
        """Take what `state` returned; `like` is on the device that the features are on."""
        for name in _REMEMBERED:
            setattr(self, name, type(getattr(self, name))(state[name]))
        seen = state["seen"]
        self._seen = None if seen is None or like is None else like.new_tensor([*seen, state["count"]])


@dataclass(frozen=True)
class Width:
    """How wide the features of an update are spread.

    Attributes:
        spread: s2, the mean of |f - mean f|^2, an outlier counting no more than `OUTLIER` medians.
        within: the share of the variance within groups; zero where there is one group.
        vanished: why the spread cannot be measured, in words, or nothing.
    """

    spread: float
    within: float
    vanished: str = ""

    @classmethod
    def of(cls, whole: float, spread: float, within: float | None, largest: float, dtype: torch.dtype) -> Width:
        """From means over the samples: of |f - mean f|^2, of the same without outliers, and within groups, if any.

        `largest` is the largest difference from the mean in any coordinate, `dtype` the features' type.
        """
        spread = spread if spread > ALIKE * whole else whole
        vanished = ""
        if whole < torch.finfo(dtype).tiny and largest > 0:
            vanished = (
                f"the features differ by {largest:.2g} at most: their squares vanish in {dtype}, "
                "so the pull cannot be measured. Scale the layer's output, or train in float64"
            )
        return cls(spread, 0.0 if within is None else within / max(whole, 1e-300), vanished)


def measured(f: Tensor, groups: Groups) -> Width:
    """The width of features (m, d_feat) sorted by group."""
    centred = _centred(f)
    distance = centred.square().sum(1)
    whole, spread = torch.stack([distance.mean(), distance.clamp(max=OUTLIER * distance.median()).mean()]).tolist()
    within = None
    if len(groups.sizes) > 1:
        within = float((centred - groups.means(centred)).square_().sum(1).mean())
    return Width.of(whole, spread, within, largest(centred), f.dtype)


@lru_cache(maxsize=16)
def _scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor, kept: to make one takes as long as a batch's distances."""
    with torch.inference_mode(False):  # or a penalty that is only looked at would spoil the next one's gradient
        return torch.tensor(value, dtype=dtype, device=device)


def _centred(f: Tensor) -> Tensor:
    """Features less their mean, without the samples that alone would move it by spreads."""
    distance = (f - f.mean(0)).square_().sum(1)
    near = (distance <= FAR * distance.median()).to(f.dtype)
    return f - near @ f / near.sum()


def check_pull(state: Any) -> None:
    """Refuse, with a `StateError`, what `Pull.state` cannot have returned."""
    check_mapping("pull", state, (*_REMEMBERED, "seen", "count"))
    for name in (*_REMEMBERED, "count"):
        check_number(
            name, state[name], 0, 1 if name in ("level", "lowest") else math.inf, whole=name in ("updates", "count")
        )
    seen = state["seen"]
    pair = isinstance(seen, list) and len(seen) == 2 and all(isinstance(value, float) for value in seen)
    if seen is not None and not (pair and state["count"]):
        raise refuse("seen", seen)


_REMEMBERED = ("mu", "updates", "level", "spread", "widest", "within", "untrained", "lowest")
