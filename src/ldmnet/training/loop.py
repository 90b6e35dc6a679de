"""Algorithm 1, on one screen: see `_train`. `fit` sets it up and ends it."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from ldmnet.errors import DivergenceError, InputError, NumericalWarning
from ldmnet.fingerprints import fingerprint
from ldmnet.networks import set_dropout
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.seeds import derive_seed, generator
from ldmnet.training.checkpoint import check_settings, read_checkpoint, save_checkpoint
from ldmnet.training.features import FeatureTap, Layer, evaluate, layer_names, named_layer, sweep
from ldmnet.training.history import Epoch
from ldmnet.training.methods import Method
from ldmnet.training.progress import EpochBar, OnEpoch
from ldmnet.training.stability import stable_mu

Data = tuple[Any, Any] | Dataset[tuple[Any, Any]]
Precision = Literal["float32", "bfloat16"]


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


@dataclass
class Fit:
    """What `fit` returns.

    Attributes:
        model: the trained network.
        method: the method, with numbers in place of "auto".
        history: one `Epoch` an epoch.
        regularizer: the regulariser with its log, where the method has one.
        train_loss: softmax loss on the training set after training, in eval mode.
        test_loss: softmax loss on the test data, where given.
        test_accuracy: accuracy on the test data, 0 to 1, where given.
        seconds: in this process, by phase: train, sweep, graph, solve, other (the rest of an update), test.
    """

    model: nn.Module
    method: Method
    history: list[Epoch]
    regularizer: ManifoldRegularizer | None
    train_loss: float
    test_loss: float | None = None
    test_accuracy: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def fit(
    model: nn.Module,
    data: Data,
    *,
    method: Method | None = None,
    settings: TrainSettings | None = None,
    layer: Layer = "features",
    across: Tensor | None = None,
    validation: Data | None = None,
    test: Data | None = None,
    checkpoint: str | Path | None = None,
    on_epoch: OnEpoch | None = None,
    progress: bool = True,
) -> Fit:
    """Train a classifier with one of the methods.

    Args:
        model: any module that maps a batch to class scores; it is trained in place, on the device it is on.
        data: the training set, `(inputs, labels)` or a data set of such pairs, which is read once.
        method: the regularisation; none unless given.
        settings: SGD's numbers; the paper's unless given.
        layer: the name of the model's feature layer; or several names, whose outputs are joined.
        across: (n,) which sensor saw each training sample, to seek neighbours across sensors only; see
            `ManifoldRegularizer`.
        validation: data to report on after every epoch.
        test: data to report on at the end.
        checkpoint: a file to write checkpoints to; if it is there already, training goes on from it, bit for bit
            on the CPU.
        on_epoch: called with every finished `Epoch`; draws a progress bar unless given.
        progress: False for silence.

    Raises:
        DivergenceError: the loss is not finite, or mu was too large and the features no longer depend on the input.
            The model is left as it was before that epoch.
    """
    method, settings = method or Method(), settings or TrainSettings()
    device = next(model.parameters()).device
    for name in layer_names(layer):
        named_layer(model, name)
    x, y = as_tensors(data, "data", device)
    if method.dropout and set_dropout(model, method.dropout) == 0:  # a network's own DropOut stays as it is otherwise
        raise InputError("the method is DropOut but the model has no nn.Dropout layer.")
    if x.ndim == 4:
        # the same numbers, laid out as the convolutions want them
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    held_out = None if validation is None else as_tensors(validation, "validation", device)
    tested = None if test is None else as_tensors(test, "test", device)
    _check_outputs(model, validation=held_out, test=tested)
    path = None if checkpoint is None else Path(checkpoint)
    state = read_checkpoint(path) if path is not None and path.exists() else None
    if state is not None:  # "auto" was measured on the network before training
        method = method.as_saved(state["settings"])
    method = method.resolved(lambda: stable_mu(model, x, layer, settings.lr, settings.momentum, settings.batch_size))
    run = _Run(
        model=model,
        x=x,
        y=y,
        layer=layer,
        settings=settings,
        regularizer=method.regularizer(x, y, across),
        optimizer=torch.optim.SGD(
            model.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=method.torch_weight_decay,
        ),
        draw=generator(settings.seed, "batches"),
        settings_saved={**asdict(settings), **asdict(method), "layer": ",".join(layer_names(layer))},
        checkpoint=path,
    )
    if run.checkpoint is not None:
        run.settings_saved["data"] = fingerprint(x, y, across)
    bar = EpochBar(method.name, settings.epochs) if progress and on_epoch is None else None
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else None):
        torch.manual_seed(derive_seed(settings.seed, "dropout"))
        if state is not None:
            run.resume(state)
        if bar is None:
            _train(run, held_out, on_epoch)
        else:
            with bar:
                _train(run, held_out, bar)
    _check_alive(run, sweep(model, _some(x), layer=layer))
    result = Fit(model, method, run.history, run.regularizer, train_loss=evaluate(model, x, y)[0], seconds=run.seconds)
    if tested is not None:
        started = time.perf_counter()
        result.test_loss, result.test_accuracy = evaluate(model, *tested)
        run.seconds["test"] = time.perf_counter() - started
    return result


def _check_outputs(model: nn.Module, **parts: tuple[Tensor, Tensor] | None) -> None:
    """Find out before training, not after it, whether the model takes the samples and knows the labels."""
    for name, part in parts.items():
        if part is None:
            continue
        outputs, largest = sweep(model, part[0][:1]).shape[1], int(part[1].max())
        if outputs <= largest:
            raise InputError(f"{name}: the label {largest} does not fit a model of {outputs} outputs.")


def _some(rows: Tensor) -> Tensor:
    """About a hundred rows, evenly spaced."""
    return rows[:: max(1, len(rows) // 100)]


def _check_alive(run: _Run, features: Tensor) -> None:
    """Say so if the features no longer depend on the input: a step was too large, though nothing is infinite."""
    if run.epoch == 0 or len(features) < 2 or not bool((features == features[0]).all()):
        return
    words = "the features are the same for every sample, as when every ReLU is at zero, in epoch"
    if run.regularizer is not None and run.regularizer.mu > _limit(run):
        raise _divergence(run, words)
    if run.epoch == run.settings.epochs:
        warnings.warn(
            f"the network has died: {words} {run.epoch - 1} (counted from 0). Lower lr and train again.",
            NumericalWarning,
            stacklevel=3,
        )


@dataclass
class _Run:
    """Everything that changes while training, in one place: what a checkpoint holds."""

    model: nn.Module
    x: Tensor
    y: Tensor
    layer: Layer
    settings: TrainSettings
    regularizer: ManifoldRegularizer | None
    optimizer: torch.optim.SGD
    draw: torch.Generator
    settings_saved: dict[str, Any]
    checkpoint: Path | None
    epoch: int = 0
    history: list[Epoch] = field(default_factory=list)
    first_weights: dict[str, Tensor] = field(default_factory=dict)
    good_weights: dict[str, Tensor] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "sweep": 0.0})

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """One epoch's batches (index, x, y), shuffled: the set is in memory, so it is indexed, not collated."""
        order = torch.randperm(len(self.x), generator=self.draw).to(self.x.device)
        pieces = list(torch.split(order, self.settings.batch_size))
        if len(pieces) > 1 and len(pieces[-1]) == 1:  # one sample has no spread, which BatchNorm asks for
            pieces[-2:] = [torch.cat(pieces[-2:])]
        for index in pieces:
            yield index, self.x[index], self.y[index]

    def autocast(self) -> torch.autocast:
        """The arithmetic of the network's passes, as the settings ask for it."""
        return torch.autocast(self.x.device.type, dtype=torch.bfloat16, enabled=self.settings.precision == "bfloat16")

    def keep_weights(self) -> None:
        """Remember the weights, to put them back if the epoch diverges."""
        if not self.good_weights:
            self.first_weights = copy.deepcopy(self.model.state_dict())
        self.good_weights = copy.deepcopy(self.model.state_dict())

    def weights_are_finite(self) -> bool:
        return all(bool(torch.isfinite(p).all()) for p in self.model.parameters())

    def save(self) -> None:
        if self.checkpoint is None:
            return
        state = {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "regularizer": None if self.regularizer is None else self.regularizer.state_dict(),
            "random": {"batches": self.draw.get_state(), "torch": torch.get_rng_state()},
            "history": [asdict(e) for e in self.history],
            "settings": self.settings_saved,
        }
        save_checkpoint(self.checkpoint, state)

    def resume(self, state: dict[str, Any]) -> None:
        assert self.checkpoint is not None
        check_settings(state, self.settings_saved, self.checkpoint)
        if self.regularizer is not None:
            self.regularizer.load_state_dict(state["regularizer"])  # first: it says so if the data is another
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.draw.set_state(state["random"]["batches"])
        torch.set_rng_state(state["random"]["torch"])
        self.epoch = state["epoch"]
        self.history = [Epoch(**e) for e in state["history"]]


