"""Groups of runs to tables: results beside the paper's numbers, settings, versions; and a sentence per method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ldmnet.palette import TUNED, title_of
from ldmnet.paper.presets import SETUP, paper_table
from ldmnet.records.comparison import compared_rows
from ldmnet.records.tables import TableRow, score_words, table_rows
from ldmnet.report.collect import Run
from ldmnet.report.groups import Group, group_key, groups_of

MINUS = "\N{MINUS SIGN}"
METHOD_WORDS = {
    "none": "The network trained on its labels alone.",
    "weight_decay": "Large weights cost: w times their sum of squares is added to the loss, eq. (24).",
    "dropout": "At each training step a random part of the features is set to zero.",
    "control": "LDMNet's loop without its graph: features are pulled toward where they were, not toward each other.",
    "ldmnet": "Features are pulled toward targets that vary smoothly over a graph of each class's nearest neighbours, "
    "so that they stay on a surface of few dimensions.",
}


@dataclass(frozen=True)
class Body:
    """Some rows of a table under one heading, the first cell of each its head; `best` is the row to stress."""

    title: str
    rows: list[list[str]]
    best: int | None = None


@dataclass(frozen=True)
class Table:
    """A table of words.

    Attributes:
        caption: what it shows, in a few words.
        head: one title per column.
        bodies: its rows.
        note: sentences that belong to it.
        folded: whether it is shown on request only.
    """

    caption: str
    head: list[str]
    bodies: list[Body]
    note: str = ""
    folded: bool = False


def plain(caption: str, head: list[str], rows: list[list[str]], *, note: str = "", folded: bool = False) -> Table:
    """A table in one piece."""
    return Table(caption, head, [Body("", rows)], note, folded)


# ---- results


def results(runs: Sequence[Run]) -> list[Table]:
    """Every table that the runs make, in the order they came; comparisons of other data or settings have their own."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(_table_key(run), []).append(run)
    titles = {group_key(group.runs[0]): group.title for group in groups_of(runs)}
    make = {"paper": _paper, "training": _training}
    return [
        _comparison(members, titles[key]) if key[0] == "comparison" else make[key[0]](members)
        for key, members in found.items()
    ]


def _table_key(run: Run) -> tuple[Any, ...]:
    if run.kind == "paper":
        return run.kind, run.source, run.record.table
    return group_key(run) if run.kind == "comparison" else (run.kind,)


def _paper(runs: list[Run]) -> Table:
    """Methods down, by training size: ours, the printed number, the difference."""
    name = runs[0].record.table
    rows = table_rows([run.record for run in runs], name)
    printed = any(row.paper is not None for row in rows)
    bodies = []
    for size in dict.fromkeys(row.per_class for row in rows):
        members = [row for row in rows if row.per_class == size]
        title = "" if size is None else f"{size} training images per class"
        numbers = [_paper_row(row, printed) for row in members]
        bodies.append(Body(title, numbers, _best([row.mean for row in members])))
    tests = " or ".join(f"{n:,}" for n in sorted({row.n_test for row in rows}))
    words = f"From {runs[0].source}: accuracy in percent on {tests} test samples"
    words += ", mean ± standard deviation over the seeds." if any(row.std is not None for row in rows) else "."
    if printed and name in SETUP:
        table = paper_table(name)
        words += f" The paper's numbers are those of its {table.source}"
        words += "." if table.name == name else f" ({table.name.upper()}, its own test images)."
    head = ["method", "here", *(["paper", "differ\N{SOFT HYPHEN}ence"] if printed else []), "seeds"]
    return Table(f"Accuracy on {name}, %", head, bodies, words)


def _best(means: list[float | None]) -> int | None:
    """The place of the first highest number."""
    known = [mean for mean in means if mean is not None]
    return means.index(max(known)) if known else None


def _paper_row(row: TableRow, printed: bool) -> list[str]:
    paper = ["" if row.paper is None else f"{row.paper:.2f}"]
    paper.append("" if row.paper is None or row.mean is None else f"{row.mean - row.paper:+.2f}".replace("-", MINUS))
    return [title_of(row.method), score_words(row.mean, row.std), *(paper if printed else []), str(row.seeds)]


