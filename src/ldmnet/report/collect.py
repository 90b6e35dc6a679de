"""What a report is about: paths in, runs out, sorted into groups whose methods are comparable.

A path is a file of records (`results/*.jsonl`), a folder that `demo`, `train`, `compare` or `reproduce` wrote, or a
folder of such folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ldmnet.errors import DataError
from ldmnet.records.figures import TITLES
from ldmnet.records.record import Record, read_lines, read_records
from ldmnet.records.snapshots import Snapshots, read_snapshots
from ldmnet.records.tables import TUNED, rank
from ldmnet.runs.run import read_run

Kind = Literal["paper", "comparison", "training"]
KINDS = "the folder of a run, or a file of records (*.jsonl)"
TRACE_FILES = ("history.jsonl", "updates.jsonl")


@dataclass(frozen=True, eq=False)
class Run:
    """One run, whatever command made it.

    Attributes:
        kind: what made it.
        source: the name of the file or folder that it was read from.
        method: the method's name, or a study's variation.
        seed: or the number of the split.
        record: its record as one flat dictionary.
        history: one dictionary an epoch: loss and, where known, penalty, accuracy and validation.
        updates: one dictionary an update of the regulariser, where they were kept.
        snapshots: the features at some epochs, where they were kept.
    """

    kind: Kind
    source: str
    method: str
    seed: int
    record: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    snapshots: Snapshots | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for one run that is found in two places."""
        return self.record["table"], self.method, self.record["hash"], self.record["data"], self._folder()

    def _folder(self) -> str:
        """Runs of `train` are told apart by their folders, too."""
        return self.source if self.kind == "training" else ""


@dataclass(frozen=True, eq=False)
class Series:
    """The runs of one method in a group, over seeds."""

    label: str
    runs: list[Run]

    @property
    def traced(self) -> Run:
        """The run to show where one must do: the first with snapshots, else with updates, else the first."""
        return max(self.runs, key=lambda run: (run.snapshots is not None, bool(run.updates), bool(run.history)))


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in method and seed alone.

    Attributes:
        title: what they have in common.
        kind: what made them.
        series: one a method.
    """

    title: str
    kind: Kind
    series: list[Series]

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [run for series in self.series for run in series.runs]


def collect(paths: Iterable[Path]) -> list[Run]:
    """The runs behind some paths, in their order; a run that is there twice counts once.

    Raises:
        DataError: a path is missing, holds no run, or one that cannot be read.
    """
    runs: dict[tuple[Any, ...], Run] = {}
    for path in paths:
        for run in _runs_of(path):
            runs[run.key] = _joined(runs[run.key], run) if run.key in runs else run
    chosen = [run for run in runs.values() if run.record["chosen"]]
    if not chosen:
        raise DataError("none of these runs is in a table: they were only tried, or others have replaced them.")
    return chosen


def _joined(first: Run, again: Run) -> Run:
    """One run that was found twice, as a record and in its own folder: the first record, and what either kept."""
    return Run(
        first.kind, first.source, first.method, first.seed, first.record,
        max(again.history, first.history, key=lambda epochs: len(epochs[0]) if epochs else 0),
        again.updates or first.updates,
        again.snapshots or first.snapshots,
    )  # fmt: skip


def _runs_of(path: Path) -> list[Run]:
    if not path.exists():
        raise DataError(f"{path} does not exist. Name {KINDS}.")
    if path.is_file():
        if path.suffix != ".jsonl":
            raise DataError(f"{path} is not a file of records. Name {KINDS}.")
        return _of_records(path)
    if (path / "run.json").exists():
        return _of_folder(path)
    files = [file for file in sorted(path.glob("*.jsonl")) if file.name not in TRACE_FILES]
    inside = sorted(part for part in path.iterdir() if part.is_dir() and _is_run(part))
    if not files and not inside:
        raise DataError(f"{path} holds no runs. Name {KINDS}.")
    return [run for part in (*files, *inside) for run in _runs_of(part)]


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("run.json", "records.jsonl"))


def _of_records(path: Path) -> list[Run]:
    """The runs of a file of records; the traces of a demo or a comparison are beside it."""
    records = read_records([path])
    if not records:
        raise DataError(f"{path} holds no records.")
    name = path.parent.name if path.name == "records.jsonl" else path.name
    return [_traced(_run(record, name or str(path)), path.parent / "runs" / record.hash) for record in records]


def _run(record: Record, source: str) -> Run:
    kind: Kind = "training" if record.table == "training" else "comparison" if record.table == "comparison" else "paper"
    return Run(kind, source, record.method, record.seed, record.to_json())


def _of_folder(folder: Path) -> list[Run]:
    """One run's own folder; of those that are not finished, only what `train` wrote is shown."""
    record, here = read_run(folder), folder.resolve()
    source = here.name if record.table == "training" else here.parent.name
    return [_traced(_run(record, source), folder)] if record.finished or record.table == "training" else []


