"""One run's record: what was run, on what, how it ended, and whether tables show it.

A file of records has one line of JSON per run. Lines are only added. Where the settings of a row change, `append`
marks the row's other records as not chosen, so the order of the lines says nothing.
"""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy
import torch

import ldmnet
from ldmnet.errors import DataError
from ldmnet.files import append_line, mend_tail, read_json_lines, sealed_json, write_atomically
from ldmnet.locks import owned

FORMAT = 1
Number, Text, Whole = float | None, str | None, int | None
MORE: dict[str, Any] = {  # what `more` may hold that others count with, by name
    **dict.fromkeys(("train_loss", "test_loss", "val_accuracy", "val_loss", "strength", "mu", "lambda_tilde"), Number),
    **dict.fromkeys(("solver", "class_names"), list[str]),
    "best_epoch": Whole,
    "shape": list[int],
    "columns": list[str] | None,
    "label": Text,
    "data_name": Text,
    "reading": dict[str, Any],
    "preprocessing": dict[str, Any],
}
PERCENT = ("accuracy", "paper", "val_accuracy")
OF_THE_RUN = ("seed", "split", "threads")  # settings in which the runs of a cell may differ


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run.

    Attributes:
        table: the table, study, comparison, search or training that it belongs to.
        method: its row there: a method, or a study's variation.
        seed: of the run, or the number of its split.
        per_class: training images per class, where the table has sizes.
        selection: why these settings: "printed", "validation", "default", "given", or "tried" in a search.
        chosen: whether tables show it; a run of settings that others have replaced, or that were only tried, is not.
        paper: the printed accuracy in percent, where there is one.
        hash: names the run: its settings and, for someone's own data, the data.
        settings: everything that decides the result, beside the data.
        data: names the samples and how they were split.
        accuracy: test accuracy in percent; None where it diverged or nothing was held out.
        n_train: training samples.
        n_test: test samples.
        diverged: why there is no result, in words; empty where there is one.
        ended_badly: the sentences of every `ldmnet.errors.BadEndWarning`.
        loss_curve: the training loss by epoch.
        seconds: by phase.
        versions: of what computed it.
        date: the day on which it was finished; empty in records of earlier versions.
        command: the command that made it, where it was one of ours.
        data_note: what is odd about the data.
        finished: False in the folder of a run that is being trained, or was cut.
        format: of the record, as a number.
        more: what this kind of run measures besides.
    """

    table: str
    method: str
    seed: int
    per_class: int | None = None
    selection: str = "given"
    chosen: bool = True
    paper: float | None = None
    hash: str
    settings: dict[str, Any]
    data: str = ""
    accuracy: float | None = None
    n_train: int = 0
    n_test: int = 0
    diverged: str = ""
    ended_badly: list[str] = field(default_factory=list)
    loss_curve: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    command: str = ""
    data_note: str = ""
    finished: bool = True
    format: int = FORMAT
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The accuracy, None where it diverged: matching keeps what the last good weights gave."""
        return None if self.diverged else self.accuracy

    @property
    def validates(self) -> bool:
        """Whether a run of matching was judged on validation people: its accuracy chooses, and is no test."""
        return self.settings.get("part") == "validation"

    def to_json(self) -> dict[str, Any]:
        """One flat dictionary, which `from_json` reads."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "more"}
        return {**own, **self.more}

    @classmethod
    def from_json(cls, content: object, where: str) -> Record:
        """Read and validate a dictionary that `to_json` made; `where` is named in an error."""
        if not isinstance(content, dict):
            raise DataError(f"{where} is not a record: not an object.")
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        lacks = [name for name in ("format", *needed) if name not in content]
        if lacks:
            theirs = content.get("versions")
            by = f" (it was written by ldmnet {theirs.get('ldmnet')})" if isinstance(theirs, dict) and theirs else ""
            raise DataError(
                f"{where} is not a record that ldmnet {ldmnet.__version__} reads{by}: it lacks {', '.join(lacks)}."
            )
        if content["format"] != FORMAT:
            raise DataError(f"{where} is a record of format {content['format']!r}, and this version reads {FORMAT}.")
        wrong = [name for name, hint in _hints().items() if name in content and not _fits(content[name], hint)]
        wrong += [name for name in PERCENT if name not in wrong and not 0 <= (content.get(name) or 0) <= 100]
        if wrong:
            raise DataError(f"{where} is not a record: its {wrong[0]} is {str(content[wrong[0]])[:40]!r}.")
        known = {f.name for f in fields(cls)} - {"more"}
        more = {name: value for name, value in content.items() if name not in known}
        return cls(**{name: value for name, value in content.items() if name in known}, more=more)


@cache
def _hints() -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(Record).items() if name != "more"} | MORE


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that JSON gave is of a field's type; whole numbers are numbers, true and false are none."""
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(one, get_args(hint)[0]) for one in value)
    if get_origin(hint) is dict and get_args(hint)[1] is not Any:
        return isinstance(value, dict) and all(_fits(one, get_args(hint)[1]) for one in value.values())
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else get_origin(hint) or hint)


