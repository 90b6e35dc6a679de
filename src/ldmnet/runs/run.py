"""One run: a task in, one record out.

    record = execute(Run("mnist", "ldmnet", settings), folder, load=lambda: settings.load(data_dir))

A task says how data is loaded and what is measured: a data set by name (`ldmnet.runs.datasets`), someone's own samples
(`ldmnet.runs.samples`), matching across modalities (`ldmnet.runs.matching`). The run's folder holds `run.json` (its
record), `history.jsonl` (one line per epoch), `updates.jsonl` (one per update of the regulariser), on request
`model.safetensors` and `snapshots.npz`, and until it is done a checkpoint that the same call resumes from.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from torch import nn

import ldmnet
from ldmnet.distributed.launch import joined
from ldmnet.distributed.world import World
from ldmnet.errors import DataError, DivergenceError, StateError
from ldmnet.files import (
    append_line,
    clear_leftovers,
    json_text,
    parse_json,
    read_bounded,
    read_json,
    sealed_json,
    write_atomically,
)
from ldmnet.fingerprints import file_hash
from ldmnet.locks import owned
from ldmnet.records.record import Record, command_line, versions
from ldmnet.records.snapshots import FILE as SNAPSHOTS
from ldmnet.training.checkpoint import save_weights
from ldmnet.training.history import Epoch
from ldmnet.training.loop import Fit
from ldmnet.training.progress import OnEpoch
from ldmnet.training.together import of_first

RECORD, WEIGHTS, CHECKPOINT, HISTORY, UPDATES = (
    "run.json", "model.safetensors", "checkpoint.pt", "history.jsonl", "updates.jsonl",
)  # fmt: skip
BESIDE = (HISTORY, UPDATES, SNAPSHOTS)  # what a report shows beside the record
RUN_FILES = (RECORD, WEIGHTS, CHECKPOINT, *BESIDE)


@dataclass(frozen=True, eq=False)
class Measured:
    """What a task found: fields of its record, the trained network, and fields that are kept with the network only."""

    fields: dict[str, Any]
    model: nn.Module | None = None
    with_model: dict[str, Any] = field(default_factory=dict)


class Task(Protocol):
    """Everything that decides a run's result, how its data is loaded and what is measured."""

    @property
    def seed(self) -> int:
        """Of the run, or the number of its split."""

    @property
    def epochs(self) -> int:
        """Passes over the training set, for a progress bar."""

    @property
    def per_class(self) -> int | None:
        """Training images per class, where the table has sizes."""

    def hash(self) -> str:
        """Twelve hex digits that name the run."""

    def recorded(self) -> dict[str, Any]:
        """The settings, for the record."""

    def load(self, data_dir: str | Path | None) -> Any:
        """The data, ready for `measure`."""

    def described(self, data: Any) -> dict[str, Any]:
        """What the record says of the data, whatever the result: `data`, `n_train`, `n_test` and more."""

    def measure(self, data: Any, watch: Watch) -> Measured:
        """Train, test, and say what came out."""


TaskT = TypeVar("TaskT", bound=Task, covariant=True)


@dataclass(frozen=True)
class Run(Generic[TaskT]):
    """A task with its place in a table.

    Attributes:
        table: which table it belongs to.
        row: the method's name in that table.
        settings: the task.
        selection: how the settings were chosen: "printed", "validation", "default", "given" or "tried".
        paper: the printed accuracy in percent, where there is one.
        size: the table's training images per class, where the settings say None for all.
        more: what else the record says of its place.
    """

    table: str
    row: str
    settings: TaskT
    selection: str = "printed"
    paper: float | None = None
    size: int | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from other runs in a file of records."""
        return self.table, self.row, self.settings.hash()

    def place(self) -> dict[str, Any]:
        """Fields of the record that the place decides."""
        return {
            "table": self.table,
            "method": self.row,
            "per_class": self.settings.per_class if self.size is None else self.size,
            "selection": self.selection,
            "chosen": self.selection != "tried",
            "paper": self.paper,
        }

    def record(self, described: dict[str, Any], **found: Any) -> Record:
        """The record, from what is known of the data and what was found."""
        fields = {
            **self.place(),
            "seed": self.settings.seed,
            "hash": self.settings.hash(),
            "settings": self.settings.recorded(),
            "versions": versions(),
            "command": command_line(),
            "date": datetime.now(timezone.utc).date().isoformat(),
            **described,
            **found,
        }
        content = {**Record(table="", method="", seed=0, hash="", settings={}).to_json(), **fields, **self.more}
        return Record.from_json(parse_json(json_text(content)), self.table)  # as it will be read again


@dataclass(eq=False)
class Watch:
    """What is kept of a run while it trains.

    Attributes:
        folder: the run's.
        snapshots: whether features are kept at about ten epochs, for a report.
        on_epoch: called with every epoch, too.
        begun: written as the record when the first epoch is done: what cannot be trained at all leaves nothing behind.
    """

    folder: Path
    snapshots: bool = False
    on_epoch: OnEpoch | None = None
    begun: Record | None = None
    _started: bool = False

    @property
    def checkpoint(self) -> Path:
        """Where training resumes from."""
        return self.folder / CHECKPOINT

    def __call__(self, epoch: Epoch) -> None:
        """Add an epoch's line to the history; epochs that are done again after a cut replace theirs."""
        path = self.folder / HISTORY
        if not self._started:
            if self.begun is not None:
                write_record(self.folder, self.begun)
            old = read_bounded(path).splitlines(keepends=True) if path.exists() else []
            write_atomically(path, b"".join(old[: epoch.epoch]).decode(errors="replace"))
            self._started = True
        append_line(path, json_text(epoch.as_dict()))
        if self.on_epoch is not None:
            self.on_epoch(epoch)

    def keep_log(self, fit: Fit) -> None:
        """Write the whole history, whatever cuts left of it, and the regulariser's log, where there is one."""
        if fit.history:
            whole = "".join(f"{json_text(epoch.as_dict())}\n" for epoch in fit.history)
            write_atomically(self.folder / HISTORY, whole)
        if fit.regularizer is not None:
            every = fit.method.epochs_per_update
            lines = [{"epoch": i * every, **asdict(update)} for i, update in enumerate(fit.regularizer.log)]
            write_atomically(self.folder / UPDATES, "".join(f"{json_text(line)}\n" for line in lines))


