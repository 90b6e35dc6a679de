"""A data set by name: the settings of one run on it, what they load and what they measure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldmnet.data import class_names, fit_preprocess, indices_hash, load, stratified, subset_and_validation
from ldmnet.errors import DataError, InputError
from ldmnet.fingerprints import settings_hash
from ldmnet.networks import Initialization, cifar_net, initialize, mnist_net, vgg16
from ldmnet.records.snapshots import choose_points
from ldmnet.runs.network import train_network
from ldmnet.runs.run import WEIGHTS, Measured, Watch
from ldmnet.training.checkpoint import load_weights
from ldmnet.training.ensemble import network_of
from ldmnet.training.methods import Method
from ldmnet.training.settings import TrainSettings

NETWORKS = {"mnist": mnist_net, "cifar": cifar_net, "vgg16": vgg16}


@dataclass(frozen=True)
class TrainingData:
    """A run's data, ready for training."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor] | None
    test_pixels: Tensor
    subset_hash: str
    note: str


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides the result of a run on a data set by name.

    Attributes:
        data: the data set's name, see `ldmnet.data.load`.
        per_class: training images per class; None takes all.
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

    @property
    def epochs(self) -> int:
        """Passes over the training set."""
        return self.train.epochs * self.method.networks

    def hash(self) -> str:
        """Twelve hex digits, see `settings_hash`."""
        return settings_hash(self)

    def recorded(self) -> dict[str, Any]:
        """All of the settings."""
        return asdict(self)

    def load(self, data_dir: str | Path | None = None) -> TrainingData:
        """Load, draw the subset and preprocess with statistics of the training images only."""
        split = load(self.data, data_dir)
        if self.first is not None and len(split.x_train) < self.first:
            raise DataError(
                f"{self.first:,} training images of {self.data} were asked for, and {len(split.x_train):,} are there"
                f"{f': {split.note}' if split.note else ''}. Add the missing files, or ask for fewer images."
            )
        split = replace(split, x_train=split.x_train[: self.first], y_train=split.y_train[: self.first])
        if len(split.x_test):
            train, held = subset_and_validation(split.y_train, self.per_class, self.seed)
            test_x, test_y = split.x_test, split.y_test
        else:  # one pool of images: test on all the others
            train = stratified(split.y_train, self.per_class, self.seed)
            held = train[:0]
            rest = torch.ones(len(split.y_train), dtype=torch.bool)
            rest[train] = False
            test_x, test_y = split.x_train[rest], split.y_train[rest]
        prepare = fit_preprocess(split.x_train[train], self.preprocess, self.pixel_scale)
        return TrainingData(
            train=(prepare(split.x_train[train]), split.y_train[train]),
            test=(prepare(test_x), test_y),
            validation=(prepare(split.x_train[held]), split.y_train[held]) if len(held) else None,
            test_pixels=test_x,
            subset_hash=indices_hash(train),
            note=split.note,
        )

    def described(self, data: TrainingData) -> dict[str, Any]:
        """The subset, the sizes, and what is odd about the data."""
        return {
            "data": f"{self.data}:{data.subset_hash}",
            "n_train": len(data.train[1]),
            "n_test": len(data.test[1]),
            "val_accuracy": None,
            "data_note": data.note,
        }

    def measure(self, data: TrainingData, watch: Watch) -> Measured:
        """Train the network and test it; what it starts from is in the folder beside the run's."""
        torch.set_num_threads(self.threads)
        return train_network(
            self.network(self._start(watch.folder.parent)),
            data.train,
            watch,
            points=lambda: choose_points(*data.test, raw=data.test_pixels, class_names=class_names(self.data)),
            judged=data.validation,
            method=self.method,
            settings=replace(self.train, seed=self.seed),
            test=data.test,
        )

    def network(self, weights: Path | None = None) -> nn.Module:
        """The run's network with its initial weights, or with those of a file."""
        model = network_of(self.method, self._made, self.seed)
        if weights is not None:
            load_weights(model, weights)
        return model

    def _made(self, seed: int) -> nn.Module:
        model = NETWORKS[self.net]()
        initialize(model, self.init, seed)
        return model

    def _start(self, runs_dir: Path) -> Path | None:
        """The file with the weights that the run starts from; it must be there."""
        if self.start is None:
            return None
        path = runs_dir / self.start.hash() / WEIGHTS
        if not path.exists():
            raise DataError(f"{path} is not there: the run that this one starts from has to be made first.")
        return path
