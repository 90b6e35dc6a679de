"""A mu and a lambda_tilde that need no tuning, for data of any kind.

The rule is `Method`'s "auto", a share of the largest mu that SGD can follow, with one difference: the limit is taken
on the heaviest batch of the first epoch. Tables have outliers, and it is the batch with the outlier that breaks.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ldmnet.errors import InputError
from ldmnet.seeds import generator
from ldmnet.training.loop import TrainSettings
from ldmnet.training.methods import AUTO_COUPLING, AUTO_SHARE, Method
from ldmnet.training.stability import stable_mu

Strength = float | Literal["auto"]


def untuned_mu(model: nn.Module, inputs: Tensor, settings: TrainSettings, *, layer: str = "features") -> float:
    """The weight of the penalty for a network that is not yet trained.

    Args:
        model: the network with its initial weights.
        inputs: the training set, (n, ...).
        settings: whose learning rate, momentum, batches and seed count.
        layer: the feature layer's name.
    """
    batches = torch.randperm(len(inputs), generator=generator(settings.seed, "batches")).split(settings.batch_size)
    weight = inputs.flatten(1).square().sum(1).cpu()
    heaviest = inputs[max(batches, key=lambda batch: float(weight[batch].mean()))]
    return AUTO_SHARE * stable_mu(model, heaviest, layer, settings.lr, settings.momentum, settings.batch_size)


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
