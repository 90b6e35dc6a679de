"""A comparison of methods over repeated splits as one table with a paired test: a function of its records.

Splits of one data set overlap, so the plain paired t-test finds differences that are not there. The variance is
widened by n_test / n_train, as Nadeau and Bengio (Machine Learning 52, 2003) propose.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ldmnet.records.leads import paired
from ldmnet.records.record import Record
from ldmnet.records.tables import markdown, words

REFERENCE = "ldmnet"
ALIKE = 1e-3  # percent; accuracies are kept to four places


@dataclass(frozen=True)
class ComparedRow:
    """One method over its splits.

    Attributes:
        method: its name.
        mean: mean test accuracy in percent; None if it diverged on any split, since the others alone would flatter.
        std: its standard deviation over the splits (ddof = 1), None for one split.
        splits: how many.
        gain: by how much LDMNet is better, mean over the splits both have; None for LDMNet itself, and where one of
            the two diverged.
        p: two-sided p-value of that difference, None where there is nothing to test.
        ended_badly: on how many splits, see `ldmnet.errors.BadEndWarning`.
    """

    method: str
    mean: float | None
    std: float | None
    splits: int
    gain: float | None
    p: float | None
    ended_badly: int = 0


def compared_rows(records: Sequence[Record]) -> list[ComparedRow]:
    """The table of a comparison, one row per method in the order they came; a split is known by its seed."""
    by_method: dict[str, dict[int, Record]] = {}
    for record in records:
        by_method.setdefault(record.method, {})[record.seed] = record
    reference = by_method.get(REFERENCE, {})
    lost = {method for method, found in by_method.items() if any(r.score is None for r in found.values())}
    rows = []
    for method, found in by_method.items():
        if method in lost:
            rows.append(ComparedRow(method, mean=None, std=None, splits=len(found), gain=None, p=None))
            continue
        accuracy = [r.score for r in found.values() if r.score is not None]
        gains = paired(reference, found) if method != REFERENCE and REFERENCE not in lost else []
        some = next(iter(found.values()))
        rows.append(
            ComparedRow(
                method,
                mean=round(statistics.fmean(accuracy), 4),
                std=round(statistics.stdev(accuracy), 4) if len(accuracy) > 1 else None,
                splits=len(accuracy),
                gain=round(statistics.fmean(gains), 4) if gains else None,
                p=paired_p(gains, some.n_test / max(1, some.n_train)),
                ended_badly=sum(bool(r.ended_badly) for r in found.values()),
            )
        )
    return rows


def paired_p(differences: Sequence[float], overlap: float = 0.0) -> float | None:
    """The two-sided p-value of a mean difference over splits; None for fewer than two of them, or all alike.

    Args:
        differences: one a split, in percent.
        overlap: n_test / n_train of the splits; zero gives the plain paired t-test.
    """
    from scipy.stats import t as students_t

    n = len(differences)
    if n < 2:
        return None
    mean, variance = statistics.fmean(differences), statistics.variance(differences)
    if math.sqrt(variance) < ALIKE:  # no spread to judge the mean by
        return None
    return float(2 * students_t.sf(abs(mean) / math.sqrt((1 / n + overlap) * variance), n - 1))


def accuracy_words(row: ComparedRow) -> str:
    """A row's accuracy and its spread, or that it diverged."""
    if row.mean is None:
        return "diverged"
    return f"{row.mean:.2f}" + ("" if row.std is None else f" ± {row.std:.2f}")


def in_vain(rows: Sequence[ComparedRow]) -> bool:
    """Whether a comparison says nothing: LDMNet's row ended badly, or every row did."""
    return any(row.ended_badly for row in rows if row.method == REFERENCE) or all(row.ended_badly for row in rows)


def format_comparison(rows: Sequence[ComparedRow], style: str = "md") -> str:
    """Rows as Markdown, CSV or JSON."""
    if style == "json":
        return json.dumps([asdict(row) for row in rows], indent=1)
    lines = [["method", "accuracy, %", "splits", "LDMNet is better by", "p"]]
    best = max((row.mean for row in rows if row.mean is not None), default=None)
    for row in rows:
        number = accuracy_words(row)
        stressed = style == "md" and row.mean is not None and row.mean == best
        lines.append(
            [
                words(row.method) + (" *" if row.ended_badly and style == "md" else ""),
                f"**{number}**" if stressed else number,
                str(row.splits),
                "" if row.gain is None else f"{row.gain:+.2f}",
                "" if row.p is None else ("< 0.001" if row.p < 0.001 else f"{row.p:.3f}"),
            ]
        )
    badly = [f"{row.method} on {row.ended_badly} of {row.splits} splits" for row in rows if row.ended_badly]
    if style == "csv":
        if badly:  # a column, which a program reads, in place of a mark
            counts = ["ended badly", *(str(row.ended_badly) for row in rows)]
            lines = [[*line, count] for line, count in zip(lines, counts, strict=True)]
        return "\n".join(",".join(f'"{c}"' if "," in c else c for c in line) for line in lines)
    footnote = ["", f"* ended badly: {', '.join(badly)}"] if badly else []
    return "\n".join([markdown(lines), *footnote])