def versions() -> dict[str, str]:
    """The versions that a run's numbers may depend on."""
    return {
        "ldmnet": ldmnet.__version__,
        "torch": torch.__version__.split("+")[0],
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def command_line() -> str:
    """This process's own command, with names in place of absolute paths; empty in a program of somebody else's."""
    program, *words = sys.argv or [""]
    if Path(program).name not in ("ldmnet", "__main__.py"):
        return ""
    return shlex.join(["ldmnet", *(Path(word).name if Path(word).is_absolute() else word for word in words)])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a line that is none is named."""
    found = read_json_lines(path)
    for number, content in enumerate(found, 1):
        if not isinstance(content, dict):
            raise DataError(f"{path}, line {number}, is not a record: not an object.")
    return found


def read_records(paths: Iterable[Path]) -> list[Record]:
    """The records of some JSON-lines files; a line that is not one is named."""
    return [
        Record.from_json(content, f"{path}, line {number},")
        for path in paths
        for number, content in enumerate(read_lines(path), 1)
    ]


def append(path: Path, record: Record) -> None:
    """Add a record to a file, once.

    If it is chosen, the records of its cell with other settings are so no more; if it is there already, it is chosen
    again. Settings that a user gave replace nothing. Processes that write to one file take turns.
    """
    with owned(path.with_name(f".{path.name}.lock"), wait=True):
        if path.exists():
            mend_tail(path)
        old = read_records([path]) if path.exists() else []
        new = [_beside(other, record) for other in old]
        if not any(_same_run(other, record) for other in old):
            new.append(record)
        if new[: len(old)] != old:
            write_atomically(path, "".join(f"{_line(one)}\n" for one in new))
        elif len(new) > len(old):
            append_line(path, _line(record))


def _line(record: Record) -> str:
    return sealed_json(record.to_json())


def _same_run(first: Record, second: Record) -> bool:
    return (*cell_of(first), first.hash, first.data) == (*cell_of(second), second.hash, second.data)


def _beside(old: Record, new: Record) -> Record:
    """An earlier record as it is once another one is there."""
    if not new.chosen or new.selection == "given" or cell_of(old) != cell_of(new):
        return old
    return replace(old, chosen=alike(old.settings, new.settings) and (old.chosen or _same_run(old, new)))


def cell_of(record: Record) -> tuple[str, int | None, str]:
    """The place in a table that the runs of all seeds share."""
    return record.table, record.per_class, record.method


def alike(first: object, second: object) -> bool:
    """Whether settings differ in seed, split or threads at most; what only one of two names is no difference."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return first == second
    return all(alike(first[key], second[key]) for key in first.keys() & second.keys() if key not in OF_THE_RUN)


def chosen_by_seed(records: Sequence[Record]) -> dict[int, Record]:
    """The chosen records of one cell by seed, sorted; refuses records of two settings that are both chosen."""
    found = [record for record in records if record.chosen]
    for record in found[1:]:
        if not alike(record.settings, found[0].settings):
            raise DataError(
                f"{record.table}, {record.method}: the runs {found[0].hash} and {record.hash} have other settings and "
                'both are marked as chosen. Mark one of them in its record, and remove its "sum": "chosen": false.'
            )
    by_seed: dict[int, Record] = {}
    for record in found:
        twin = by_seed.setdefault(record.seed, record)
        if twin.accuracy != record.accuracy:
            raise DataError(
                f"{record.table}, {record.method}, seed {record.seed}: two records say {twin.accuracy} and "
                f"{record.accuracy}. Remove one of them."
            )
    return dict(sorted(by_seed.items()))