def _train(run: _Run, validation: tuple[Tensor, Tensor] | None, on_epoch: OnEpoch | None) -> None:
    """Algorithm 1: every M epochs the dual step, the graph and alpha; in between SGD with the penalty."""
    while run.epoch < run.settings.epochs:
        run.keep_weights()
        if run.regularizer is not None and run.regularizer.due(run.epoch):
            _update(run, run.regularizer)  # steps 4, 1 and 2
        epoch = _descend(run)  # step 3
        if not math.isfinite(epoch.loss + epoch.penalty) or not run.weights_are_finite():
            raise _divergence(run)
        if validation is not None:
            val_loss, val_accuracy = evaluate(run.model, *validation)
            epoch = replace(epoch, val_loss=val_loss, val_accuracy=val_accuracy)
        run.history.append(epoch)
        run.epoch += 1
        if run.epoch % run.settings.checkpoint_every == 0 or run.epoch == run.settings.epochs:
            run.save()
        if on_epoch is not None:
            on_epoch(epoch)


def _update(run: _Run, regularizer: ManifoldRegularizer) -> None:
    """One outer iteration: sweep the features, unless the last epoch's will do, then the regulariser's step."""
    started = time.perf_counter()
    with run.autocast():
        features = sweep(run.model, run.x, layer=run.layer) if regularizer.needs_sweep else None
    run.seconds["sweep"] += time.perf_counter() - started
    if features is not None:
        _check_alive(run, _some(features))
    try:
        update = regularizer.step(features)
    except InputError as error:  # the features overflowed
        raise (_divergence(run) if run.epoch else error) from error
    for phase, spent in update.seconds.items():
        run.seconds[phase] = run.seconds.get(phase, 0.0) + spent


