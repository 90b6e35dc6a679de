"""Read what a report is about: paths in, runs out. Everything that knows a file's format or a record's keys is here.

A path is a file of records (`results/*.jsonl`), a folder that `demo`, `train`, `compare` or `reproduce` wrote, or a
folder of such folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import ldmnet
from ldmnet.errors import DataError
from ldmnet.records.figures import DATA, TITLES
from ldmnet.records.runs import Record, read_records
from ldmnet.records.snapshots import Snapshots, read_snapshots
from ldmnet.records.tables import TUNED
from ldmnet.records.userruns import read_run

Kind = Literal["paper", "comparison", "training"]
NEEDED: dict[Kind, tuple[str, ...]] = {
    "paper": ("table", "per_class", "method", "seed", "accuracy", "n_test", "selection", "paper"),
    "comparison": ("method", "split", "accuracy", "n_train", "n_test", "settings"),
    "training": ("settings", "result"),
}
KINDS = "the folder of a run, or a file of records (*.jsonl)"
TRACE_FILES = ("history.jsonl", "updates.jsonl")


@dataclass(frozen=True, eq=False)
class Run:
    """One run, whatever command made it.

    Attributes:
        kind: what made it.
        source: the name of the file or folder that it was read from.
        method: the method's name, or a study's variation.
        seed: the seed, which also numbers the split.
        record: its line of a file of records, or its run.json.
        file_date: the day on which the file was written.
        history: one dictionary per epoch: loss and, where known, penalty, accuracy and validation.
        updates: one dictionary per update of the regulariser, where they were kept.
        snapshots: the features at some epochs, where they were kept.
    """

    kind: Kind
    source: str
    method: str
    seed: int
    record: Record
    file_date: str
    history: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    snapshots: Snapshots | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for one run that is found in two places."""
        name = self.record.get("hash") or self.record.get("key")
        return (self.record.get("table"), self.method, name) if name else (id(self),)

    @property
    def title(self) -> str:
        """The method's name for people."""
        return title_of(self.method)

    @property
    def result(self) -> Record | None:
        """What the run found; None if it is not finished."""
        return self.record["result"] if self.kind == "training" else self.record

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, some of them nested."""
        return self.record.get("settings") or {}

    @property
    def shared_settings(self) -> dict[str, str]:
        """The settings that all runs of one comparison share, as words."""
        return {name: str(value) for name, value in sorted(self.settings.items()) if name not in ("method", "seed")}

    @property
    def data(self) -> tuple[object, ...]:
        """What tells the data and a network of the user's own from others."""
        return self.record.get("data"), self.record.get("network")

    @property
    def data_name(self) -> str:
        """The data's name for people; its fingerprint where the record has no name."""
        record = self.record
        name = record.get("data_name") or self.settings.get("data") or record.get("table")
        return DATA.get(str(name), str(name)) if name else f"fingerprint {str(record.get('data'))[:12]}"

    @property
    def data_note(self) -> str:
        """What is unusual about the data."""
        return str(self.record.get("data_note") or "")

    @property
    def date(self) -> str:
        """The day of the run, or that of its file where the record does not say."""
        return str(self.record.get("date") or f"{self.file_date} (date of the file)")

    @property
    def command(self) -> str:
        """The command that made the run, where the record has it."""
        return str(self.record.get("command") or "")

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, where they are known."""
        names = self.record.get("class_names") or (self.snapshots.points.class_names if self.snapshots else [])
        return [str(name) for name in names]

    @property
    def shape(self) -> list[int]:
        """The shape of one sample, where it is known."""
        return list(self.record.get("shape") or [])

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of what computed the result."""
        found = self.record.get("versions")
        return found if isinstance(found, dict) else {}

    @property
    def seconds(self) -> dict[str, float]:
        """The time by phase."""
        found = (self.result or {}).get("seconds")
        return {str(name): float(spent) for name, spent in found.items()} if isinstance(found, dict) else {}

    @property
    def statuses(self) -> list[str]:
        """How the solver's updates ended, each kind once."""
        return [str(update["status"]) for update in self.updates] or list(self.record.get("solver") or [])

    @property
    def mass(self) -> str:
        """The form of eq. (19), which decides the solver."""
        method = self.settings.get("method")
        return str(method.get("mass", "lumped")) if isinstance(method, dict) else "lumped"


def title_of(method: str) -> str:
    """Return a method's name for people."""
    plain = method.removesuffix(TUNED)
    return TITLES.get(method) or TITLES.get(plain, plain) + (", tuned" if plain != method else "")


def collect(paths: Iterable[Path]) -> list[Run]:
    """Read the runs behind some paths, in their order; a run that is there twice counts once.

    Raises:
        DataError: a path is missing, holds no run, or one that cannot be read.
    """
    runs: dict[tuple[Any, ...], Run] = {}
    for path in paths:
        for run in _runs_of(path):
            runs[run.key] = _joined(runs[run.key], run) if run.key in runs else run
    return list(runs.values())