def execute(
    run: Run[Task],
    folder: Path,
    load: Callable[[], Any],
    *,
    on_epoch: OnEpoch | None = None,
    keep_weights: bool = False,
    snapshots: bool = False,
    again: bool = True,
    wait: bool = False,
) -> Record:
    """Run once, resume a run that was cut, or return the record of one that is done.

    Under torchrun all processes call it and train one model; the first writes the folder, and all get its record.

    Args:
        run: what to run.
        folder: the run's own.
        load: gives the data; called only if there is something to do.
        on_epoch: called after every epoch.
        keep_weights: write the trained network, too.
        snapshots: keep features at about ten epochs, for a report.
        again: train a finished run again that lacks its weights or snapshots.
        wait: for another process that is at this run, in place of `BusyError`.

    Raises:
        BusyError: another process is at it.
        StateError: the folder holds another run.
    """
    world = joined()
    if world is not None and world.rank:
        return _follow(world, run, load)
    with owned(folder / "lock", wait=wait):
        clear_leftovers(folder)
        done = read_run(folder) if (folder / RECORD).exists() else None
        if done is not None and done.hash != run.settings.hash():
            _refuse_other(done, run, folder)
            done = None
        needed = [name for name, asked in ((WEIGHTS, keep_weights), (SNAPSHOTS, snapshots)) if asked and again]
        whole = all((folder / name).exists() for name in needed)
        if done is not None and done.finished and (whole or done.diverged):  # one that diverged leaves nothing behind
            (folder / CHECKPOINT).unlink(missing_ok=True)  # a cut may have left it
            return of_first(world, replace(done, **run.place(), more={**done.more, **run.more}))
        of_first(world, None)
        data = load()
        described = run.settings.described(data)
        watch = Watch(folder, snapshots, on_epoch, run.record(described, finished=False))
        try:
            measured = run.settings.measure(data, watch)
        except DivergenceError as error:
            record = run.record(described, diverged=error.why)
        else:
            record = run.record(described, **measured.fields, **(measured.with_model if keep_weights else {}))
            if keep_weights and measured.model is not None:
                save_weights(measured.model, folder / WEIGHTS)
        write_record(folder, record)
        watch.checkpoint.unlink(missing_ok=True)
        return of_first(world, record)


def _follow(world: World, run: Run[Task], load: Callable[[], Any]) -> Record:
    """Train with the first process, which keeps what comes of it."""
    done: Record | None = of_first(world, None)
    if done is not None:
        return done
    with tempfile.TemporaryDirectory(prefix="ldmnet-") as folder, suppress(DivergenceError):  # which the first tells
        run.settings.measure(load(), Watch(Path(folder)))
    record: Record | None = of_first(world, None)
    assert record is not None
    return record


def write_record(folder: Path, record: Record) -> None:
    """Write a run's record into its folder."""
    beside = {name: file_hash(folder / name) for name in BESIDE if record.finished and (folder / name).exists()}
    write_atomically(folder / RECORD, sealed_json(record.to_json() | {"files": beside}))


def read_run(folder: Path) -> Record:
    """The record in a run's folder, finished or not."""
    path = folder / RECORD
    if not path.exists():
        raise DataError(f"{folder} holds no run: {RECORD} is missing. Name a folder that train wrote.")
    content = read_json(path)
    if isinstance(content, dict):
        content.pop("files", None)
    return Record.from_json(content, str(path))


def check_beside(folder: Path) -> None:
    """Refuse a finished run whose history, log of updates or snapshots are not those that it was finished with."""
    content = read_json(folder / RECORD)
    files: Any = content.get("files") if isinstance(content, dict) else None
    for name in BESIDE if isinstance(files, dict) else ():
        if name in files and (folder / name).exists() and file_hash(folder / name) != files[name]:
            raise DataError(
                f"{folder / name} is damaged, or was edited: it is not what the run was finished with. Get it again, "
                "or remove it."
            )


def _refuse_other(old: Record, run: Run[Task], folder: Path) -> None:
    """Refuse a folder that holds another run, if there is anything in it to keep."""
    if not (folder / CHECKPOINT).exists() and (not old.finished or old.diverged):
        return
    new = run.settings.recorded()
    changed = [
        f"{name} {old.settings.get(name)!r} (now {new.get(name)!r})"
        for name in dict.fromkeys((*old.settings, *new))
        if old.settings.get(name) != new.get(name)
    ]
    theirs = old.versions.get("ldmnet", ldmnet.__version__)
    by = "" if theirs == ldmnet.__version__ else f" (by ldmnet {theirs})"
    raise StateError(
        f"{folder} holds another run{by}: {', '.join(changed) or 'other data, read otherwise, or another network'}. "
        "Choose another folder, or delete this one."
    )
