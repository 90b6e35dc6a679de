"""Someone's own data: a run's settings, the networks by name, and the task of training and testing on some samples."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldmnet.data.encode import Encoding, read_encoded
from ldmnet.data.userdata import Samples, read_samples, share_split
from ldmnet.errors import InputError, LDMNetError
from ldmnet.fingerprints import fingerprint, short_hash
from ldmnet.imported import imported
from ldmnet.integrations.untuned import OWN, STARTS, net_for, untuned_net
from ldmnet.networks import SMALLEST_SIDE
from ldmnet.records.snapshots import choose_points
from ldmnet.runs.classical import classical, measure_classical
from ldmnet.runs.network import network_hash, train_network
from ldmnet.runs.run import Measured, Watch
from ldmnet.seeds import derive_seed
from ldmnet.training.ensemble import network_of
from ldmnet.training.methods import METHODS, Method
from ldmnet.training.rivals import parse
from ldmnet.training.settings import OptimizerName, ScheduleName, TrainSettings
from ldmnet.training.standardize import Standardize

TAKES = {  # the numbers of `UserSettings` that each method has
    "none": (),
    "weight_decay": ("weight_decay",),
    "dropout": ("dropout",),
    "control": ("strength", "mu"),
    "ldmnet": ("strength", "coupling", "mu", "lambda_tilde"),
}
LATER = {"decay": None, "trials": 0}  # at these defaults they do not enter a run's hash: they came after it


@dataclass(frozen=True)
class UserSettings:
    """Everything but the data that decides the result of a run on someone's own data.

    A network of your own is known by its factory's name alone: after an edit of its code, choose another folder.

    Attributes:
        net: the network: residual, mlp, mnist, cifar, or package.module:factory, a function of the numbers of inputs
            and classes.
        layer: the name of the network's feature layer.
        method: the regularisation: ldmnet, control, none, a rival, or several with a plus, as ldmnet+mixup:0.4.
        epochs: passes over the training set; None takes the network's own.
        lr: the learning rate; None takes the network's own.
        batch_size: samples per step; None takes the network's own.
        optimizer: the optimizer; None takes sgd.
        schedule: the schedule of the learning rate; None takes the network's own.
        clip_norm: the largest norm of the gradient; None takes any.
        augment: how images are changed whenever they are trained on: shift, flip, shift,flip or none; None takes the
            network's own.
        device: where to train: cpu, cuda, mps; None takes cpu.
        seed: of the split, the initial weights and the batches, each derived apart.
        strength: weight of LDMNet's pull, without a unit; None takes 0.3.
        coupling: the pull over the graph, where less smooths more; None takes 0.2.
        mu: the paper's weight of the penalty, in place of strength.
        lambda_tilde: the paper's strength of the manifold term, in place of coupling.
        weight_decay: the factor w of w |theta|^2, for the method weight_decay.
        dropout: the rate, for the method dropout.
        patience: stop after so many epochs without a better validation accuracy; None takes all epochs.
        validation_share: the share of every class of the training part that is held out for patience.
        test_share: the share of every class that is held out to test on; zero trains on all.
        decay: torch's weight decay, for any network and method; None takes the network's own.
        trials: of learning rate, weight decay and the method's own strength, chosen on a quarter of the training part;
            zero takes the defaults.
    """

    net: str = "mlp"
    layer: str = "features"
    method: str = "ldmnet"
    epochs: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    optimizer: OptimizerName | None = None
    schedule: ScheduleName | None = None
    clip_norm: float | None = None
    augment: str | None = None
    device: str | None = None
    seed: int = 0
    strength: float | None = None
    coupling: float | None = None
    mu: float | None = None
    lambda_tilde: float | None = None
    weight_decay: float = 0.005
    dropout: float = 0.5
    patience: int | None = None
    validation_share: float = 0.1
    test_share: float = 0.0
    decay: float | None = None
    trials: int = 0

    def training(self) -> TrainSettings:
        """How training runs, in numbers."""
        names = ("epochs", "lr", "batch_size", "optimizer", "schedule", "clip_norm", "patience", "seed")
        augment = "" if self.augment in (None, "none") else self.augment
        given = {name: getattr(self, name) for name in names}
        return STARTS.get(self.net, OWN).settings(**given, augment=augment, weight_decay=self.decay)

    def resolved(self) -> UserSettings:
        """These settings with numbers in place of the network's own."""
        own = self.training()
        names = ("epochs", "lr", "batch_size", "optimizer", "schedule", "augment")
        return replace(self, **{name: getattr(own, name) for name in names})

    @property
    def all_epochs(self) -> int:
        """Passes over the training set, by all members of an ensemble; one for a row that is no network."""
        return 1 if classical(self.method) else self.training().epochs * self.regularisation().networks

    def regularisation(self) -> Method:
        """The settings' method with its numbers."""
        base, _ = parse(self.method, METHODS)
        names = {"weight_decay": "weight_decay_w"}
        return Method(self.method, **{names.get(name, name): getattr(self, name) for name in TAKES[base]})

    def network(self, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        """The network with its initial weights, for samples of a shape."""
        return network_of(self.regularisation(), partial(self._made, shape, n_classes), self.seed, self.layer)

    def _made(self, shape: tuple[int, ...], n_classes: int, seed: int) -> nn.Module:
        if self.net in STARTS:
            return untuned_net(self.net, shape, n_classes, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            try:
                model = _factory(self.net)(math.prod(shape), n_classes)
            except LDMNetError:
                raise
            except Exception as error:  # the user's own code
                words = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise InputError(f"{self.net}({math.prod(shape)}, {n_classes}) ended with {words}.") from error
        if not isinstance(model, nn.Module):
            raise InputError(f"{self.net} returned {type(model).__name__}, not a torch.nn.Module.")
        return model


def _factory(name: str) -> Any:
    if not name.partition(":")[2]:
        raise InputError(
            f"there is no network {name!r}. Choose {', '.join(STARTS)}, or package.module:factory, a function of the "
            "number of inputs and the number of classes."
        )
    return imported(name, "network")[0]


@dataclass(frozen=True)
class Reading:
    """How data is read, so that it is read alike again.

    Attributes:
        label: the label column; None takes label, y, class, target or the last.
        size: resize images to this many pixels per side.
        grey: read images in one channel.
        encoder: the pre-trained encoder whose features are trained on: a folder or name of transformers, or
            package.module:callable; None takes the data itself.
        text: the column of texts that the encoder reads; None takes text, or the only one beside the label.
    """

    label: str | None = None
    size: int | None = None
    grey: bool = False
    encoder: str | None = None
    text: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields; those of an encoder only where there is one, so that other runs keep their names."""
        return {k: v for k, v in asdict(self).items() if v is not None or k not in ("encoder", "text")}

    def plain(self) -> dict[str, Any]:
        """What `read_samples` takes."""
        return {"label": self.label, "size": self.size, "grey": self.grey}


def read_for_net(
    path: Path, net: str, reading: Reading, encoding: Encoding | None = None
) -> tuple[Samples, str, Reading]:
    """Read data for a network, or find the network for the data if it is "auto".

    Images of a folder are resized for the networks that have a size: mnist takes grey images, cifar colour. For the
    residual network they are brought to 32 x 32 unless `size` says otherwise, grey if all of them are.
    """
    if reading.encoder is not None:
        how = encoding or Encoding()
        samples = read_encoded(path, reading.encoder, how, label=reading.label, text=reading.text)
        return samples, "mlp" if net == "auto" else net, reading
    if path.is_dir():
        if net == "auto":
            net = "mlp" if reading.size is not None and reading.size < SMALLEST_SIDE else "residual"
        if net == "residual":
            reading = replace(reading, size=reading.size or 32)
        elif net in STARTS and (fixed := STARTS[net].shape) is not None:
            if reading.size not in (None, fixed[-1]) or (reading.grey and fixed[0] != 1):
                kind = "grey" if fixed[0] == 1 else "colour"
                raise InputError(
                    f"the network {net} takes {kind} images of {fixed[-1]} x {fixed[-1]} pixels, whatever size and "
                    "grey say. Leave them out, or choose the network residual, mlp or one of your own."
                )
            reading = replace(reading, size=fixed[-1], grey=fixed[0] == 1)
    samples = read_samples(path, **reading.plain())
    if path.is_dir() and net == "residual" and not reading.grey and bool((samples.x == samples.x[:, :1]).all()):
        samples, reading = replace(samples, x=samples.x[:, :1].contiguous()), replace(reading, grey=True)
    shape = tuple(samples.x.shape[1:])
    if net == "auto":
        net = net_for(shape)
    elif net in STARTS and STARTS[net].shape not in (None, shape):
        raise InputError(
            f"the network {net} takes samples of shape {STARTS[net].shape}, but those of {path} have {shape}. "
            "Choose the network mlp, or one of your own."
        )
    return samples, net, reading


@dataclass(frozen=True, eq=False)
class Split:
    """Samples in parts, standardised by the training part's statistics."""

    samples: Samples
    standardize: Standardize
    train: Tensor
    test: Tensor
    valid: Tensor

    def part(self, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """The inputs and labels of some rows; None where there are none."""
        return (self.standardize(self.samples.x[rows]), self.samples.labels[rows]) if len(rows) else None


@dataclass(frozen=True, eq=False)
class SamplesTask:
    """Train and test on someone's own samples.

    Attributes:
        settings: everything else that decides the result.
        samples: the data.
        reading: how it was read.
        name: the data's name for people.
        data: a hash of the samples and their labels, which tells the data from others.
    """

    settings: UserSettings
    samples: Samples
    reading: Reading = field(default_factory=Reading)
    name: str = ""
    data: str = ""

    def __post_init__(self) -> None:
        if not self.data:
            object.__setattr__(self, "data", fingerprint(self.samples.x, self.samples.labels))

    @property
    def seed(self) -> int:
        """The first split's."""
        return self.settings.seed

    @property
    def epochs(self) -> int:
        """Passes over the training set."""
        return self.settings.all_epochs

    @property
    def per_class(self) -> None:
        """None: there are no sizes."""

    def hash(self) -> str:
        """Twelve hex digits of the settings, of what they are read with and of the data."""
        known = {name: value for name, value in self._known().items() if name != "skipped"}
        later = {name for name, default in LATER.items() if getattr(self.settings, name) == default}
        settings = {name: value for name, value in self.recorded().items() if name not in later}
        return short_hash({**known, **settings, **self._network, "data": self.data})

    @cached_property
    def _network(self) -> dict[str, str]:
        """What tells a network of the user's own from another of its name; built-in ones are told by theirs."""
        settings = self.settings
        if settings.net in STARTS or classical(settings.method):
            return {}
        shape, n_classes = tuple(self.samples.x.shape[1:]), len(self.samples.class_names)
        return {"network": network_hash(lambda: settings._made(shape, n_classes, 0))}  # seed 0: alike for all seeds

    def recorded(self) -> dict[str, Any]:
        """The settings in numbers."""
        return asdict(self.settings.resolved())

    def load(self, data_dir: str | Path | None = None) -> Split:
        """Split the samples and take the training part's statistics."""
        y, names, settings = self.samples.labels, self.samples.class_names, self.settings
        train, test = torch.arange(len(y)), torch.empty(0, dtype=torch.int64)
        if settings.test_share:
            train, test = share_split(y, settings.test_share, settings.seed, names)
        valid = train[:0]
        if settings.patience is not None:
            seed = derive_seed(settings.seed, "validation")
            kept, held = share_split(y[train], settings.validation_share, seed, names)
            train, valid = train[kept], train[held]
        return Split(self.samples, Standardize.fit(self.samples.x[train]), train, test, valid)

    def described(self, data: Split) -> dict[str, Any]:
        """The data's name and sizes, and how to read samples like these."""
        sizes = {"n_train": len(data.train), "n_test": len(data.test)}
        return {"data": self.data, "data_name": self.name, **sizes, **self._known()}

    def _known(self) -> dict[str, Any]:
        return {
            "reading": self.reading.to_json(),
            "class_names": self.samples.class_names,
            "shape": list(self.samples.x.shape[1:]),
            "columns": self.samples.columns,
            "label": self.samples.label,
            "skipped": [str(file) for file in self.samples.skipped],
        }

    def measure(self, data: Split, watch: Watch) -> Measured:
        """Train the network, test it on the part held out, and keep the statistics of the training part."""
        settings, samples = self.settings, self.samples
        if classical(settings.method):
            pairs = data.part(data.train), data.part(data.test)
            assert pairs[0] is not None
            return Measured(measure_classical(settings.method, pairs[0], pairs[1], settings.seed))
        train, test = data.part(data.train), data.part(data.test)
        assert train is not None
        rows = data.train if test is None else data.test
        measured = train_network(
            settings.network(tuple(samples.x.shape[1:]), len(samples.class_names)),
            train,
            watch,
            points=lambda: choose_points(
                *(train if test is None else test),
                raw=samples.x[rows],
                class_names=samples.class_names,
                names=[samples.names[i] for i in rows.tolist()],
                part="training" if test is None else "test",
            ),
            layer=settings.layer,
            method=settings.regularisation(),
            settings=settings.training(),
            validation=data.part(data.valid),
            test=test,
            device=settings.device,
        )
        return replace(measured, with_model={"preprocessing": data.standardize.to_json()})