def _joined(first: Run, again: Run) -> Run:
    """One run that was found twice, as a record and in its own folder: the last record, and what either kept."""
    return replace(
        first,
        record=again.record,
        history=max(again.history, first.history, key=lambda epochs: len(epochs[0]) if epochs else 0),
        updates=again.updates or first.updates,
        snapshots=again.snapshots or first.snapshots,
    )


def _runs_of(path: Path) -> list[Run]:
    if not path.exists():
        raise DataError(f"{path} does not exist. Name {KINDS}.")
    if path.is_file():
        if path.suffix != ".jsonl":
            raise DataError(f"{path} is not a file of records. Name {KINDS}.")
        return _of_records(path)
    if (path / "run.json").exists():
        record = read_run(path)
        return [_run("training", path.resolve().name, record, path / "run.json", path)]
    if (path / "record.json").exists():
        return [_run("paper", path.resolve().parent.name, _json(path / "record.json"), path / "record.json", path)]
    files = [file for file in sorted(path.glob("*.jsonl")) if file.name not in TRACE_FILES]
    inside = sorted((part for part in path.iterdir() if part.is_dir() and _is_run(part)), key=_when)
    if not files and not inside:
        raise DataError(f"{path} holds no runs. Name {KINDS}.")
    return [run for part in (*files, *inside) for run in _runs_of(part)]


def _when(folder: Path) -> tuple[float, str]:
    """When a folder of `reproduce` was finished, so that the last of several runs counts; else by name."""
    record = folder / "record.json"
    return record.stat().st_mtime if record.exists() else 0.0, folder.name


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("run.json", "record.json", "records.jsonl"))


def _of_records(path: Path) -> list[Run]:
    """Read the runs of a file of records; the traces of a demo or a comparison are beside it."""
    records = read_records([path])
    if not records:
        raise DataError(f"{path} holds no records.")
    name = path.parent.name if path.name == "records.jsonl" else path.name
    return [
        _run(
            "comparison" if "split" in record else "paper",
            name or str(path),
            record,
            path,
            path.parent / "traces" / str(record.get("hash") or record.get("key")),
            f", line {number},",
        )
        for number, record in enumerate(records, 1)
    ]


def _run(kind: Kind, source: str, record: Record, file: Path, trace: Path, where: str = "") -> Run:
    """Make a run of a record, checked, and of what its folder kept."""
    _check(record, kind, f"{file}{where}")
    settings = record.get("settings") or {}
    method = settings.get("method") if kind == "training" else record["method"]
    seed = record["seed"] if kind == "paper" else settings.get("seed", record.get("split", 0))
    snapshots = trace / "snapshots.npz"
    return Run(
        kind=kind,
        source=source,
        method=str(method),
        seed=int(seed or 0),
        record=record,
        file_date=datetime.fromtimestamp(file.stat().st_mtime, timezone.utc).date().isoformat(),
        history=_lines(trace / "history.jsonl", ("epoch", "loss"))
        or [{"epoch": i, "loss": loss} for i, loss in enumerate(record.get("loss_curve") or [])],
        updates=_lines(trace / "updates.jsonl", ("epoch", "status", "solver_steps", "residual", "dual", "energy")),
        snapshots=read_snapshots(snapshots) if snapshots.exists() else None,
    )


def _json(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not a record: {error}.") from error
    if not isinstance(record, dict):
        raise DataError(f"{path} is not a record: not an object.")
    return record


def _check(record: Record, kind: Kind, where: str) -> None:
    """Refuse a record that this version cannot show."""
    missing = [name for name in NEEDED[kind] if name not in record]
    if missing:
        theirs = (record.get("versions") or {}).get("ldmnet") if isinstance(record.get("versions"), dict) else None
        by = f" (it was written by ldmnet {theirs})" if theirs and theirs != ldmnet.__version__ else ""
        raise DataError(f"{where} is not a record that ldmnet {ldmnet.__version__} reads{by}: it lacks {missing[0]}.")
    wrong = [
        name
        for name, good in (
            ("method", lambda v: isinstance(v, str)),
            ("accuracy", lambda v: _is_number(v) or v is None),  # it diverged
            ("seed", _is_number),
            ("split", _is_number),
            ("loss_curve", lambda v: isinstance(v, list) and all(map(_is_number, v))),
            ("settings", lambda v: isinstance(v, dict)),
            ("result", lambda v: v is None or isinstance(v, dict)),
        )
        if name in record and not good(record[name])
    ]
    if wrong:
        raise DataError(f"{where} is not a record: its {wrong[0]} is {str(record[wrong[0]])[:40]!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lines(path: Path, needed: tuple[str, ...]) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = read_records([path])
    for number, line in enumerate(lines, 1):
        missing = [name for name in needed if name not in line]
        if missing:
            raise DataError(f"{path}, line {number}, cannot be read: it lacks {missing[0]}.")
    return lines
