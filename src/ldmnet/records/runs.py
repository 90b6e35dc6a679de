"""One run: settings in, one record out.

A `RunSettings` says everything that decides the result; its hash names the run's folder. The record holds the
settings, a hash of the subset's indices, the curves, the versions and the time, as one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

import ldmnet
from ldmnet.data import class_names, fit_preprocess, indices_hash, load, stratified, subset_and_validation
from ldmnet.errors import DataError, DivergenceError, InputError
from ldmnet.files import write_atomically
from ldmnet.networks import Initialization, cifar_net, initialize, mnist_net, vgg16
from ldmnet.records.snapshots import KEPT, Trace, choose_points
from ldmnet.training.checkpoint import load_weights, save_weights
from ldmnet.training.features import evaluate
from ldmnet.training.loop import Fit, fit, last_numbers
from ldmnet.training.methods import Method
from ldmnet.training.progress import OnEpoch
from ldmnet.training.settings import TrainSettings

Record = dict[str, Any]
WEIGHTS, RECORD = "model.safetensors", "record.json"
NETWORKS = {"mnist": mnist_net, "cifar": cifar_net, "vgg16": vgg16}


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides a run's result.

    Attributes:
        data: the data set's name, see `ldmnet.data.load`.
        per_class: training images a class; None takes all.
        seed: of the subset, the initial weights, the batches and DropOut, each derived apart.
        net: the network's name.
        preprocess: how pixels become inputs, see `ldmnet.data.fit_preprocess`.
        pixel_scale: what the pixels are divided by afterwards.
        init: the initialisation.
        method: the regularisation.
        train: SGD's numbers; its seed is this one's.
        threads: torch's threads, since float32 sums depend on their order.
        first: take the first so many training images only (CIFAR-10's first batch is 10,000).
        start: the run whose trained weights this one starts from, in place of initial ones.
    """

    data: str
    per_class: int | None
    seed: int = 0
    net: str = "mnist"
    preprocess: str = "mean_image"
    pixel_scale: float = 1.0
    init: Initialization = "gaussian"
    method: Method = field(default_factory=Method)
    train: TrainSettings = field(default_factory=TrainSettings)
    threads: int = 1
    first: int | None = None
    start: RunSettings | None = None

    def __post_init__(self) -> None:
        if self.net not in NETWORKS:
            raise InputError(f"there is no network {self.net!r}. The networks: {', '.join(NETWORKS)}.")

    def hash(self) -> str:
        """Twelve hex digits, see `settings_hash`."""
        return settings_hash(self)


@dataclass(frozen=True)
class Run:
    """A run with its place in a table.

    Attributes:
        table: which table it belongs to.
        row: the method's name in that table.
        settings: what to run.
        selection: how the settings were chosen: "printed", "validation" or "default".
        paper: the printed accuracy in percent, where there is one.
        size: the table's training images a class, where the settings say None for all.
    """

    table: str
    row: str
    settings: RunSettings
    selection: str = "printed"
    paper: float | None = None
    size: int | None = None


@dataclass(frozen=True)
class TrainingData:
    """A run's data, ready for `fit`."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor] | None
    test_pixels: Tensor
    subset_hash: str
    note: str


def training_data(settings: RunSettings, data_dir: str | Path | None = None) -> TrainingData:
    """Load, draw the subset and preprocess with statistics of the training images only."""
    split = load(settings.data, data_dir)
    split = replace(split, x_train=split.x_train[: settings.first], y_train=split.y_train[: settings.first])
    if len(split.x_test):
        train, held = subset_and_validation(split.y_train, settings.per_class, settings.seed)
        test_x, test_y = split.x_test, split.y_test
    else:  # one pool of images: test on all the others
        train, held = stratified(split.y_train, settings.per_class, settings.seed), _no_indices()
        rest = torch.ones(len(split.y_train), dtype=torch.bool)
        rest[train] = False
        test_x, test_y = split.x_train[rest], split.y_train[rest]
    prepare = fit_preprocess(split.x_train[train], settings.preprocess, settings.pixel_scale)
    return TrainingData(
        train=(prepare(split.x_train[train]), split.y_train[train]),
        test=(prepare(test_x), test_y),
        validation=(prepare(split.x_train[held]), split.y_train[held]) if len(held) else None,
        test_pixels=test_x,
        subset_hash=indices_hash(train),
        note=split.note,
    )


def _no_indices() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


def build_network(settings: RunSettings, start: Path | None = None) -> nn.Module:
    """The run's network with its initial weights, or with those of the file `start`."""
    model = NETWORKS[settings.net]()
    initialize(model, settings.init, settings.seed)
    if start is not None:
        load_weights(model, start)
    return model


def start_weights(settings: RunSettings, runs_dir: Path) -> Path | None:
    """The file with the weights that a run starts from; it must be there."""
    if settings.start is None:
        return None
    path = runs_dir / settings.start.hash() / WEIGHTS
    if not path.exists():
        raise DataError(f"{path} is not there: the run that this one starts from has to be made first.")
    return path


