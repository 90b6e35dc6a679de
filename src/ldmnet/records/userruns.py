"""Runs on someone's own data: settings and samples in, a folder with a trained network out.

The folder holds `run.json` (settings, class names, preprocessing statistics, versions, result), `model.safetensors`,
`history.jsonl` (one line an epoch), what a report shows (see `ldmnet.records.snapshots`) and, until it is done, a
checkpoint that the same call goes on from.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

import ldmnet
from ldmnet.data.readers import is_image
from ldmnet.data.userdata import Samples, Standardize, read_samples
from ldmnet.errors import DataError, LDMNetError, StateError
from ldmnet.files import write_atomically
from ldmnet.fingerprints import fingerprint
from ldmnet.integrations.untuned import STARTS
from ldmnet.records.endings import bad_ends
from ldmnet.records.userfits import ONCE_FIXED, Reading, UserSettings, build_net, fit_split, own_network
from ldmnet.training.checkpoint import load_weights, save_weights
from ldmnet.training.history import Epoch
from ldmnet.training.loop import last_numbers
from ldmnet.training.progress import OnEpoch


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
        if (path.is_dir() or is_image(path)) and len(self.shape) == 3:  # images, whatever they were trained from
            channels, height, width = self.shape
            spread = float(self.standardize.deviation)
            if spread < 1:
                raise DataError(
                    f"{path} holds images, with pixels of 0 to 255, but the samples of the training had a deviation of "
                    f"{spread:.2g} only. Give an .npz with x prepared as it was for the training."
                )
            return read_samples(path, size=(height, width), grey=channels == 1, shape=self.shape)
        how = {**asdict(self.reading), "label": self.label or self.reading.label}
        return read_samples(path, **how, shape=self.shape, columns=self.columns)


def train_run(
    samples: Samples,
    settings: UserSettings,
    reading: Reading,
    folder: Path,
    *,
    on_epoch: OnEpoch | None = None,
    snapshots: bool = True,
) -> dict[str, Any]:
    """Train into a folder, or go on where that was cut short, or say what is there if it is done.

    Returns:
        The content of `run.json`.

    Raises:
        StateError: the folder holds another run.
    """
    path, checkpoint, history = folder / "run.json", folder / "checkpoint.pt", HistoryFile(folder / "history.jsonl")
    described = {
        "settings": settings.recorded(),
        "reading": asdict(reading),
        "class_names": samples.class_names,
        "shape": list(samples.x.shape[1:]),
        "columns": samples.columns,
        "data": fingerprint(samples.x, samples.labels),
        **own_network(settings, samples),
    }
    if path.exists():
        run = read_run(folder)
        if run["result"] is not None or checkpoint.exists():  # otherwise there is nothing to go on from
            _check_same(run, described, folder)
        if run["result"] is not None:
            return run
    run = {**described, "preprocessing": None, "versions": versions(), "result": None}
    run["label"] = samples.label
    run["skipped"] = [str(file) for file in samples.skipped]

    def remember(epoch: Epoch) -> None:
        if epoch.epoch == 0:  # what cannot be trained at all leaves no folder behind
            write_atomically(path, json.dumps(run))
        history.add(epoch)
        if on_epoch is not None:
            on_epoch(epoch)

    trace = folder if snapshots else None
    with bad_ends() as badly:
        outcome = fit_split(samples, settings, checkpoint=checkpoint, on_epoch=remember, trace=trace)
    save_weights(outcome.fit.model, folder / "model.safetensors")
    run["preprocessing"] = outcome.standardize.to_json()
    run["result"] = {
        "train_loss": outcome.fit.train_loss,
        "test_accuracy": outcome.fit.test_accuracy,
        "test_loss": outcome.fit.test_loss,
        "best_epoch": outcome.fit.best_epoch,
        "n_train": outcome.n_train,
        "n_test": outcome.n_test,
        **last_numbers(outcome.fit),
        "seconds": {phase: round(spent, 2) for phase, spent in outcome.fit.seconds.items()},
        **({"ended_badly": badly} if badly else {}),
    }
    write_atomically(path, json.dumps(run))
    checkpoint.unlink(missing_ok=True)
    return run


def read_run(folder: Path) -> dict[str, Any]:
    """The content of a folder's `run.json`, checked."""
    path = folder / "run.json"
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{folder} holds no run: run.json is missing. Name a folder that train wrote.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    kinds = {"settings": dict, "reading": dict, "class_names": list, "shape": list, "data": str}
    missing = [*kinds, "result"] if not isinstance(run, dict) else [k for k in (*kinds, "result") if k not in run]
    if missing:
        raise DataError(f"{path} is not a run of train: it lacks {', '.join(missing)}.")
    wrong = [name for name, kind in kinds.items() if not isinstance(run[name], kind)]
    if wrong:
        raise DataError(f"{path} is damaged: {wrong[0]} is {run[wrong[0]]!r}. Train again.")
    known = {f.name for kind in (UserSettings, Reading) for f in fields(kind)}
    strange = [name for name in (*run["settings"], *run["reading"]) if name not in known]
    if strange:
        theirs = dict(run.get("versions") or {}).get("ldmnet", "of another version")
        raise StateError(
            f"{path} was written by ldmnet {theirs} and this is {ldmnet.__version__}, which does not know "
            f"{', '.join(strange)}. Install that version, or train again."
        )
    return {"columns": None, "label": None, **run}