def _comparison(runs: list[Run], title: str) -> Table:
    rows, cells = compared_rows([run.record for run in runs]), []
    for row in rows:
        accuracy, splits, gain, p, seconds = row.words
        name = title_of(row.method) + (" *" if row.ended_badly else "")
        cells.append([name, accuracy, gain.replace("-", MINUS), p, splits, seconds])
    words = (
        "Accuracy: the share of the part held out that a method gets right, mean ± standard deviation over the splits. "
        "p: how often chance alone would make a difference from LDMNet at least as large (a paired test over the "
        "splits); below 0.05 is often taken for real. The paper has no numbers for this data."
    )
    if any(row.ended_badly for row in rows):
        words += " Rows with * ended badly on one split or more: training itself failed there."
    head = ["method", "accuracy", "LDMNet is better by", "p", "splits", "seconds per split"]
    return Table(f"{title}, %", head, [Body("", cells, _best([row.mean for row in rows]))], words)


def _training(runs: list[Run]) -> Table:
    rows = []
    for run in runs:
        record, found = run.record, ["", ""]
        if not record.finished:
            accuracy = "not finished"
        elif record.diverged:
            accuracy = "diverged"
        else:
            accuracy = "none held out" if record.accuracy is None else f"{record.accuracy:.2f}"
            loss = record.more.get("train_loss")
            found = ["" if loss is None else f"{loss:.4g}", str(record.n_train)]
        rows.append([run.source, run.title, accuracy, *found])
    head = ["run", "method", "test accuracy, %", "training loss", "training samples"]
    return plain("Runs on your own data", head, rows, note="The paper has no numbers for this data.")


def terms(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Explain the methods that were run, one sentence each."""
    there = {run.record.method.removesuffix(TUNED) for run in runs}
    words = [(title_of(method), sentence) for method, sentence in METHOD_WORDS.items() if method in there]
    if any(run.record.method.endswith(TUNED) for run in runs):
        words.append(("tuned", "With settings that were chosen on validation data, not those that the paper prints."))
    return words


# ---- settings and versions


def settings(group: Group) -> list[Table]:
    """What all runs of a group share, what differs by method, and the versions."""
    flat = {series.label: [_flat(run.record.settings) for run in series.runs] for series in group.series}
    names = list(dict.fromkeys(name for found in flat.values() for run in found for name in run))
    shared, varied = [], []
    for name in names:
        cells = [_values(run.get(name) for run in found) for found in flat.values()]
        if len(set(cells)) == 1:
            shared.append([name, cells[0]])
        else:
            varied.append([name, *cells])
    tables = []
    if varied:
        tables.append(plain("Settings that differ", ["setting", *flat], varied))
    if shared:
        title = "Settings that all these runs share" if len(group.runs) > 1 else "Settings"
        tables.append(plain(title, ["setting", "value"], shared, folded=True))
    spent = [[series.label, *_seconds(series.runs)] for series in group.series]
    if any(row[1] for row in spent):
        tables.append(plain("Time per run, in seconds", ["method", "in all", "by phase"], spent))
    known = [run.record.versions for run in group.runs if run.record.versions]
    names = list(dict.fromkeys(name for v in known for name in v))
    if names:
        rows = [[name, _values(v.get(name) for v in known)] for name in names]
        tables.append(plain("Versions", ["package", "version"], rows, folded=True))
    return tables


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    out: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{before}{name}.")
        else:
            out[before + str(name)] = value
    return out


def _values(values: Iterable[object]) -> str:
    words = dict.fromkeys(f"{v:.6g}" if isinstance(v, float) else "" if v is None else str(v) for v in values)
    return ", ".join(words)


def _seconds(runs: list[Run]) -> list[str]:
    """The mean time of a method's runs, in all and by phase."""
    known = [run.record.seconds for run in runs if run.record.seconds]
    if not known:
        return ["", ""]
    phases = {name: sum(spent.get(name, 0) for spent in known) / len(known) for name in known[0]}
    return [f"{sum(phases.values()):.1f}", ", ".join(f"{name} {value:.1f}" for name, value in phases.items())]
