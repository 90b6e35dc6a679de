"""Read what a report is about: paths in, runs out. Everything that knows a file's format or a record's keys is here.

A path is a file of records (`results/*.jsonl`), a folder that `demo`, `train`, `compare` or `reproduce` wrote, or a
folder of such folders.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from ldmnet.errors import DataError
from ldmnet.palette import title_of
from ldmnet.records.figures import DATA
from ldmnet.records.record import Record, read_lines, read_records
from ldmnet.records.snapshots import FILE as SNAPSHOTS
from ldmnet.records.snapshots import Snapshots, read_snapshots
from ldmnet.runs.run import HISTORY, RECORD, UPDATES, check_beside, read_run

Kind = Literal["paper", "comparison", "training"]
KINDS = "the folder of a run, or a file of records (*.jsonl)"


@dataclass(frozen=True, eq=False)
class Run:
    """One run, whatever command made it.

    Attributes:
        record: its record.
        source: the name of the file or folder that it was read from.
        file_date: the day on which the file was written.
        history: one dictionary per epoch: loss and, where known, penalty, accuracy and validation.
        updates: one dictionary per update of the regulariser, where they were kept.
        snapshots: the features at some epochs, where they were kept.
    """

    record: Record
    source: str
    file_date: str
    history: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    snapshots: Snapshots | None = None

    @property
    def kind(self) -> Kind:
        """The kind of command that made it."""
        table = self.record.table
        return "training" if table == "training" else "comparison" if table == "comparison" else "paper"

    @property
    def key(self) -> tuple[str, ...]:
        """The same for one run that is found in two places; runs of `train` are told apart by their folders, too."""
        record = self.record
        return record.table, record.method, record.hash, record.data, self.source if self.kind == "training" else ""

    @property
    def title(self) -> str:
        """The method's name for people."""
        return title_of(self.record.method)

    @property
    def shared_settings(self) -> dict[str, str]:
        """The settings that all runs of one comparison share, as words."""
        return {name: str(v) for name, v in sorted(self.record.settings.items()) if name not in ("method", "seed")}

    @property
    def data_name(self) -> str:
        """The data's name for people."""
        name = str(self.record.more.get("data_name") or self.record.settings.get("data") or self.record.table)
        return DATA.get(name, name)

    @property
    def date(self) -> str:
        """The day of the run, or that of its file where the record does not say."""
        return self.record.date or f"{self.file_date} (date of the file)"

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, where they are known."""
        return self.record.more.get("class_names") or (self.snapshots.points.class_names if self.snapshots else [])

    @property
    def statuses(self) -> list[str]:
        """How the solver's updates ended, each kind once."""
        return [str(update["status"]) for update in self.updates] or list(self.record.more.get("solver") or [])

    @property
    def mass(self) -> str:
        """The form of eq. (19), which decides the solver."""
        method = self.record.settings.get("method")
        return str(method.get("mass", "lumped")) if isinstance(method, dict) else "lumped"


def collect(paths: Iterable[Path]) -> list[Run]:
    """Read the runs behind some paths, in their order; a run that is there twice counts once.

    Raises:
        DataError: a path is missing, holds no run, or one that cannot be read.
    """
    runs: dict[tuple[Any, ...], Run] = {}
    for path in paths:
        for run in _runs_of(path):
            runs[run.key] = _joined(runs[run.key], run) if run.key in runs else run
    chosen = [run for run in runs.values() if run.record.chosen]
    if not chosen:
        raise DataError("none of these runs is in a table: they were only tried, or others have replaced them.")
    return chosen


def _joined(first: Run, again: Run) -> Run:
    """One run that was found twice, as a record and in its own folder: the first record, and what either kept."""
    return replace(
        first,
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
    if (path / RECORD).exists():
        return _of_folder(path)
    files = [file for file in sorted(path.glob("*.jsonl")) if file.name not in (HISTORY, UPDATES)]
    inside = sorted(part for part in path.iterdir() if part.is_dir() and _is_run(part))
    if not files and not inside:
        raise DataError(f"{path} holds no runs. Name {KINDS}.")
    return [run for part in (*files, *inside) for run in _runs_of(part)]


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (RECORD, "records.jsonl"))


def _of_records(path: Path) -> list[Run]:
    """Read the runs of a file of records; the traces of a demo or a comparison are beside it."""
    records = read_records([path])
    if not records:
        raise DataError(f"{path} holds no records.")
    name = path.parent.name if path.name == "records.jsonl" else path.name
    return [_run(record, name or str(path), path, path.parent / "runs" / record.hash) for record in records]


def _of_folder(folder: Path) -> list[Run]:
    """One run's own folder; of those that are not finished, only what `train` wrote is shown."""
    record, here = read_run(folder), folder.resolve()
    source = here.name if record.table == "training" else here.parent.name
    shown = record.finished or record.table == "training"
    return [_run(record, source, folder / RECORD, folder)] if shown else []


def _run(record: Record, source: str, file: Path, trace: Path) -> Run:
    """Make a run of a record and of what its folder kept."""
    if (trace / RECORD).exists():
        check_beside(trace)
    return Run(
        record,
        source,
        file_date=datetime.fromtimestamp(file.stat().st_mtime, timezone.utc).date().isoformat(),
        history=_lines(trace / HISTORY, ("epoch", "loss"))
        or [{"epoch": i, "loss": loss} for i, loss in enumerate(record.loss_curve)],
        updates=_lines(trace / UPDATES, ("epoch", "status", "solver_steps", "residual", "dual", "energy")),
        snapshots=read_snapshots(trace / SNAPSHOTS) if (trace / SNAPSHOTS).exists() else None,
    )


def _lines(path: Path, needed: tuple[str, ...]) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = read_lines(path)
    for number, line in enumerate(lines, 1):
        missing = [name for name in needed if name not in line]
        if missing:
            raise DataError(f"{path}, line {number}, cannot be read: it lacks {missing[0]}.")
    return lines