def load_run(folder: Path, net: str | None = None) -> TrainedRun:
    """A finished run, ready to answer.

    Args:
        folder: that `train_run` wrote.
        net: must repeat the network's name if it is the user's own, since it is imported and called.
    """
    run = read_run(folder)
    if run["result"] is None:
        raise StateError(f"{folder} is not finished. Run the same train command again: it goes on where it stopped.")
    settings = UserSettings(**run["settings"])
    if settings.net not in STARTS and net != settings.net:
        raise StateError(
            f"{folder} was trained with the network {settings.net}, which is code that would be run. "
            f"If you trust it, say so: --net {settings.net}"
        )
    try:
        model = build_net(settings, tuple(run["shape"]), len(run["class_names"]))
        standardize = Standardize.from_json(run["preprocessing"])
    except LDMNetError:
        raise
    except Exception as error:  # numbers that are none
        raise DataError(f"{folder / 'run.json'} is damaged: {' '.join(str(error).split())}. Train again.") from error
    try:
        load_weights(model, folder / "model.safetensors")
    except Exception as error:  # a missing, cut or foreign file
        words = " ".join(str(error).split())
        raise StateError(f"{folder / 'model.safetensors'} does not fit the run: {words}") from error
    model.eval()
    return TrainedRun(
        model=model,
        standardize=standardize,
        settings=settings,
        reading=Reading(**run["reading"]),
        class_names=run["class_names"],
        shape=tuple(run["shape"]),
        columns=run["columns"],
        label=run["label"],
    )


def known_labels(samples: Samples, class_names: list[str]) -> Tensor | None:
    """The samples' labels as positions in a run's class names; None if there are none, or of classes it knows not."""
    if samples.y is None or not set(samples.class_names) <= set(class_names):
        return None
    return torch.tensor([class_names.index(name) for name in samples.class_names])[samples.y]


class HistoryFile:
    """One line of JSON an epoch; epochs that are done again after a cut replace their lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: int | None = None

    def add(self, epoch: Epoch) -> None:
        """Write one epoch's line in its place."""
        if self._lines is None:
            old = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
            write_atomically(self._path, "".join(f"{line}\n" for line in old[: epoch.epoch]))
        self._lines = epoch.epoch + 1
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(epoch.as_dict()) + "\n")


def versions() -> dict[str, str]:
    """Of what computed the result."""
    return {
        "ldmnet": ldmnet.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def _check_same(old: dict[str, Any], new: dict[str, Any], folder: Path) -> None:
    """Refuse to go on in a folder of another run."""
    theirs, mine = {**ONCE_FIXED, **old["settings"]}, {**ONCE_FIXED, **new["settings"]}
    changed = [f"{k} {theirs.get(k)!r} (now {v!r})" for k, v in mine.items() if theirs.get(k) != v]
    if any(old[key] != new[key] for key in ("data", "class_names", "shape", "columns", "reading")):
        changed.append("other data, or read otherwise")
    if not changed and "network" in new and old.get("network") != new["network"]:
        was = "was another one" if "network" in old else "was not recorded by the version that trained it"
        changed.append(f"its network {mine['net']} {was}")
    if changed:
        raise StateError(
            f"{folder} holds another run: {', '.join(changed)}. Choose another --output, or delete the folder."
        )
