"""A finished run trained again, from its record alone, and compared: the same numbers, or which of them differ."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ldmnet.errors import DataError, InputError, LDMNetError, StateError
from ldmnet.files import read_bounded
from ldmnet.integrations.untuned import STARTS
from ldmnet.records.record import Record, versions
from ldmnet.runs.datasets import RunSettings
from ldmnet.runs.run import WEIGHTS, Run, Task, execute, read_run
from ldmnet.runs.samples import Reading, SamplesTask, UserSettings, read_for_net
from ldmnet.runs.trained import TABLE, UntrustedError
from ldmnet.training.methods import Method
from ldmnet.training.progress import OnEpoch
from ldmnet.training.settings import TrainSettings

COMPARED = ("data", "n_train", "n_test", "diverged", "ended_badly", "accuracy", "loss_curve")
COMPARED_MORE = ("train_loss", "test_loss", "val_accuracy", "best_epoch", "mu", "lambda_tilde", "solver")


@dataclass(frozen=True)
class Verified:
    """What came of training a run again.

    Attributes:
        differences: in words; empty where all is the same.
        weights: whether there were weights to compare.
    """

    differences: list[str]
    weights: bool = False


def verify_run(
    folder: Path,
    data: Path | None = None,
    *,
    data_dir: Path | None = None,
    net: str | None = None,
    on_epoch: Callable[[int], OnEpoch] | None = None,
) -> Verified:
    """Train a finished run again and say what differs.

    Args:
        folder: of the run.
        data: what it was trained on, for a run of `train`.
        data_dir: the folder of the data sets that have a name.
        net: must repeat the network's name if it is the user's own, since it is imported and called.
        on_epoch: called with the number of epochs; what it returns is called every epoch.
    """
    record = read_run(folder)
    if not record.finished:
        raise StateError(f"{folder} is not finished: there is no result to compare with.")
    task = _task(record, folder, data, net)
    if task.hash() != record.hash:
        other = "other data, or data read otherwise, or another network"
        return Verified([f"the run's name is {record.hash} (now {task.hash()}): {other}"])
    with tempfile.TemporaryDirectory(prefix="ldmnet-verify-") as place:
        again = execute(
            Run(record.table, record.method, task, record.selection),
            Path(place, "run"),
            lambda: task.load(data_dir),
            on_epoch=None if on_epoch is None else on_epoch(task.epochs),
            keep_weights=True,
        )
        found = _differences(record, again)
        kept, made = folder / WEIGHTS, Path(place, "run", WEIGHTS)
        weights = kept.exists() and made.exists()
        if weights and read_bounded(kept) != read_bounded(made):
            found.append(f"{WEIGHTS}: other bytes")
    if found and record.versions != versions():
        found.append(f"versions {_listed(record.versions)} (now {_listed(versions())})")
    return Verified(found, weights)


def _differences(record: Record, again: Record) -> list[str]:
    pairs = [(name, getattr(record, name), getattr(again, name)) for name in COMPARED]
    pairs += [(name, record.more[name], again.more.get(name)) for name in COMPARED_MORE if name in record.more]
    return [f"{name} {_shown(old, new)}" for name, old, new in pairs if old != new]


def _shown(old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        place = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
        return f"{old[place]!r} (now {new[place]!r}) at place {place + 1} of {len(old)}"
    return f"{old!r:.60} (now {new!r:.60})"


def _listed(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def _task(record: Record, folder: Path, data: Path | None, net: str | None) -> Task:
    """The run's task, made from its record."""
    try:
        if record.table == TABLE:
            if data is None:
                raise InputError(f"{folder} was trained on {record.more.get('data_name') or 'a file'}: name it, too.")
            settings, reading = UserSettings(**record.settings), Reading(**record.more["reading"])
            if settings.net not in STARTS and net != settings.net:
                raise UntrustedError(
                    f"{folder} was trained with the network {settings.net}, which is code that would be run. "
                    "If you trust it, name it again.",
                    settings.net,
                )
            samples, _, reading = read_for_net(data, settings.net, reading)
            return SamplesTask(settings, samples, reading, str(record.more.get("data_name") or ""))
        return _by_name(record.settings)
    except LDMNetError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DataError(
            f"{folder} cannot be trained again from its record ({' '.join(str(error).split())}): runs of train and of "
            "reproduce by images can be."
        ) from error


def _by_name(saved: dict[str, Any]) -> RunSettings:
    """The settings of a run on a data set by name, as `RunSettings.recorded` gave them."""
    if saved["start"] is not None:
        raise ValueError("it starts from another run's weights")
    made = RunSettings(**{f.name: saved[f.name] for f in fields(RunSettings) if f.name not in ("method", "train")})
    return replace(made, method=Method(**saved["method"]), train=TrainSettings(**saved["train"]))
