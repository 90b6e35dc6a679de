"""What needs no tuning: a network for samples of any shape, its start and its learning rate, mu and lambda_tilde.

The rule for mu is `Method`'s "auto", a share of the largest that SGD can follow, with one difference: the limit is
taken on the heaviest batch of the first epoch. Tables have outliers, and it is the batch with the outlier that breaks.
Inputs are expected with mean 0 and deviation 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ldmnet.errors import InputError
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
from ldmnet.seeds import generator
from ldmnet.training.methods import AUTO_COUPLING, Method
from ldmnet.training.settings import OptimizerName, ScheduleName, TrainSettings
from ldmnet.training.stability import stable_mu

Strength = float | Literal["auto"]
SHARE = 1 / 15  # of the limit on the heaviest batch; 1/25 to 1/8 do alike, see docs/guide/sklearn.md
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

    def settings(
        self,
        *,
        epochs: int | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        optimizer: OptimizerName | None = None,
        schedule: ScheduleName | None = None,
        weight_decay: float | None = None,
        **more: Any,
    ) -> TrainSettings:
        """How the network trains, with what is given in place of its own numbers; `more` is of `TrainSettings`."""
        optimizer = optimizer or "sgd"
        own_lr = self.lr if optimizer == "sgd" else ADAM_LR
        return TrainSettings(
            epochs=self.epochs if epochs is None else epochs,
            lr=own_lr if lr is None else lr,
            batch_size=self.batch_size if batch_size is None else batch_size,
            optimizer=optimizer,
            schedule=schedule or self.schedule,
            weight_decay=self.weight_decay if weight_decay is None else weight_decay,
            **more,
        )


ADAM_LR = 0.001  # torch's own, for every network
# the residual network's weight decay: after 60 epochs on 50 images per class of CIFAR-10, without a regulariser, 47.9 %
# of 2,000 other training images are right; with 0.0005 it is 47.0 %
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


def untuned_mu(model: nn.Module, inputs: Tensor, settings: TrainSettings, *, layer: str = "features") -> float:
    """The weight of the penalty for a network that is not yet trained.

    Args:
        model: the network with its initial weights.
        inputs: the training set, (n, ...).
        settings: whose learning rate, momentum, batches and seed count.
        layer: the feature layer's name.
    """
    order = torch.randperm(len(inputs), generator=generator(settings.seed, "batches"))
    batches = torch.split(order, settings.batch_size)
    weight = inputs.flatten(1).square().sum(1).cpu()
    heaviest = inputs[max(batches, key=lambda batch: float(weight[batch].mean()))]
    limit = stable_mu(model, heaviest, layer, settings.lr, settings.momentum, settings.batch_size)
    return float(f"{SHARE * limit:.4g}")  # rounded, so that a run that goes on with other threads finds it again


def untuned_method(
    model: nn.Module,
    inputs: Tensor,
    settings: TrainSettings,
    *,
    name: str = "ldmnet",
    mu: Strength = "auto",
    lambda_tilde: Strength = "auto",
    layer: str = "features",
    n_neighbors: int = Method.n_neighbors,
) -> Method:
    """LDMNet or the control with the numbers that are given, and the rule's where it says "auto"."""
    for word, value in (("mu", mu), ("lambda_tilde", lambda_tilde)):
        if isinstance(value, str) and value != "auto":
            raise InputError(f"{word} must be a number or 'auto', got {value!r}.")
    weight = untuned_mu(model, inputs, settings, layer=layer) if mu == "auto" else mu
    strength = weight / AUTO_COUPLING if lambda_tilde == "auto" else lambda_tilde
    return Method(
        name,
        mu=weight,
        lambda_tilde=0.0 if name == "control" else strength,
        n_neighbors=n_neighbors,
        sigma_neighbor=min(n_neighbors, Method.sigma_neighbor),
    )
