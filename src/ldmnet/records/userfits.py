"""One fit on someone's own data: the networks by name, a run's settings, and what they make of some samples."""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ldmnet.data.userdata import Samples, Standardize, read_samples, share_split
from ldmnet.errors import InputError, LDMNetError
from ldmnet.fingerprints import fingerprint
from ldmnet.integrations.untuned import OWN, STARTS, net_for, untuned_net
from ldmnet.networks import SMALLEST_SIDE
from ldmnet.records.snapshots import Trace, choose_points
from ldmnet.seeds import derive_seed
from ldmnet.training.loop import Fit, fit
from ldmnet.training.methods import Method
from ldmnet.training.progress import OnEpoch
from ldmnet.training.settings import OptimizerName, ScheduleName, TrainSettings


@dataclass(frozen=True)
class UserSettings:
    """Everything but the data that decides the result of a run on someone's own data.

    Attributes:
        net: "residual", "mlp", "mnist", "cifar", or "package.module:factory", a function of the number of inputs and
            classes.
        method: the regularisation.
        epochs: passes over the training set; None takes the network's own.
        lr: the learning rate; None takes the network's own.
        batch_size: samples per step; None takes the network's own.
        strength: weight of LDMNet's pull, without a unit; None takes the default.
        coupling: the pull over the graph; None takes the default.
        mu: the paper's weight of the penalty, in place of `strength`.
        lambda_tilde: the paper's strength of the manifold term, in place of `coupling`.
        weight_decay: w of eq. (24), for the method weight_decay.
        dropout: the rate, for the method dropout.
        layer: the name of the feature layer.
        test_share: the share of every class that is held out to test on; zero trains on all.
        seed: of the split, the initial weights and the batches, each derived apart.
        optimizer: "sgd", "adam" or "adamw"; None is SGD.
        schedule: of the learning rate: "step", "cosine" or "constant"; None takes the network's own.
        clip_norm: the largest norm of the gradient; None does not clip.
        augment: "shift", "flip", both with a comma, or "".
        patience: stop after so many epochs without a better validation accuracy; None trains to the end.
        validation_share: the share of every class of the training part that is held out for that.
        device: where to train; None is the CPU.
    """

    net: str = "mlp"
    method: str = "ldmnet"
    epochs: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    strength: float | None = None
    coupling: float | None = None
    mu: float | None = None
    lambda_tilde: float | None = None
    weight_decay: float = 0.005
    dropout: float = 0.5
    layer: str = "features"
    test_share: float = 0.0
    seed: int = 0
    optimizer: OptimizerName | None = None
    schedule: ScheduleName | None = None
    clip_norm: float | None = None
    augment: str = ""
    patience: int | None = None
    validation_share: float = 0.1
    device: str | None = None

    def training(self) -> TrainSettings:
        """How training runs, in numbers."""
        return STARTS.get(self.net, OWN).settings(
            epochs=self.epochs,
            lr=self.lr,
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            augment=self.augment,
            patience=self.patience,
            seed=self.seed,
        )

    def resolved(self) -> UserSettings:
        """These settings with numbers in place of the network's own."""
        own = self.training()
        return replace(
            self,
            epochs=own.epochs,
            lr=own.lr,
            batch_size=own.batch_size,
            optimizer=own.optimizer,
            schedule=own.schedule,
        )

    def recorded(self) -> dict[str, Any]:
        """What names a run; what earlier versions could not say is left out where it is what they did."""
        return {k: v for k, v in asdict(self.resolved()).items() if k not in ONCE_FIXED or v != ONCE_FIXED[k]}


ONCE_FIXED = {
    "strength": None,
    "coupling": None,
    "optimizer": "sgd",
    "schedule": "step",
    "clip_norm": None,
    "augment": "",
    "patience": None,
    "validation_share": UserSettings.validation_share,
    "device": None,
}


@dataclass(frozen=True)
class Reading:
    """How the data was read, so that it is read alike again."""

    label: str | None = None
    size: int | None = None
    grey: bool = False


def read_for_net(path: Path, net: str, reading: Reading) -> tuple[Samples, str, Reading]:
    """Read data for a network, or find the network for the data if it is "auto".

    Images of a folder are resized for the networks that have a size: mnist takes grey images, cifar colour. For the
    residual network they are brought to 32 x 32 unless `size` says otherwise, grey if all of them are.
    """
    if path.is_dir():
        if net == "auto":
            net = "mlp" if reading.size is not None and reading.size < SMALLEST_SIDE else "residual"
        if net == "residual":
            reading = replace(reading, size=reading.size or 32)
            if not reading.grey:
                seen = read_samples(path, **asdict(reading))
                if not bool((seen.x == seen.x[:, :1]).all()):
                    return seen, net, reading
                reading = replace(reading, grey=True)
        elif net in STARTS and (fixed := STARTS[net].shape) is not None:
            if reading.size not in (None, fixed[-1]) or (reading.grey and fixed[0] != 1):
                kind = "grey" if fixed[0] == 1 else "colour"
                raise InputError(
                    f"the network {net} takes {kind} images of {fixed[-1]} x {fixed[-1]} pixels, whatever --size and "
                    "--grey say. Leave them out, or choose --net residual, mlp or a network of your own."
                )
            reading = replace(reading, size=fixed[-1], grey=fixed[0] == 1)
    samples = read_samples(path, **asdict(reading))
    shape = tuple(samples.x.shape[1:])
    if net == "auto":
        net = net_for(shape)
    elif net in STARTS and STARTS[net].shape not in (None, shape):
        raise InputError(
            f"the network {net} takes samples of shape {STARTS[net].shape}, but those of {path} have {shape}. "
            "Choose --net mlp, or a network of your own."
        )
    return samples, net, reading