def execute(
    run: Run,
    *,
    runs_dir: Path,
    data_dir: str | Path | None = None,
    on_epoch: OnEpoch | None = None,
    keep_weights: bool = False,
    snapshots: bool = False,
) -> Record:
    """Run once, or return the record of the run if it is done; a run that was cut goes on from its checkpoint."""
    settings = run.settings
    folder = runs_dir / settings.hash()
    done = folder / RECORD
    weights = folder / WEIGHTS
    files = [*([WEIGHTS] if keep_weights else []), *(KEPT if snapshots else [])]
    if done.exists():
        record = json.loads(done.read_text())
        if "diverged" in record or all((folder / file).exists() for file in files):  # one that diverged leaves none
            return {**record, **_place(run)}
    start = start_weights(settings, runs_dir)
    data = training_data(settings, data_dir)
    checkpoint = folder / "checkpoint.pt"
    try:
        trace = folder if snapshots else None
        result = train_once(settings, data, start=start, checkpoint=checkpoint, on_epoch=on_epoch, trace=trace)
    except DivergenceError as error:
        record = {**_place(run), **_diverged(settings, data, error)}
    else:
        if keep_weights:
            save_weights(result.model, weights)
        record = describe(run, data, result)
    text = json.dumps(record)
    write_atomically(done, text)
    checkpoint.unlink(missing_ok=True)
    return dict(json.loads(text))  # as it will be read again: lists in place of tuples


def train_once(
    settings: RunSettings,
    data: TrainingData,
    *,
    start: Path | None = None,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
    trace: Path | None = None,
) -> Fit:
    """Train the run's network on data that is at hand; `trace` is a folder for what a report shows."""
    torch.set_num_threads(settings.threads)
    model = build_network(settings, start)
    traced = None
    if trace is not None:
        points = choose_points(*data.test, raw=data.test_pixels, class_names=class_names(settings.data))
        traced = Trace(trace, model, points, epochs=settings.train.epochs, then=on_epoch)
    result = fit(
        model,
        data.train,
        method=settings.method,
        settings=replace(settings.train, seed=settings.seed),
        test=data.test,
        checkpoint=checkpoint,
        on_epoch=traced or on_epoch,
        progress=False,
    )
    if traced is not None:
        traced.finish(result)
    return result


def describe(run: Run, data: TrainingData, result: Fit) -> Record:
    """The record of a finished run."""
    return {**_place(run), **_measured(run.settings, data, result)}


def _place(run: Run) -> Record:
    return {
        "table": run.table,
        "per_class": run.settings.per_class if run.size is None else run.size,
        "method": run.row,
        "seed": run.settings.seed,
        "selection": run.selection,
        "paper": run.paper,
    }


def _measured(settings: RunSettings, data: TrainingData, result: Fit) -> Record:
    assert result.test_accuracy is not None
    assert result.test_loss is not None
    val = None if data.validation is None else evaluate(result.model, *data.validation)
    updates = [] if result.regularizer is None else result.regularizer.log
    return {
        "accuracy": round(100 * result.test_accuracy, 4),
        "test_loss": round(result.test_loss, 6),
        "train_loss": round(result.train_loss, 6),
        "val_accuracy": None if val is None else round(100 * val[1], 4),
        "val_loss": None if val is None else round(val[0], 6),
        "n_train": len(data.train[1]),
        "n_test": len(data.test[1]),
        "subset_hash": data.subset_hash,
        "hash": settings.hash(),
        "settings": asdict(settings),
        "loss_curve": [float(f"{e.loss:.4g}") for e in result.history],
        **last_numbers(result),
        "solver": sorted({u.status for u in updates}),
        "seconds": {phase: round(spent, 2) for phase, spent in result.seconds.items()},
        "threads": settings.threads,
        "versions": versions(),
        "data_note": data.note,
    }


def why_diverged(error: DivergenceError | str) -> str:
    """An error's words, without those on a checkpoint that will be gone."""
    return str(error).split(" The last good checkpoint")[0]


def _diverged(settings: RunSettings, data: TrainingData, error: DivergenceError) -> Record:
    """The record of a run that ended in a loss that is not finite: no accuracy, and why."""
    return {
        "accuracy": None,
        "val_accuracy": None,
        "diverged": why_diverged(error),
        "n_train": len(data.train[1]),
        "n_test": len(data.test[1]),
        "subset_hash": data.subset_hash,
        "hash": settings.hash(),
        "settings": asdict(settings),
        "seconds": {},
        "threads": settings.threads,
        "versions": versions(),
        "data_note": data.note,
    }


def versions() -> dict[str, str]:
    """The versions that a run's numbers may depend on."""
    return {
        "ldmnet": ldmnet.__version__,
        "torch": torch.__version__.split("+")[0],
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def settings_hash(settings: Any) -> str:
    """Twelve hex digits. Fields at their default do not enter, so a new one leaves old runs' names alone."""
    text = json.dumps(_departures(settings), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _departures(value: Any) -> dict[str, Any]:
    """A dataclass as a dictionary of the fields that differ from their defaults, recursively."""
    out: dict[str, Any] = {}
    for f in fields(value):
        current = getattr(value, f.name)
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if is_dataclass(current):
            if inner := _departures(current):
                out[f.name] = inner
        elif default is MISSING or current != default:
            out[f.name] = current
    return out


def append_record(path: Path, record: Record) -> None:
    """Add one line to a file of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def read_records(paths: Iterable[Path], needs: Iterable[str] = ()) -> list[Record]:
    """The records of some JSON-lines files, in order; a line that is not one, or lacks what it needs, is named."""
    records = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read as records: {error}.") from error
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("not an object")
            except ValueError as error:
                raise DataError(f"{path}, line {number}, is not a record: {error}.") from error
            lacks = [name for name in needs if name not in record]
            if lacks:
                raise DataError(f"{path}, line {number}, is a record of something else: it lacks {', '.join(lacks)}.")
            records.append(record)
    return records
