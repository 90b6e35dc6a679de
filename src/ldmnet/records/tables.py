"""Tables: pure functions of records."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ldmnet.errors import DataError
from ldmnet.palette import TUNED
from ldmnet.records.record import Record, chosen_by_seed, read_records
from ldmnet.training.methods import METHODS

Format = Literal["md", "latex", "csv", "json"]
ORDER = METHODS + tuple(method + TUNED for method in METHODS)


@dataclass(frozen=True)
class TableRow:
    """One cell of a table, over its seeds.

    Attributes:
        table: the table's name.
        per_class: training images per class, None for all.
        method: the method's name in that table.
        mean: mean accuracy in percent, None where a seed diverged.
        std: its standard deviation over seeds (ddof = 1), None for one seed.
        seeds: how many seeds.
        n_test: test images.
        selection: how the settings were chosen.
        paper: the printed accuracy, where there is one.
    """

    table: str
    per_class: int | None
    method: str
    mean: float | None
    std: float | None
    seeds: int
    n_test: int
    selection: str
    paper: float | None


def records_in(folder: Path | None = None) -> list[Record]:
    """All records of a folder of JSON-lines files; the repository's `results` unless given."""
    folder = folder or committed_results()
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise DataError(f"there are no records (*.jsonl) in {folder}. Name the folder that holds them.")
    return read_records(files)


def committed_results() -> Path:
    """`results` in the working folder, or in the checkout that this package is installed from."""
    here = Path("results")
    checkout = Path(__file__).parents[3] / "results"
    return here if here.is_dir() or not checkout.is_dir() else checkout


def table_rows(records: Iterable[Record], table: str) -> list[TableRow]:
    """The cells of one table, of the records that are marked as chosen."""
    rows = []
    for (per_class, method), by_seed in cells_of(records, table).items():
        found = list(by_seed.values())
        mean, std = mean_and_spread(r.score for r in found)
        rows.append(
            TableRow(
                table=table,
                per_class=per_class,
                method=method,
                mean=mean,
                std=std,
                seeds=len(found),
                n_test=found[-1].n_test,
                selection=found[-1].selection,
                paper=found[-1].paper,
            )
        )
    return sorted(rows, key=_position)


