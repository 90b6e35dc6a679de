"""Algorithm 1, on one screen: see `_train`. `fit` sets it up and ends it."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ldmnet.distributed.launch import joined
from ldmnet.distributed.targets import Sharing
from ldmnet.errors import InputError
from ldmnet.fingerprints import fingerprint
from ldmnet.networks import set_dropout
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.seeds import derive_seed, generator
from ldmnet.training.augment import Augment, augmentation
from ldmnet.training.divergence import bad_end, divergence, tell_underfit, tell_unused
from ldmnet.training.features import FeatureTap, Layer, evaluate, layer_names, named_layer, sweep
from ldmnet.training.history import Epoch, best_epoch
from ldmnet.training.methods import Method
from ldmnet.training.objective import objective, total_loss
from ldmnet.training.optimizers import Factory, Schedule, descent
from ldmnet.training.progress import EpochBar, OnEpoch
from ldmnet.training.rivals import ENSEMBLE, Rivals
from ldmnet.training.samples import (
    ClassWeight,
    Data,
    as_tensors,
    channels_last,
    check_outputs,
    first_weight,
    loss_weights,
    move,
    shape_lazy_weights,
)
from ldmnet.training.settings import TrainSettings, name_of
from ldmnet.training.state import Run
from ldmnet.training.together import of_first, read_once, start_alike, stream
from ldmnet.updates import Update


@dataclass
class Fit:
    """What `fit` returns.

    Attributes:
        model: the trained network.
        method: the method.
        history: one `Epoch` an epoch.
        regularizer: the regulariser with its log, where the method has one.
        train_loss: softmax loss on the training set after training, in eval mode.
        test_loss: softmax loss on the test data, where given.
        test_accuracy: accuracy on the test data, 0 to 1, where given.
        best_epoch: the epoch of the best validation accuracy, where validation data was given; with `patience` the
            model has its weights.
        seconds: by phase: train, sweep, graph, solve, other (the rest of an update), test; a run that went on from a
            checkpoint counts what was spent before it, too.
        ended_badly: why the result is of no use, in the words of the `BadEndWarning`; empty otherwise.
    """

    model: nn.Module
    method: Method
    history: list[Epoch]
    regularizer: ManifoldRegularizer | None
    train_loss: float
    test_loss: float | None = None
    test_accuracy: float | None = None
    best_epoch: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    ended_badly: str = ""


def last_numbers(result: Fit) -> dict[str, float | None]:
    """The numbers of the regulariser's last update, for a record."""
    log = [] if result.regularizer is None else result.regularizer.log
    return {name: getattr(log[-1], name) if log else None for name in ("strength", "mu", "lambda_tilde")}


