"""A folder that `train` wrote, ready to answer: the network, how samples are read, and one file for other programs."""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn

from ldmnet.data.encode import Encoding, is_own_code, read_encoded
from ldmnet.data.readers import is_image
from ldmnet.data.userdata import Samples, read_samples
from ldmnet.errors import DataError, LDMNetError, StateError, missing_extra
from ldmnet.files import written_whole
from ldmnet.integrations.untuned import STARTS
from ldmnet.records.record import Record
from ldmnet.runs.run import RECORD, WEIGHTS, Run, execute, read_run
from ldmnet.runs.samples import Reading, SamplesTask, UserSettings
from ldmnet.training.checkpoint import load_weights
from ldmnet.training.progress import OnEpoch
from ldmnet.training.standardize import Standardize

TABLE = "training"


class UntrustedError(StateError):
    """A run's network is code of the user's, which nobody has named: `net` is its name."""

    def __init__(self, words: str, net: str) -> None:
        super().__init__(words)
        self.net = net


def train_run(
    samples: Samples,
    settings: UserSettings,
    reading: Reading,
    folder: Path,
    *,
    name: str = "",
    on_epoch: OnEpoch | None = None,
    snapshots: bool = True,
) -> Record:
    """Train into a folder, or resume what was cut short there, or say what is there if it is done."""
    task = SamplesTask(settings, samples, reading, name)
    run = Run(TABLE, settings.method, task, "given")
    kept = {"keep_weights": True, "snapshots": snapshots, "again": False}
    return execute(run, folder, task.load, on_epoch=on_epoch, **kept)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A trained network with all that turns samples into its answers."""

    model: nn.Module
    standardize: Standardize
    settings: UserSettings
    reading: Reading
    class_names: list[str]
    shape: tuple[int, ...]
    columns: list[str] | None = None
    label: str | None = None

    def read(self, path: Path) -> Samples:
        """Samples like those of the training, with or without labels."""
        if self.reading.encoder is not None and path.suffix.lower() != ".npz":
            return self._encoded(path)
        if (path.is_dir() or is_image(path)) and len(self.shape) == 3:  # images, whatever they were trained from
            channels, height, width = self.shape
            spread = float(self.standardize.deviation)
            if spread < 1:
                raise DataError(
                    f"{path} holds images, with pixels of 0 to 255, but the samples of the training had a deviation of "
                    f"{spread:.2g} only. Give an .npz with x prepared as it was for the training."
                )
            return read_samples(path, size=(height, width), grey=channels == 1, shape=self.shape)
        how = {**self.reading.plain(), "label": self.label or self.reading.label}
        return read_samples(path, **how, shape=self.shape, columns=self.columns)

    def _encoded(self, path: Path) -> Samples:
        """Samples through the encoder of the training, unless that is code of the user's."""
        name = self.reading.encoder
        assert name is not None
        if is_own_code(name):
            raise StateError(
                f"the run was trained on features of {name}, which is code that would be run. Compute the features and "
                "give them as x in an .npz file."
            )
        label = self.label or self.reading.label
        return read_encoded(path, name, Encoding(), label=label, text=self.reading.text, labelled=False)

    def known_labels(self, samples: Samples) -> Tensor | None:
        """Labels as positions in the run's class names; None if there are none, or of classes it knows not.

        Numbers are compared as such: what was 1 comes back as 1.0 from a program that had to leave out a label.
        """
        known, given = self.class_names, samples.class_names
        if not set(given) <= set(known):
            known, given = _numbers(known), _numbers(given)
        if samples.y is None or not set(given) <= set(known):
            return None
        return torch.tensor([known.index(name) for name in given])[samples.y]


def load_run(folder: Path, net: str | None = None) -> TrainedRun:
    """A finished run, ready to answer.

    Args:
        folder: that `train_run` wrote.
        net: must repeat the network's name if it is the user's own, since it is imported and called.
    """
    run, path = read_run(folder), folder / RECORD
    if run.table != TABLE:
        raise DataError(f"{path} is a run of {run.table}, not one of train.")
    if not run.finished:
        raise StateError(f"{folder} is not finished. Run the same train command again: it resumes where it stopped.")
    if run.diverged:
        raise StateError(f"{folder} has no network: {run.diverged}")
    known = {f.name for kind in (UserSettings, Reading) for f in fields(kind)}
    read = run.more.get("reading")
    if strange := [name for name in (*run.settings, *(read if isinstance(read, dict) else ())) if name not in known]:
        raise StateError(
            f"{path} was written by ldmnet {run.versions.get('ldmnet', 'of another version')}, and this version does "
            f"not know {', '.join(strange)}. Install that version, or train again."
        )
    try:
        settings, shape = UserSettings(**run.settings), tuple(run.more["shape"])
        trusted = settings.net in STARTS or net == settings.net
        model = settings.network(shape, len(run.more["class_names"])) if trusted else nn.Identity()
        loaded = TrainedRun(
            model=model,
            standardize=Standardize.from_json(run.more["preprocessing"]),
            settings=settings,
            reading=Reading(**run.more["reading"]),
            class_names=run.more["class_names"],
            shape=shape,
            columns=run.more["columns"],
            label=run.more["label"],
        )
    except LDMNetError:
        raise
    except Exception as error:  # keys that are missing, numbers that are none
        raise DataError(f"{path} is damaged: {' '.join(str(error).split())}. Train again.") from error
    if not trusted:
        raise UntrustedError(
            f"{folder} was trained with the network {settings.net}, which is code that would be run. "
            "If you trust it, name it again.",
            settings.net,
        )
    try:
        load_weights(model, folder / WEIGHTS)
    except Exception as error:  # a missing, cut or foreign file
        words = " ".join(str(error).split())
        raise StateError(f"{folder / WEIGHTS} does not fit the run: {words}") from error
    model.eval()
    return loaded


def _numbers(names: list[str]) -> list[str]:
    """Names of classes with whole numbers written in one way."""
    return [re.sub(r"^-0$", "0", re.sub(r"^\+?(-?)0*(\d+)(\.0*)?$", r"\1\2", name, flags=re.ASCII)) for name in names]


class Packaged(nn.Module):
    """Standardisation, network and softmax in one."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, run: TrainedRun) -> None:
        super().__init__()
        self.register_buffer("mean", run.standardize.mean)
        self.register_buffer("deviation", run.standardize.deviation)
        self.model = run.model

    def forward(self, x: Tensor) -> Tensor:
        """Samples (n, ...), pixels as 0..255, to probabilities (n, n_classes)."""
        out: Tensor = self.model(((x.double() - self.mean) / self.deviation).float())
        return out.softmax(1)


def export_onnx(run: TrainedRun, path: Path) -> Path:
    """Write an ONNX file with the input `samples`, of any number, and the output `probabilities`.

    Columns of a table come in double precision: single would lose the digits of, say, a time in seconds.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise missing_extra("onnx with onnxscript", "onnx") from error
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of libraries that this does not need
    with written_whole(path) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Packaged(run).eval(),
            (torch.zeros(2, *run.shape, dtype=torch.float64 if len(run.shape) == 1 else torch.float32),),
            place,
            input_names=["samples"],
            output_names=["probabilities"],
            dynamic_shapes={"x": {0: torch.export.Dim("n")}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return path
