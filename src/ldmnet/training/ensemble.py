"""An ensemble: several networks, trained one after the other, that answer with the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldmnet.seeds import derive_seed
from ldmnet.training.features import FeatureTap, Layer, evaluate
from ldmnet.training.history import Epoch
from ldmnet.training.loop import Fit, fit
from ldmnet.training.methods import Method
from ldmnet.training.progress import OnEpoch
from ldmnet.training.rivals import ENSEMBLE
from ldmnet.training.settings import TrainSettings


class Ensemble(nn.Module):
    """Networks that answer together; their features, side by side, are those of the layer `features`.

    Args:
        members: the networks.
        layer: the feature layer of each.
    """

    def __init__(self, members: list[nn.Module], layer: Layer = "features") -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.features = nn.Identity()
        self._layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """The logarithm of the mean probability of every class, (b, n_classes)."""
        found, features = [], []
        for member in self.members:
            with FeatureTap(member, self._layer) as tap:
                logits, f = tap(x)
            found.append(logits.log_softmax(1))
            features.append(f)
        self.features(torch.cat(features, 1))
        return torch.stack(found).logsumexp(0) - torch.log(torch.tensor(float(len(found))))


def network_of(method: Method, make: Callable[[int], nn.Module], seed: int, layer: Layer = "features") -> nn.Module:
    """The network that a method trains: one, or an ensemble of them with other initial weights.

    Args:
        method: the method.
        make: makes a network with the initial weights of a seed.
        seed: the run's; the first member has it.
        layer: the feature layer.
    """
    if ENSEMBLE not in method.rivals:
        return method.on(make(seed))
    return Ensemble([method.on(make(member_seed(seed, k))) for k in range(method.networks)], layer)


def feature_layer(model: nn.Module, layer: str) -> str:
    """The layer that gives a network's features: an ensemble's are its members' side by side."""
    return "features" if isinstance(model, Ensemble) else layer


def member_seed(seed: int, k: int) -> int:
    """The seed of a member of an ensemble; the first has the run's own."""
    return seed if k == 0 else derive_seed(seed, f"member {k}")


def fit_network(
    model: nn.Module,
    data: Any,
    *,
    method: Method,
    settings: TrainSettings,
    layer: Layer = "features",
    checkpoint: str | Path | None = None,
    on_epoch: OnEpoch | None = None,
    test: Any = None,
    **how: Any,
) -> Fit:
    """Train a network as `fit` does, or the members of an ensemble one after the other.

    Epochs of an ensemble are counted on from member to member; training that was cut resumes. Its history, training
    loss and regulariser are the last member's, its seconds are those of all.

    Args:
        model: what `network_of` made.
        data: the training set.
        method: the method, with the ensemble in it.
        settings: the numbers of training.
        layer: the feature layer.
        checkpoint: where to resume from; each member has a file beside it.
        on_epoch: called with every epoch.
        test: data to report on at the end.
        how: what `fit` takes besides.
    """
    if not isinstance(model, Ensemble):
        return fit(
            model, data, method=method, settings=settings, layer=layer, checkpoint=checkpoint, on_epoch=on_epoch,
            test=test, **how,
        )  # fmt: skip
    alone = replace(method, name=without_ensemble(method.name))
    results: list[Fit] = []
    places = [None if checkpoint is None else Path(f"{checkpoint}.{k}") for k in range(len(model.members))]
    for k, member in enumerate(model.members):
        found = fit(
            member, data, method=alone, settings=replace(settings, seed=member_seed(settings.seed, k)), layer=layer,
            checkpoint=places[k], on_epoch=None if on_epoch is None else _counted(on_epoch, k * settings.epochs), **how,
        )  # fmt: skip
        results.append(found)
    last = results[-1]
    phases = dict.fromkeys(phase for one in results for phase in one.seconds)
    seconds = {phase: sum(one.seconds.get(phase, 0.0) for one in results) for phase in phases}
    badly = next((one.ended_badly for one in results if one.ended_badly), "")
    result = replace(last, model=model, method=method, seconds=seconds, ended_badly=badly)
    if test is not None:
        result.test_loss, result.test_accuracy = evaluate(model, *test)
    for place in places:
        if place is not None:
            place.unlink(missing_ok=True)
    return result


def without_ensemble(name: str) -> str:
    """A method's name with the ensemble taken out."""
    parts = [part for part in name.split("+") if part.partition(":")[0] != ENSEMBLE]
    return "+".join(parts) or "none"


def _counted(on_epoch: OnEpoch, before: int) -> OnEpoch:
    def call(epoch: Epoch) -> None:
        on_epoch(replace(epoch, epoch=before + epoch.epoch))

    return call