def fit(
    model: nn.Module,
    data: Data,
    *,
    method: Method | None = None,
    settings: TrainSettings | None = None,
    layer: Layer = "features",
    sample_weight: Tensor | None = None,
    class_weight: ClassWeight | None = None,
    validation: Data | None = None,
    test: Data | None = None,
    optimizer: Factory | None = None,
    schedule: Schedule | None = None,
    augment: Augment | None = None,
    device: str | torch.device | None = None,
    checkpoint: str | Path | None = None,
    on_epoch: OnEpoch | None = None,
    progress: bool = True,
    sharing: Sharing | None = None,
) -> Fit:
    """Train a classifier with one of the methods.

    Under torchrun, or where torch.distributed is initialised, all processes call it with the same arguments and train
    one model: they share every batch out, so that `batch_size` is that of all together, and average the gradients. The
    first process alone draws the progress bar, calls `on_epoch` and writes the checkpoint; all get the result.

    Args:
        model: any module that maps a batch to class scores; it is trained in place.
        data: the training set, `(inputs, labels)`, a data set of such pairs, which is read once, or its DataLoader.
            Samples labelled -1 have no label: they count neither in the softmax loss and the accuracy nor in the
            penalty.
        method: the regularisation; none unless given.
        settings: the numbers of training; the paper's unless given.
        layer: the name of the model's feature layer; or several names, whose outputs are joined.
        sample_weight: (n,) weights of the samples in the softmax loss; scaled to a mean of one.
        class_weight: (n_classes,) weights of the classes in it, or "balanced" for the inverse of their frequencies.
        validation: data to report on after every epoch, and by which `TrainSettings.patience` stops.
        test: data to report on at the end.
        optimizer: makes an optimizer from the weights, in place of the settings' by name:
            `functools.partial(torch.optim.AdamW, lr=0.001)`.
        schedule: a factor on the learning rate for each epoch, in place of the settings' schedule.
        augment: changes a batch of inputs every time it is trained on, in place of the settings' by name. It draws from
            torch's own generator, which is seeded and saved with the run.
        device: where to train; where the model is, unless given.
        checkpoint: a file to write checkpoints to; if it is there already, training resumes from it, bit for bit
            on the CPU.
        on_epoch: called with every finished `Epoch`; draws a progress bar unless given.
        progress: False for silence.
        sharing: how several processes share the regulariser's work and targets.

    Raises:
        DistributedError: another process died, failed or did not answer in time.
        DivergenceError: the loss is not finite. The model is left as it was before that epoch.
    """
    method, settings = method or Method(), settings or TrainSettings()
    if settings.patience is not None and validation is None:
        raise InputError("patience waits for a better validation accuracy: give validation data, or leave it out.")
    if ENSEMBLE in method.rivals:
        raise InputError("an ensemble is several networks: train it with LDMClassifier, or with ldmnet train.")
    method.on(model)
    for name in layer_names(layer):
        named_layer(model, name)
    if device is not None:
        move(model, device)
    world = joined((sharing or Sharing()).timeout)
    weight = first_weight(model)
    x, y = as_tensors(data, "data", weight, unlabelled=True)
    held_out = None if validation is None else as_tensors(validation, "validation", weight)
    tested = None if test is None else as_tensors(test, "test", weight)
    shape_lazy_weights(model, x)
    if method.dropout and set_dropout(model, method.dropout) == 0:  # a network's own DropOut stays as it is otherwise
        raise InputError("the method is DropOut but the model has no nn.Dropout layer.")
    with channels_last(model, x) as x:
        check_outputs(model, data=(x, y), validation=held_out, test=tested)
        path = None if checkpoint is None else Path(checkpoint)
        start_alike(world, model, x, y, settings.batch_size)
        state = read_once(world, path)
        own = {"optimizer": optimizer, "schedule": schedule, "augment": augment}
        augment_draw = generator(settings.seed, stream("augment", world))
        run = Run(
            model=model,
            x=x,
            y=y,
            layer=layer,
            settings=settings,
            regularizer=method.regularizer(x, y, sharing),
            descent=descent(model, settings, method.torch_weight_decay, optimizer, schedule),
            draw=generator(settings.seed, "batches"),
            augment=augmentation(settings.augment, augment, x, augment_draw),
            augment_draw=augment_draw,
            weights=loss_weights(y, sample_weight, class_weight),
            rivals=Rivals(method.rivals, generator(settings.seed, "rivals")),
            settings_saved={
                **asdict(settings),
                "name": method.name,
                **asdict(method),
                **{name: name_of(function) for name, function in own.items() if function is not None},
                "layer": ",".join(layer_names(layer)),
            },
            checkpoint=path,
            world=world,
        )
        run.descent.world = world
        if run.checkpoint is not None:
            run.settings_saved["data"] = fingerprint(x, y, run.weights)
        first = world is None or world.rank == 0
        bar = EpochBar(method.name, settings.epochs) if progress and on_epoch is None and first else None
        with torch.random.fork_rng(devices=[] if x.device.type == "cpu" else None):
            torch.manual_seed(derive_seed(settings.seed, stream("dropout", world)))
            run.rivals.begin(model)
            if state is not None:
                run.resume(state)
            if bar is None:
                _train(run, held_out, on_epoch if first else None)
            else:
                with bar:
                    _train(run, held_out, bar)
        labelled = run.labelled
        known = (x, y) if bool(labelled.all()) else (x[labelled], y[labelled])
        logits = sweep(model, known[0], whole=True).float()
        train_loss = float(F.cross_entropy(logits, known[1]))
        result = Fit(model, method, run.history, run.regularizer, train_loss, seconds=run.seconds)
        badly = bad_end(logits, known[1], train_loss) if first else ""
        result.ended_badly, result.best_epoch = of_first(world, badly), best_epoch(run.history)
        if first:
            tell_unused(run.regularizer)
            tell_underfit(run.regularizer, logits, known[1])
        if tested is not None:
            started = time.perf_counter()
            result.test_loss, result.test_accuracy = evaluate(model, *tested)
            run.seconds["test"] = time.perf_counter() - started
        return result