def _descend(run: _Run) -> Epoch:
    """One epoch of SGD on the loss and, where there is a regulariser, its penalty."""
    model, regularizer, optimizer = run.model, run.regularizer, run.optimizer
    lr, n, largest_label = run.settings.lr_at(run.epoch), len(run.x), int(run.y.max())
    for group in optimizer.param_groups:
        group["lr"] = lr
    loss_sum, penalty_sum, correct = run.x.new_zeros(()), run.x.new_zeros(()), run.x.new_zeros(())
    started = time.perf_counter()
    model.train()
    with FeatureTap(model, run.layer) as tap:
        for index, x, y in run.batches():
            with run.autocast():
                logits, features = tap(x)
            logits = logits.to(run.x.dtype)
            if logits.shape[1] <= largest_label:
                raise InputError(f"data: the label {largest_label} does not fit a model of {logits.shape[1]} outputs.")
            loss = F.cross_entropy(logits, y)
            loss_sum += loss.detach() * len(index)
            if regularizer is not None:
                penalty = regularizer.penalty(features, index)
                penalty_sum += penalty.detach() * len(index)
                loss = loss + penalty  # eq. (10)
            correct += (logits.detach().argmax(1) == y).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    run.seconds["train"] += time.perf_counter() - started
    return Epoch(run.epoch, lr, float(loss_sum) / n, float(penalty_sum) / n, float(correct) / n)


def _limit(run: _Run) -> float:
    """About the largest mu that SGD can follow, by the first weights and the last good ones."""
    settings, limits, now = run.settings, [], copy.deepcopy(run.model.state_dict())
    for weights in (run.first_weights or now, run.good_weights or now):
        run.model.load_state_dict(weights)
        limits.append(stable_mu(run.model, run.x, run.layer, settings.lr, settings.momentum, settings.batch_size))
    run.model.load_state_dict(now)
    # the last weights count unless they have run away already; half, since the curvature grows in training
    return (min(limits) if min(limits) > limits[0] / 100 else limits[0]) / 2


def _divergence(run: _Run, words: str = "the loss is not finite in epoch") -> DivergenceError:
    """Put the last good weights back, and say which of lr and mu to lower: mu, if SGD cannot follow the penalty."""
    words += f" {min(run.epoch, run.settings.epochs - 1)} (counted from 0)."
    limit = _limit(run) if run.regularizer is not None else 0.0
    if run.good_weights:
        run.model.load_state_dict(run.good_weights)
    if run.regularizer is not None and run.regularizer.mu > limit:
        words += (
            f" Lower mu: it is {run.regularizer.mu:g}, and at lr {run.settings.lr:g} and momentum "
            f"{run.settings.momentum:g} this network follows the penalty only below about {limit:.2g}."
        )
    else:
        words += f" Lower lr: it is {run.settings.lr_at(run.epoch):g}."
    if run.checkpoint is not None and run.checkpoint.exists():
        words += f" The last good checkpoint is {run.checkpoint}."
    return DivergenceError(words)


def as_tensors(data: Data, name: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """`data` as floating inputs (n, ...) and int64 labels (n,) on the device, checked."""
    if isinstance(data, Dataset):
        pairs = [data[i] for i in range(len(data))]  # type: ignore[arg-type]
        data = (
            torch.stack([torch.as_tensor(x) for x, _ in pairs]),
            torch.as_tensor([y for _, y in pairs]),
        )
    x, y = (torch.as_tensor(part) for part in data)
    if x.ndim < 2 or len(x) == 0:
        raise InputError(f"{name}: inputs must have shape (n, ...) with n at least 1, got {tuple(x.shape)}.")
    if not x.is_floating_point():
        raise InputError(f"{name}: inputs must be floating point, got {x.dtype}. Convert with .float().")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise InputError(f"{name}: labels must be integers, got {y.dtype}.")
    if y.shape != (len(x),):
        raise InputError(f"{name}: there are {len(x)} inputs but labels has shape {tuple(y.shape)}.")
    if not torch.isfinite(x).all():
        raise InputError(f"{name}: inputs has NaN or infinite values.")
    if int(y.min()) < 0:
        raise InputError(f"{name}: labels must be 0 or above, got {int(y.min())}.")
    return x.to(device), y.to(device=device, dtype=torch.int64)
