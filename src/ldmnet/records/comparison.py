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
from ldmnet.records.tables import comma_separated, markdown, mean_and_spread, score_words, words

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
        seconds: of tuning, training and testing on one split, the mean of the splits that did not diverge, None if all
            did; runs side by side slow each other down.
    """

    method: str
    mean: float | None
    std: float | None
    splits: int
    gain: float | None
    p: float | None
    ended_badly: int = 0
    seconds: float | None = None

    @property
    def words(self) -> list[str]:
        """Accuracy, number of splits, LDMNet's gain, its p-value and the seconds, for people."""
        gain = "" if self.gain is None else f"{round(self.gain, 2) + 0.0:+.2f}"  # no -0.00
        p = "" if self.p is None else "< 0.001" if self.p < 0.001 else f"{self.p:.3f}"
        seconds = "" if self.seconds is None else f"{self.seconds:.1f}"
        return [score_words(self.mean, self.std), str(self.splits), gain, p, seconds]


def compared_rows(records: Sequence[Record]) -> list[ComparedRow]:
    """The table of a comparison, one row per method in the order they came; a split is known by its seed."""
    by_method: dict[str, dict[int, Record]] = {}
    for record in records:
        by_method.setdefault(record.method, {})[record.seed] = record
    reference = by_method.get(REFERENCE, {})
    lost = {method for method, found in by_method.items() if any(r.score is None for r in found.values())}
    rows = []
    for method, found in by_method.items():
        gains = paired(reference, found) if method != REFERENCE and not lost & {method, REFERENCE} else []
        some = next(iter(found.values()))
        mean, std = mean_and_spread(record.score for record in found.values())
        rows.append(
            ComparedRow(
                method,
                mean=mean,
                std=std,
                splits=len(found),
                gain=mean_and_spread(gains)[0],
                p=split_p(gains, some) if gains else None,
                ended_badly=sum(bool(record.ended_badly) for record in found.values()) if mean is not None else 0,
                seconds=mean_and_spread(sum(r.seconds.values()) for r in found.values() if r.seconds)[0],
            )
        )
    return rows


def split_p(differences: Sequence[float], some: Record) -> float | None:
    """`paired_p` of splits such as that of a record; accuracies are no finer than one of its test samples."""
    return paired_p(differences, some.n_test / max(1, some.n_train), 100 / max(1, some.n_test))


def paired_p(differences: Sequence[float], overlap: float = 0.0, least: float = 0.0) -> float | None:
    """The two-sided p-value of a mean difference over splits; None for fewer than two of them, or without any spread.

    Args:
        differences: one per split, in percent.
        overlap: n_test / n_train of the splits; zero gives the plain paired t-test.
        least: the least standard deviation that is believed.
    """
    from scipy.stats import t as students_t

    n = len(differences)
    if n < 2:
        return None
    mean, variance = statistics.fmean(differences), max(statistics.variance(differences), least**2)
    if math.sqrt(variance) < ALIKE:  # no spread to judge the mean by
        return None
    return float(2 * students_t.sf(abs(mean) / math.sqrt((1 / n + overlap) * variance), n - 1))


def sees_test(method: str) -> bool:
    """Whether a method is transductive."""
    return method.partition(":")[0] == "laplace"


def in_vain(rows: Sequence[ComparedRow]) -> bool:
    """Whether a comparison says nothing: LDMNet's row ended badly, or every row did."""
    return any(row.ended_badly for row in rows if row.method == REFERENCE) or all(row.ended_badly for row in rows)


def format_comparison(rows: Sequence[ComparedRow], style: str = "md") -> str:
    """Rows as Markdown, CSV or JSON."""
    if style == "json":
        return json.dumps([asdict(row) for row in rows], indent=1)
    lines = [["method", "accuracy, %", "splits", "LDMNet is better by", "p", "seconds per split"]]
    best = max((row.mean for row in rows if row.mean is not None), default=None)
    badly = [f"{row.method} on {row.ended_badly} of {row.splits} splits" for row in rows if row.ended_badly]
    if style == "csv":
        lines += [[words(row.method), *row.words] for row in rows]
        if badly:  # a column, which a program reads, in place of a mark
            counts = ["ended badly", *(str(row.ended_badly) for row in rows)]
            lines = [[*line, count] for line, count in zip(lines, counts, strict=True)]
        return comma_separated(lines)
    for row in rows:
        number, *others = row.words
        stressed = f"**{number}**" if row.mean is not None and row.mean == best else number
        lines.append([words(row.method) + _marks(row), stressed, *others])
    notes = [f"* ended badly: {', '.join(badly)}"] if badly else []
    if any(sees_test(row.method) for row in rows):
        notes.append("† transductive: it sees the inputs that it is tested on")
    return "\n".join([markdown(lines), *([""] if notes else []), *notes])


def _marks(row: ComparedRow) -> str:
    return (" †" if sees_test(row.method) else "") + (" *" if row.ended_badly else "")