def cells_of(records: Iterable[Record], table: str) -> dict[tuple[int | None, str], dict[int, Record]]:
    """Size and method -> seed -> the chosen record."""
    cells: dict[tuple[int | None, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.table == table and record.chosen:
            cells[record.per_class, record.method].append(record)
    return defaultdict(dict, {cell: chosen_by_seed(found) for cell, found in cells.items()})


def other_data(records: Iterable[Record], table: str) -> list[str]:
    """The rows of a table that are of other data than LDMNet's, or than most where it has none."""
    by_size: dict[int | None, dict[str, dict[int, Record]]] = defaultdict(dict)
    for (size, method), by_seed in cells_of(records, table).items():
        by_size[size][method] = by_seed

    def apart(one: Mapping[int, Record], other: Mapping[int, Record]) -> bool:
        return any(one[seed].data != other[seed].data for seed in one.keys() & other.keys())

    found = []
    for rows in by_size.values():
        most = min(rows.values(), key=lambda row: sum(apart(row, other) for other in rows.values()))
        first = next((rows[name] for name in ("ldmnet" + TUNED, "ldmnet") if name in rows), most)
        found += [method for method, by_seed in rows.items() if apart(by_seed, first)]
    return list(dict.fromkeys(found))


def mean_and_spread(scores: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation (ddof = 1); no mean if a score is missing: one over the others would flatter."""
    found = list(scores)
    there = [score for score in found if score is not None]
    if not there or len(there) < len(found):
        return None, None
    return round(statistics.fmean(there), 4), round(statistics.stdev(there), 4) if len(there) > 1 else None


def score_words(mean: float | None, std: float | None, *, best: bool = False) -> str:
    """Write a mean and its spread, or that a run diverged; the best one in bold."""
    if mean is None:
        return "diverged"
    number = f"**{mean:.2f}**" if best else f"{mean:.2f}"
    return number if std is None else f"{number} ± {std:.2f}"


def _position(row: TableRow) -> tuple[float, int, str]:
    return float("inf") if row.per_class is None else row.per_class, *rank(row.method)


def rank(method: str) -> tuple[int, str]:
    """Where a row stands among the others: the methods as the paper has them, then the rest by name."""
    return ORDER.index(method) if method in ORDER else len(ORDER), method


def format_table(rows: Sequence[TableRow], style: Format) -> str:
    """Rows as JSON, CSV, Markdown or LaTeX."""
    if style == "json":
        return json.dumps([asdict(row) for row in rows], indent=1)
    if style == "csv":
        return comma_separated([list(TableRow.__dataclass_fields__), *(list(asdict(row).values()) for row in rows)])
    sized = any(row.per_class is not None for row in rows)
    lines = _by_size(rows) if sized else _by_method(rows)
    return _latex(lines) if style == "latex" else markdown(lines, "---:" if sized else "---")


def _by_method(rows: Sequence[TableRow]) -> list[list[str]]:
    best = _best(rows)
    lines = [[words(row.method), _cell(row, best), str(row.seeds), row.selection] for row in rows]
    return [["method", "mean", "seeds", "selection"], *lines]


def _by_size(rows: Sequence[TableRow]) -> list[list[str]]:
    """Sizes down, as printed and then tuned; methods across, the printed number behind ours; how many seeds."""
    cell = {(row.per_class, row.method): row for row in rows}
    names = sorted({row.method for row in rows}, key=rank)
    methods = list(dict.fromkeys(name.removesuffix(TUNED) for name in names))
    tuned = any(row.method.endswith(TUNED) for row in rows)
    lines = [["per class", *(["settings"] if tuned else []), *map(words, methods), "seeds"]]
    for size in dict.fromkeys(row.per_class for row in rows):
        best = _best(row for row in rows if row.per_class == size)
        for kind in ("", TUNED):
            line = [cell.get((size, method + kind)) for method in methods]
            if any(line):
                head = [size_word(size), *([("tuned" if kind else "printed")] if tuned else [])]
                cells = ["" if row is None else _cell(row, best) for row in line]
                lines.append([*head, *cells, _span(row.seeds for row in line if row is not None)])
    return lines


def _best(rows: Iterable[TableRow]) -> float | None:
    return max((row.mean for row in rows if row.mean is not None), default=None)


def _span(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    return str(found[0]) if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def words(method: str) -> str:
    """A row's name with spaces."""
    return method.replace("_", " ")


def size_word(per_class: int | None) -> str:
    """Training images per class, for people."""
    return "all" if per_class is None else str(per_class)


def markdown(lines: Sequence[Sequence[str]], first: str = "---") -> str:
    """A heading and rows, all columns but the first to the right."""
    rule = "|" + "|".join([first, *["---:"] * (len(lines[0]) - 1)]) + "|"
    table = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([table[0], rule, *table[1:]])


def comma_separated(lines: Iterable[Sequence[object]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().rstrip("\n")


def _latex(lines: Sequence[Sequence[str]]) -> str:
    head, *body = (
        re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", " & ".join(line)).replace("±", r"$\pm$") + r" \\" for line in lines
    )
    columns = "r" * len(lines[0])
    rule = r"\hline"
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", rule, head, rule, *body, rule, r"\end{tabular}"])


def _cell(row: TableRow, best: float | None) -> str:
    printed = "" if row.paper is None else f" ({row.paper:.2f})"
    return score_words(row.mean, row.std, best=row.mean == best) + printed


def format_study(records: Iterable[Record], first: str = "as printed") -> str:
    """A study as Markdown: each variation's validation and test accuracy, and its gain over the variation `first`.

    The gain is over the seeds that both have, and is left open if the first diverged or is not there. Matching is
    studied on validation people alone: there the accuracy is theirs, and nothing was tested.
    """
    records = list(records)
    people = all(record.validates for record in records)
    by_name: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_name[record.method].append(record)
    lines = [["variation", "validation", "test", "gain (validation)", "seeds"]]
    start: dict[int, Any] = {}
    for name in sorted(by_name, key=lambda name: name != first):
        by_seed = chosen_by_seed(by_name[name])
        validation: dict[int, Any] = {s: r.score if people else r.more["val_accuracy"] for s, r in by_seed.items()}
        if None in validation.values():
            lines.append([name, "diverged", "diverged", "", str(len(by_seed))])
            continue
        start = validation if name == first else start
        gains = [validation[seed] - start[seed] for seed in validation if seed in start]
        gain = f"{round(statistics.fmean(gains), 2) + 0.0:+.2f}" if gains else ""  # never -0.00
        test = score_words(*mean_and_spread(r.accuracy for r in by_seed.values()))
        lines.append([name, f"{statistics.fmean(validation.values()):.2f}", test, gain, str(len(by_seed))])
    if people:
        lines = [[cell for place, cell in enumerate(line) if place != 2] for line in lines]
    return markdown(lines)
