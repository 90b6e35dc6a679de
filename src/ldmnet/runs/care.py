"""Equal care: every method gets the same number of trials, at the same points, chosen by one rule.

A trial has a learning rate, a weight decay and the method's own strength, and for LDMNet together with a rival the
strengths of both. The first trial is the default of each. The others are points of one sequence (Halton's), the same
for every method: what differs is the range that a point is mapped to. The best accuracy on validation data wins, the
earlier one among equals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ldmnet.runs.classical import CLASSICAL, classical
from ldmnet.training.methods import METHODS
from ldmnet.training.rivals import ENSEMBLE, KINDS, parse

LR = (0.1, 10.0)  # times the default
DECAY = (1e-5, 1e-1)  # torch's
LDMNET = (0.03, 3.0)  # strength
OWN = {"weight_decay": (1e-4, 1e-1), "dropout": (0.1, 0.8)}  # of these methods


@dataclass(frozen=True)
class Trial:
    """Numbers to try.

    Attributes:
        method: the name, with the rival's strength in it.
        lr: a factor on the default learning rate.
        decay: torch's weight decay; None takes the default.
        own: the strength of LDMNet or the control, the w of weight_decay or the rate of dropout; None takes the
            default.
    """

    method: str
    lr: float = 1.0
    decay: float | None = None
    own: float | None = None


def trials(method: str, n: int) -> list[Trial]:
    """The trials of a method: its default, and n - 1 points."""
    from scipy.stats.qmc import Halton

    if n < 1:
        return []
    points = Halton(4, scramble=False).random(n)[1:]  # its first point is a corner
    return [Trial(method), *(_at(method, [float(p) for p in point]) for point in points)]


def _at(method: str, point: Sequence[float]) -> Trial:
    if (row := classical(method)) is not None:
        word, _ = row
        return Trial(f"{word}:{_between(point[0], CLASSICAL[word].low, CLASSICAL[word].high):.4g}")
    base, rivals = parse(method, METHODS)
    parts = [] if base == "none" and rivals else [base]
    for i, word in enumerate(rivals):
        if word == ENSEMBLE:
            parts.append(f"{word}:{rivals[word]:g}")
            continue
        kind, p = KINDS[word], point[(3 + i) % 4]
        value = 1 - _between(1 - p, 1 - kind.high, 1 - kind.low) if word == "ema" else _between(p, kind.low, kind.high)
        parts.append(f"{word}:{value:.4g}")
    ends = LDMNET if base in ("ldmnet", "control") else OWN.get(base)
    return Trial(
        "+".join(parts),
        lr=_between(point[0], *LR),
        decay=_between(point[1], *DECAY),
        own=None if ends is None else _between(point[2], *ends),
    )


def _between(p: float, low: float, high: float) -> float:
    """A number between two, evenly by its logarithm."""
    return math.exp(math.log(low) + p * (math.log(high) - math.log(low)))


def choose(tried: Sequence[Trial], accuracy: Callable[[Trial], float | str]) -> tuple[Trial, dict[str, Any]]:
    """The best trial, and what a record says of the budget.

    Args:
        tried: the trials.
        accuracy: on validation data, in percent, or why there is none: "diverged", "stopped".
    """
    found = [accuracy(trial) for trial in tried]
    scores = [None if isinstance(score, str) else score for score in found]
    best = max(range(len(tried)), key=lambda i: (-math.inf if scores[i] is None else scores[i], -i))
    numbers = [
        {**asdict(trial), "val_accuracy": score, **({"ended": why} if isinstance(why, str) else {})}
        for trial, score, why in zip(tried, scores, found, strict=True)
    ]
    return tried[best], {"trials": len(tried), "chosen": best, "tried": numbers}