def build_net(settings: UserSettings, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The settings' network with its initial weights."""
    if settings.net in STARTS:
        return untuned_net(settings.net, shape, n_classes, settings.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "init"))
        try:
            model = _factory(settings.net)(math.prod(shape), n_classes)
        except LDMNetError:
            raise
        except Exception as error:  # the user's own code
            words = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise InputError(f"{settings.net}({math.prod(shape)}, {n_classes}) ended with {words}.") from error
    if not isinstance(model, nn.Module):
        raise InputError(f"{settings.net} returned {type(model).__name__}, not a torch.nn.Module.")
    return model


def own_network(settings: UserSettings, samples: Samples) -> dict[str, str]:
    """What tells a network of someone's own from another under its name; empty for the built-in ones.

    Its modules, and the names, shapes and initial values of its weights at seed 0, so that runs at all seeds agree. The
    values count only if they come again: a network may draw them past torch's seed. An edit of `forward` alone that
    changes none of these is not seen.
    """
    if settings.net in STARTS:
        return {}
    built = [
        build_net(replace(settings, seed=0), tuple(samples.x.shape[1:]), len(samples.class_names)) for _ in range(2)
    ]
    first, again = (_net_hash(model, values=True) for model in built)
    return {"network": first if first == again else _net_hash(built[0], values=False)}


def _net_hash(model: nn.Module, *, values: bool) -> str:
    digest = hashlib.sha256()
    for name, module in model.named_modules():
        known = type(module).__module__.startswith("torch.nn.")  # others may show what changes from run to run
        digest.update(f"{name} {type(module).__name__} {module.extra_repr() if known else ''}\n".encode())
    for name, value in model.state_dict().items():
        if isinstance(value, Tensor) and not is_lazy(value):
            shown = fingerprint(value) if values else tuple(value.shape)
            digest.update(f"{name} {value.dtype} {shown}\n".encode())
    return digest.hexdigest()


def _factory(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise InputError(
            f"there is no network {name!r}. Choose {', '.join(STARTS)}, or package.module:factory, a function of the "
            "number of inputs and the number of classes."
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the network {name} cannot be loaded: {error}.") from error


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fit on one split."""

    fit: Fit
    standardize: Standardize
    n_train: int
    n_test: int


def fit_split(
    samples: Samples,
    settings: UserSettings,
    *,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
    trace: Path | None = None,
) -> Outcome:
    """Split, standardise by the training part's statistics, and train; `trace` is a folder for what a report shows."""
    y = samples.labels
    train, test = torch.arange(len(y)), torch.empty(0, dtype=torch.int64)
    if settings.test_share:
        train, test = share_split(y, settings.test_share, settings.seed, samples.class_names)
    valid = train[:0]
    if settings.patience is not None:
        seed = derive_seed(settings.seed, "validation")
        kept, held = share_split(y[train], settings.validation_share, seed, samples.class_names)
        train, valid = train[kept], train[held]
    standardize = Standardize.fit(samples.x[train])
    x = standardize(samples.x[train])
    model = build_net(settings, tuple(samples.x.shape[1:]), len(samples.class_names))
    held_out = (standardize(samples.x[test]), y[test]) if len(test) else None
    method = method_for(settings)
    traced = None
    if trace is not None:
        seen = test if held_out is not None else train
        points = choose_points(
            *(held_out or (x, y[train])),
            raw=samples.x[seen],
            class_names=samples.class_names,
            names=[samples.names[i] for i in seen.tolist()],
            part="test" if held_out is not None else "training",
        )
        traced = Trace(trace, model, points, epochs=settings.training().epochs, layer=settings.layer, then=on_epoch)
    result = fit(
        model,
        (x, y[train]),
        method=method,
        settings=settings.training(),
        layer=settings.layer,
        validation=(standardize(samples.x[valid]), y[valid]) if len(valid) else None,
        test=held_out,
        device=settings.device,
        checkpoint=checkpoint,
        on_epoch=traced or on_epoch,
        progress=False,
    )
    if traced is not None:
        traced.finish(result)
    return Outcome(result, standardize, len(train), len(test))


def method_for(settings: UserSettings) -> Method:
    """The settings' method."""
    if settings.method == "weight_decay":
        return Method("weight_decay", weight_decay_w=settings.weight_decay)
    if settings.method == "dropout":
        return Method("dropout", dropout=settings.dropout)
    if settings.method == "none":
        return Method()
    if settings.method == "control":  # beside ldmnet in one command: it has the pull and no graph
        return Method("control", strength=settings.strength, mu=settings.mu)
    return Method(
        settings.method,
        strength=settings.strength,
        coupling=settings.coupling,
        mu=settings.mu,
        lambda_tilde=settings.lambda_tilde,
    )
