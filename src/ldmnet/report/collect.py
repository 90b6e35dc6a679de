"""What a report is about: paths in, runs out, sorted into groups whose methods are comparable.

A path is a file of records (`results/*.jsonl`), a folder that `demo`, `train`, `compare` or `reproduce` wrote, or a
folder of such folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import ldmnet
from ldmnet.errors import DataError
from ldmnet.records.figures import TITLES
from ldmnet.records.runs import Record, read_records
from ldmnet.records.snapshots import Snapshots, read_snapshots
from ldmnet.records.tables import TUNED, rank, with_the_last_settings
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
        seed: or the number of the split.
        record: its line of a file of records, or its run.json.
        history: one dictionary an epoch: loss and, where known, penalty, accuracy and validation.
        updates: one dictionary an update of the regulariser, where they were kept.
        snapshots: the features at some epochs, where they were kept.
    """

    kind: Kind
    source: str
    method: str
    seed: int
    record: Record
    history: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    snapshots: Snapshots | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for one run that is found in two places."""
        name = self.record.get("hash") or self.record.get("key")
        return (self.record.get("table"), self.method, name) if name else (id(self),)


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
    return list(runs.values())


def _joined(first: Run, again: Run) -> Run:
    """One run that was found twice, as a record and in its own folder: the last record, and what either kept."""
    return Run(
        first.kind, first.source, first.method, first.seed, again.record,
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
        return [_of_training(path)]
    if (path / "record.json").exists():
        return [_of_folder(path)]
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
    """The runs of a file of records; the traces of a demo or a comparison are beside it."""
    records = read_records([path])
    if not records:
        raise DataError(f"{path} holds no records.")
    name = path.parent.name if path.name == "records.jsonl" else path.name
    runs = []
    for number, record in enumerate(records, 1):
        kind: Kind = "comparison" if "split" in record else "paper"
        _check(record, kind, f"{path}, line {number},")
        trace = path.parent / "traces" / str(record.get("hash") or record.get("key"))
        seed = record["seed"] if kind == "paper" else record.get("settings", {}).get("seed", record["split"])
        runs.append(_traced(Run(kind, name or str(path), record["method"], seed, record), trace))
    return runs


def _of_folder(folder: Path) -> Run:
    """A folder of `reproduce`: one record, and its trace beside it."""
    path = folder / "record.json"
    record = _json(path)
    _check(record, "paper", str(path))
    return _traced(Run("paper", folder.resolve().parent.name, record["method"], record["seed"], record), folder)


def _of_training(folder: Path) -> Run:
    """A folder of `train`."""
    record = read_run(folder)
    _check(record, "training", str(folder / "run.json"))
    settings = record["settings"]
    run = Run("training", folder.resolve().name, str(settings.get("method")), settings.get("seed", 0), record)
    return _traced(run, folder)


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
    lines = read_records([path])
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
    return run.kind, run.source, run.record.get("data"), run.record.get("network"), *_shared_settings(run).items()


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
        kept = {id(record) for record in with_the_last_settings([run.record for run in found[method]])}
        by_seed = {run.seed: run for run in found[method] if id(run.record) in kept}  # the last time of each
        yield Series(title_of(method), list(by_seed.values()))


def title_of(method: str) -> str:
    """A method's name for people."""
    plain = method.removesuffix(TUNED)
    return TITLES.get(method) or TITLES.get(plain, plain) + (", tuned" if plain != method else "")
