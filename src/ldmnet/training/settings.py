"""How training runs, in numbers and names that every file of ours can hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch

from ldmnet.errors import InputError
from ldmnet.settings import check_counts, with_python_numbers
from ldmnet.training.augment import augmentation_names

Precision = Literal["float32", "bfloat16"]
OptimizerName = Literal["sgd", "adam", "adamw"]
ScheduleName = Literal["step", "cosine", "constant"]


@dataclass(frozen=True)
class TrainSettings:
    """How training runs; the defaults are the paper's.

    Attributes:
        epochs: passes over the training set.
        lr: the learning rate r0 of the first stage.
        lr_drop_after: the share of the epochs after which the schedule "step" divides the rate by ten (the paper: 200
            of 300).
        lr_decay: a factor of the schedule "step" on the learning rate every epoch (the paper's faces: 0.99).
        momentum: of SGD.
        batch_size: images per step.
        seed: of the batches, of DropOut and of the augmentation.
        checkpoint_every: epochs between checkpoints, where a path for them is given.
        precision: "bfloat16" trains and sweeps under autocast (weights, penalty, graph, solve and evaluation stay
            float32): about twice as fast on processors that have such products, and three times slower on others.
        optimizer: "sgd", "adam" or "adamw", with torch's own numbers for what is not set here.
        weight_decay: torch's, for any method: added to the gradient, in "adamw" decoupled from it. The method's own w
            of eq. (24) is 2 w in these units and is added.
        schedule: of the learning rate, epoch by epoch: "step" (the paper's), "cosine" (down to zero at the end) or
            "constant".
        warmup: the share of the epochs in which the rate first rises to `lr`.
        clip_norm: the largest norm of the gradient of all weights together; None does not clip.
        augment: how images are changed every time they are trained on: "shift", "flip", both as "shift,flip", or "".
        patience: stop after so many epochs without a better validation accuracy (ties: a lower loss), and put the
            best epoch's weights back. None trains to the end and keeps the last weights.
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
    optimizer: OptimizerName = "sgd"
    weight_decay: float = 0.0
    schedule: ScheduleName = "step"
    warmup: float = 0.0
    clip_norm: float | None = None
    augment: str = ""
    patience: int | None = None

    def __post_init__(self) -> None:
        with_python_numbers(self)
        check_counts(self, "epochs", "batch_size", "checkpoint_every", "patience")
        for name in ("lr", "clip_norm"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be above zero and finite, got {getattr(self, name)}.")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be zero or above and finite, got {self.weight_decay}.")
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup must be a share of the epochs, at least 0 and below 1, got {self.warmup}.")
        for name, known in (("precision", Precision), ("optimizer", OptimizerName), ("schedule", ScheduleName)):
            *words, last = get_args(known)
            if getattr(self, name) not in (*words, last):
                raise InputError(f"{name} must be {', '.join(words)} or {last}, got {getattr(self, name)!r}.")
        augmentation_names(self.augment)

    def lr_at(self, epoch: int, lr: float | None = None) -> float:
        """The learning rate of an epoch, counted from zero, where it starts from `lr`: the settings' unless given."""
        lr = self.lr if lr is None else lr
        rising = round(self.warmup * self.epochs)
        if epoch < rising:
            return lr * (epoch + 1) / (rising + 1)
        if self.schedule == "constant":
            return lr
        if self.schedule == "cosine":
            return lr * (1 + math.cos(math.pi * (epoch - rising) / (self.epochs - rising))) / 2
        dropped = 0.1 if epoch >= round(self.lr_drop_after * self.epochs) else 1.0
        return lr * self.lr_decay**epoch * dropped


def slow_bfloat16() -> bool:
    """Whether this processor is known to lack bfloat16 products, so that float32 is several times faster."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older torch does not tell
    return known.get("architecture") == "x86_64" and not (known.get("avx512_bf16") or known.get("amx_bf16"))


def name_of(function: Callable[..., Any]) -> str:
    """How a function of the caller's is recorded: its name and, of a `functools.partial`, its numbers and words."""
    if isinstance(function, partial):
        plain = {k: v for k, v in sorted(function.keywords.items()) if isinstance(v, int | float | str | tuple | None)}
        return f"{name_of(function.func)}({', '.join(f'{k}={v!r}' for k, v in plain.items())})"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