def _train(run: Run, validation: tuple[Tensor, Tensor] | None, on_epoch: OnEpoch | None) -> None:
    """Algorithm 1: every M epochs the dual step, the graph and alpha; in between SGD with the penalty."""
    while not run.finished:
        run.keep_weights()
        update = None
        if run.regularizer is not None and run.regularizer.due(run.epoch):
            update = _update(run, run.regularizer).scalars()  # steps 4, 1 and 2
        epoch = replace(_descend(run), update=update)  # step 3
        if run.world is not None:
            run.world.same(list(run.model.buffers()))  # the first process's statistics of BatchNorm count
        if not math.isfinite(epoch.loss + epoch.penalty) or not run.weights_are_finite():
            raise divergence(run)
        if validation is not None:
            val_loss, val_accuracy = of_first(run.world, evaluate(run.judged, *validation))
            epoch = replace(epoch, val_loss=val_loss, val_accuracy=val_accuracy)
        run.history.append(epoch)
        run.epoch += 1
        run.keep_best_weights()
        if on_epoch is not None:  # before the checkpoint: what a cut in between leaves is made again, not left out
            on_epoch(epoch)
        if run.epoch % run.settings.checkpoint_every == 0 or run.finished:
            run.save()
    run.put_best_back()


def _update(run: Run, regularizer: ManifoldRegularizer) -> Update:
    """One outer iteration: sweep the features, unless the last epoch's will do, then the regulariser's step."""
    started = time.perf_counter()
    with run.autocast():
        features = sweep(run.model, run.x, layer=run.layer) if regularizer.needs_sweep else None
    run.seconds["sweep"] += time.perf_counter() - started
    try:
        update = regularizer.step(features)
    except InputError as error:  # the features overflowed
        raise (divergence(run) if run.epoch else error) from error
    for phase, spent in update.seconds.items():
        run.seconds[phase] = run.seconds.get(phase, 0.0) + spent
    return update


def _descend(run: Run) -> Epoch:
    """One epoch of SGD on the loss and, where there is a regulariser, its penalty."""
    model, n, n_labelled = run.model, len(run.x), int(run.labelled.sum())
    lr, precise = run.descent.begin(run.epoch), torch.promote_types(run.x.dtype, torch.float32)
    loss_sum, penalty_sum, correct = (run.x.new_zeros((), dtype=precise) for _ in range(3))  # half could not count
    started = time.perf_counter()
    model.train()
    with FeatureTap(model, run.layer) as tap, run.rivals.mixing(model, run.layer):
        for whole, index, x, y in run.batches():
            batch = run.rivals.batch(index, x, y)
            logits, loss, penalty = objective(run, tap, batch)
            loss_sum += loss.detach() * (len(y) if n_labelled == n else (y >= 0).sum())
            correct += (logits.detach().argmax(1) == y).sum()
            if penalty is not None:
                penalty_sum += penalty.detach() * len(index)
            if run.world is not None:
                loss, penalty = run.of_all(whole, index, loss, penalty)
            if penalty is not None:
                loss = loss + penalty  # eq. (10)
            run.descent.step(loss, partial(run.rivals.gradient, model, partial(total_loss, run, tap, batch)))
            run.rivals.stepped(model)
    if run.world is not None:
        sums = torch.stack([loss_sum, penalty_sum, correct]).double()
        loss_sum, penalty_sum, correct = run.world.total(sums)
    run.seconds["train"] += time.perf_counter() - started
    return Epoch(
        run.epoch,
        lr,
        float(loss_sum) / n_labelled,
        float(penalty_sum) / n,
        float(correct) / n_labelled,
        strength=None if run.regularizer is None else run.regularizer.log[-1].strength,
    )