def _traced(run: Run, folder: Path) -> Run:
    """The run with what its folder kept."""
    curve = run.record.get("loss_curve") or []
    history = [{"epoch": i, "loss": loss} for i, loss in enumerate(curve)]
    snapshots = folder / "snapshots.npz"
    return Run(
        run.kind, run.source, run.method, run.seed, run.record,
        history=_lines(folder / "history.jsonl", ("epoch", "loss")) or history,
        updates=_lines(folder / "updates.jsonl", ("epoch", "status", "solver_steps", "residual", "dual", "energy")),
        snapshots=read_snapshots(snapshots) if snapshots.exists() else None,
    )  # fmt: skip


def _lines(path: Path, needed: tuple[str, ...]) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = read_lines(path)
    for number, line in enumerate(lines, 1):
        missing = [name for name in needed if name not in line]
        if missing:
            raise DataError(f"{path}, line {number}, cannot be read: it lacks {missing[0]}.")
    return lines


def groups_of(runs: Iterable[Run]) -> list[Group]:
    """Sort runs into groups: by table and training size, by comparison, or by the data that they were trained on."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(group_key(run), []).append(run)
    groups = [_group(members) for members in found.values()]
    named = [_told_apart(groups, group, _difference(groups, group)) for group in groups]
    return [_told_apart(named, group, f"{number} of {len(named)}") for number, group in enumerate(named, 1)]


def _told_apart(groups: list[Group], group: Group, how: str) -> Group:
    alike = sum(other.title == group.title for other in groups) > 1
    return replace(group, title=f"{group.title} ({how})") if alike and how else group


def _difference(groups: list[Group], group: Group) -> str:
    """What tells a group from others of its title: the settings of a comparison, the source of other runs."""
    if group.kind != "comparison":
        return group.runs[0].source
    others = [_shared_settings(other.runs[0]) for other in groups if other.title == group.title]
    mine = _shared_settings(group.runs[0])
    return ", ".join(
        f"{name} {value}" for name, value in mine.items() if any(other.get(name) != value for other in others)
    )


def _shared_settings(run: Run) -> dict[str, str]:
    """The settings that all runs of one comparison share, as words."""
    settings = run.record.get("settings") or {}
    return {name: str(value) for name, value in sorted(settings.items()) if name not in ("method", "seed")}


def group_key(run: Run) -> tuple[Any, ...]:
    """What runs have in common that may stand side by side."""
    if run.kind == "paper":
        return run.kind, run.source, run.record["table"], run.record["per_class"]
    if run.kind == "training":
        return run.kind, run.record.get("data")
    return run.kind, run.source, run.record.get("data"), *_shared_settings(run).items()


def _group(runs: list[Run]) -> Group:
    first = runs[0]
    if first.kind == "paper":
        size = first.record["per_class"]
        title = str(first.record["table"]) + ("" if size is None else f", {size} images a class")
        return Group(title, first.kind, list(_by_method(runs)))
    if first.kind == "comparison":
        return Group(f"Comparison {first.source}", first.kind, list(_by_method(runs)))
    title = f"Run {first.source}" if len(runs) == 1 else "Runs on the same data"
    names = [f"{run.source}: {title_of(run.method)}" if len(runs) > 1 else title_of(run.method) for run in runs]
    return Group(title, first.kind, [Series(name, [run]) for name, run in zip(names, runs, strict=True)])


def _by_method(runs: list[Run]) -> Iterator[Series]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.method, []).append(run)
    for method in sorted(found, key=lambda name: rank(name)[0]):
        yield Series(title_of(method), list({run.seed: run for run in found[method]}.values()))


def title_of(method: str) -> str:
    """A method's name for people."""
    plain = method.removesuffix(TUNED)
    return TITLES.get(method) or TITLES.get(plain, plain) + (", tuned" if plain != method else "")
