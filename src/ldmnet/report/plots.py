"""What a plot is: the numbers that the page draws, and the words and the table that say the same.

A plot is a plain dictionary, since it goes into the page as JSON; `page.js` draws the kinds `lines`, `features` and
`spectrum`. Lines over epochs are made here, for the sections that draw them: `curves`, `features`, `solver`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ldmnet.records.tables import ORDER
from ldmnet.report.collect import Group, Series
from ldmnet.report.tables import Table, plain

Spec = dict[str, Any]
MOST_LINES = 12  # of one plot
TABLE_EPOCHS = 11  # rows of the table behind a plot


@dataclass(frozen=True, eq=False)
class Plot:
    """One plot.

    Attributes:
        name: its id in the page.
        title: what it shows.
        summary: the same in words, for those who do not see it.
        spec: for `page.js`.
        table: its numbers, at a few epochs.
    """

    name: str
    title: str
    summary: str
    spec: Spec
    table: Table | None = None


@dataclass(frozen=True, eq=False)
class Part:
    """A group's share of a section: plots and tables, and a sentence on what is not there."""

    title: str
    plots: list[Plot] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Line:
    """One method's line: its values by epoch, over one or more runs."""

    series: Series
    color: int
    x: list[int]
    runs: list[list[float | None]]

    @property
    def mean(self) -> list[float | None]:
        """Over the runs that have a number there."""
        return [_mean(values) for values in zip(*self.runs, strict=True)]

    def spec(self) -> Spec:
        """For the page; with more than one run, also the range over them."""
        spec: Spec = {"label": self.series.label, "color": self.color, "x": self.x, "y": short(self.mean)}
        if len(self.runs) > 1:
            columns = [[v for v in values if v is not None] for values in zip(*self.runs, strict=True)]
            spec["low"] = short([min(values, default=None) for values in columns])
            spec["high"] = short([max(values, default=None) for values in columns])
        return spec


def color_of(group: Group, series: Series) -> int:
    """The number of a method's colour, the same in every plot."""
    method = series.runs[0].method
    if group.kind == "training":
        return group.series.index(series)
    return ORDER.index(method) if method in ORDER else len(ORDER) + group.series.index(series)


def lines_plot(
    name: str,
    title: str,
    y: str,
    lines: Sequence[Line],
    *,
    log: bool = False,
    late: bool = False,
    markers: bool = False,
) -> Plot:
    """Lines by epoch with their last values in words, and a table of some epochs.

    Args:
        name: the plot's id.
        title: what it shows.
        y: the vertical axis.
        lines: one a method.
        log: a logarithmic axis.
        late: choose the axis by what comes after the first quarter, where differences are small.
        markers: mark every value.
    """
    drawn = lines[:MOST_LINES]
    last = [f"{line.series.label} {words(_last(line.mean))}" for line in drawn]
    seeds = max(len(line.runs) for line in drawn)
    summary = f"{title}, by epoch. At the end: {', '.join(last)}."
    if seeds > 1:
        summary += f" Lines are means of up to {seeds} runs, bands their range."
    if len(lines) > len(drawn):
        summary += f" The first {len(drawn)} of {len(lines)} are drawn."
    spec: Spec = {"kind": "lines", "y": y, "log": log, "markers": markers, "lines": [line.spec() for line in drawn]}
    if late:
        spec["range"] = _late_range(drawn)
    return Plot(name, title, summary, spec, _epochs_table(title, drawn))


def _late_range(lines: Sequence[Line]) -> list[float]:
    end = max(epoch for line in lines for epoch in line.x)
    values = [v for line in lines for x, v in zip(line.x, line.mean, strict=True) if v is not None and x >= end / 4]
    edge = 0.06 * (max(values) - min(values)) + 0.2
    return [min(values) - edge, max(values) + edge]


def _epochs_table(title: str, lines: Sequence[Line]) -> Table:
    epochs = sorted({epoch for line in lines for epoch in line.x})
    if len(epochs) > TABLE_EPOCHS:
        epochs = [epochs[round(i * (len(epochs) - 1) / (TABLE_EPOCHS - 1))] for i in range(TABLE_EPOCHS)]
    by_line = [dict(zip(line.x, line.mean, strict=True)) for line in lines]
    rows = [[str(epoch), *(words(values.get(epoch)) for values in by_line)] for epoch in epochs]
    return plain(f"{title}, by epoch", ["epoch", *(line.series.label for line in lines)], rows)


def finite(value: object, scale: float = 1.0) -> float | None:
    """A finite number, scaled, or None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return scale * float(value)
    return None


def positive(value: object, log: bool) -> float | None:
    """The same, and above zero where the axis is logarithmic."""
    number = finite(value)
    return None if number is None or (log and number <= 0) else number


def _mean(values: Sequence[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return statistics.fmean(there) if there else None


def _last(values: Sequence[float | None]) -> float | None:
    return next((v for v in reversed(values) if v is not None), None)


def short(values: Iterable[float | None]) -> list[float | None]:
    """Four significant digits: enough for a plot."""
    return [None if v is None or not math.isfinite(v) else float(f"{v:.4g}") for v in values]


def words(value: float | None) -> str:
    """A number for people, a dash where there is none."""
    return "\N{EN DASH}" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
