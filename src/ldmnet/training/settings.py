"""SGD's numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ldmnet.errors import InputError

Precision = Literal["float32", "bfloat16"]


def with_python_numbers(settings: Any) -> None:
    """Turn NumPy's and torch's numbers in a frozen dataclass into Python's, which every file of ours can hold."""
    for name, value in vars(settings).items():
        if hasattr(value, "item"):
            object.__setattr__(settings, name, value.item())


@dataclass(frozen=True)
class TrainSettings:
    """How SGD runs; the defaults are the paper's.

    Attributes:
        epochs: passes over the training set.
        lr: the learning rate r0 of the first stage.
        lr_drop_after: the share of the epochs after which it is divided by ten (the paper: 200 of 300).
        lr_decay: a factor on the learning rate every epoch (the paper's faces: 0.99).
        momentum: of SGD.
        batch_size: images a step.
        seed: of the batches and of DropOut.
        checkpoint_every: epochs between checkpoints, where a path for them is given.
        precision: "bfloat16" trains and sweeps under autocast (weights, penalty, graph, solve and evaluation stay
            float32): about twice as fast on processors that have such products.
    """

    epochs: int = 300
    lr: float = 0.001
    lr_drop_after: float = 2 / 3
    lr_decay: float = 1.0
    momentum: float = 0.9
    batch_size: int = 100
    seed: int = 0
    checkpoint_every: int = 10
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        with_python_numbers(self)
        for name in ("epochs", "batch_size", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.lr < math.inf:
            raise InputError(f"lr must be above zero and finite, got {self.lr}.")
        if self.precision not in get_args(Precision):
            raise InputError(f"precision must be float32 or bfloat16, got {self.precision!r}.")

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from zero."""
        dropped = 0.1 if epoch >= round(self.lr_drop_after * self.epochs) else 1.0
        return self.lr * self.lr_decay**epoch * dropped
