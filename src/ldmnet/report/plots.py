"""What a plot is: a figure of plotly's, and the sentence, the summary and the table that say the same.

A figure is a plain dictionary of plotly's own (`data`, `layout`), which goes into the page as JSON. Colours stand in it
by name (`ldmnet`, `class-3`, `text`), and the page puts those of the light or the dark scheme in their place.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ldmnet.report.groups import Series
from ldmnet.report.tables import Table, plain

Figure = dict[str, Any]
Axis = Literal["zero", "log", "accuracy", "percent"]
MOST_LINES = 12  # of one plot
TABLE_ROWS = 11  # of the table behind a plot
LEAST_SPAN = 20.0  # points of accuracy on an axis, and never fewer than those of ten samples
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down")
DASHES = ("dot", "dash", "dashdot", "longdash", "solid")
ORDER = ("none", "weight_decay", "dropout", "control", "ldmnet")
TEMPLATES = ("hovertemplate", "texttemplate")  # of ours alone; %{...} fills names in without reading their tags

_AXIS = {
    "gridcolor": "rule", "linecolor": "muted", "zerolinecolor": "rule", "showline": True, "automargin": True,
    "title": {"standoff": 8},
}  # fmt: skip
TEMPLATE: Figure = {
    "layout": {
        "paper_bgcolor": "surface",
        "plot_bgcolor": "surface",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "text"},
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "legend": {
            "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11.5},
        },
        "hoverlabel": {
            "bgcolor": "surface", "bordercolor": "muted", "namelength": -1, "font": {"color": "text"},
        },
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Panel:
    """One figure of a plot, with an id in the page and a title of its own where the plot has several."""

    name: str
    title: str
    figure: Figure


@dataclass(frozen=True, eq=False)
class Plot:
    """One plot.

    Attributes:
        name: its id in the page.
        title: what it shows.
        words: a sentence that explains it.
        panels: its figures.
        summary: the numbers in words, for those who do not see it.
        table: its numbers.
        kind: "lines"; "square", with one figure per method; or "features", with controls too.
        legend: symbol, colour and name, where plotly draws none.
        epochs: those of the features.
        samples: what the page says about each sample, and where its picture is.
        sprites: sheets of the samples' pictures, by id.
    """

    name: str
    title: str
    words: str
    panels: list[Panel]
    summary: str = ""
    table: Table | None = None
    kind: str = "lines"
    legend: list[tuple[str, str, str]] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    samples: dict[str, Any] = field(default_factory=dict)
    sprites: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Part:
    """A group's share of a section: plots and tables, and a sentence on what is not there."""

    title: str
    plots: list[Plot] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Measure(NamedTuple):
    """What a plot of lines shows: its name in the logs, a title, a sentence, the vertical axis and what that spans."""

    name: str
    title: str
    words: str
    y: str
    axis: Axis = "zero"


class Line:
    """One method's line: its values at each x, over one or more runs; a value that cannot be shown is masked."""

    def __init__(self, series: Series, x: list[int], runs: Sequence[Sequence[float | None]]) -> None:
        self.series, self.x = series, x
        self._runs = np.ma.masked_invalid(np.array(runs, float).reshape(len(runs), len(x)))

    @classmethod
    def over(
        cls, series: Series, logs: Sequence[Sequence[Mapping[str, Any]]], measure: Measure, shift: int = 0
    ) -> Line:
        """Take a number from each run's log, at the log's epochs plus `shift`; runs without it are left out."""
        found = [[_number(entry.get(measure.name), measure.axis) for entry in log] for log in logs]
        found = [values for values in found if any(v is not None for v in values)]
        longest = max(logs, key=len, default=[])
        x = [int(entry["epoch"]) + shift for entry in longest] if found else []
        return cls(series, x, [values + [None] * (len(x) - len(values)) for values in found])

    @property
    def any(self) -> bool:
        """Whether there is something to draw."""
        return bool(self._runs.count())

    @property
    def runs(self) -> int:
        """How many."""
        return len(self._runs)

    @property
    def values(self) -> list[float]:
        """All that can be shown."""
        return [float(v) for v in self._runs.compressed()]

    @property
    def mean(self) -> list[float | None]:
        """Over the runs that have a number there."""
        return _listed(self._runs.mean(0))

    def traces(self, *, markers: bool) -> list[Figure]:
        """For plotly; with more than one run, a band of their range too."""
        series = self.series
        place = ORDER.index(series.color) if series.color in ORDER else int(series.color[-1])
        look: Figure = {"x": self.x, "mode": "lines"}
        line = {"color": series.color, "dash": DASHES[(place + series.repeat) % 5], "width": 2 + (place == 4)}
        traces: list[Figure] = []
        if self.runs > 1:
            look["legendgroup"] = series.label  # a click hides the band too
            band = {**look, "hoverinfo": "skip", "showlegend": False, "line": {"width": 0}}
            traces.append({**band, "y": _short(self._runs.min(0))})
            traces.append({**band, "y": _short(self._runs.max(0)), "fill": "tonexty", "fillcolor": series.color})
        look |= {
            "name": clip(series.label), "y": _short(self._runs.mean(0)), "line": line, "hovertemplate": "%{y:.4~g}",
        }  # fmt: skip
        if markers:
            symbol = SYMBOLS[place] + ("-open" if series.repeat else "")
            look |= {"mode": "lines+markers", "marker": {"symbol": symbol, "size": 7, "color": series.color}}
        return [*traces, look]


def _number(value: object, axis: Axis) -> float | None:
    """A number of a log; what a logarithmic axis cannot show is none, and a share is told in percent."""
    if not isinstance(value, int | float) or (axis == "log" and not value > 0):
        return None
    return 100.0 * value if axis == "accuracy" else float(value)


def _listed(values: Any) -> list[float | None]:
    return [None if v is np.ma.masked else float(v) for v in values]


def _short(values: Any) -> list[float | None]:
    """Four significant digits: enough for a plot."""
    return [None if v is None else float(f"{v:.4g}") for v in _listed(values)]


def lines_plot(
    name: str, measure: Measure, lines: Sequence[Line], *, x: str = "epoch", samples: int = 0, markers: bool = False
) -> Plot:
    """Draw lines with their last values (or first, where x is not time) in words, and a table of some of them.

    Args:
        name: the plot's id.
        measure: what it shows.
        lines: one per method.
        x: the horizontal axis.
        samples: how many samples an accuracy is about.
        markers: mark every value.
    """
    drawn, last = lines[:MOST_LINES], x == "epoch"
    ends = [
        f"{line.series.label} {number_words(next((v for v in line.mean[:: -1 if last else 1] if v is not None), None))}"
        for line in drawn
    ]
    summary = f"At the {'last' if last else 'first'} {x}: {', '.join(ends)}."
    if (seeds := max(line.runs for line in drawn)) > 1:
        summary += f" Lines are means of up to {seeds} runs, bands their range."
    if len(lines) > len(drawn):
        summary += f" The first {len(drawn)} of {len(lines)} are drawn."
    values = [v for line in drawn for v in line.values]
    layout = {
        "hovermode": "x unified",
        "showlegend": True,
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": measure.y}, **axis_of(measure.axis, values, _late(drawn), samples)},
    }
    figure = {"data": [trace for line in drawn for trace in line.traces(markers=markers)], "layout": layout}
    return Plot(name, measure.title, measure.words, [Panel(name, "", figure)], summary, _numbers(measure, x, drawn))


def _late(lines: Sequence[Line]) -> list[float]:
    """The values after the first quarter, where differences of accuracy are small."""
    end = max(x for line in lines for x in line.x)
    return [v for line in lines for x, v in zip(line.x, line.mean, strict=True) if v is not None and x >= end / 4]


def axis_of(kind: Axis, values: Sequence[float], late: Sequence[float], samples: int = 0) -> Figure:
    """Choose an axis that does not blow up a small difference.

    From zero; or in decades, at least one of them; or accuracy, at least `LEAST_SPAN` points and ten samples.
    """
    if kind == "log":
        found = [math.log10(v) for v in values if v > 0] or [0.0]
        spare = max(0.05 * (max(found) - min(found)), (1 - max(found) + min(found)) / 2)
        ends = [min(found) - spare, max(found) + spare]
        ticks = {"dtick": math.ceil((ends[1] - ends[0]) / 6)} if ends[1] - ends[0] > 1.5 else {"dtick": "D2"}
        return {"type": "log", "exponentformat": "power", "range": [round(v, 3) for v in ends], **ticks}
    if kind == "percent":
        return {"range": [0, 102]}
    if kind == "accuracy":
        low, high = min(late, default=0.0), max(late, default=100.0)
        span = max(1.1 * (high - low), LEAST_SPAN, 1000 / samples if samples else 0)
        top = min(100.0, high + max(0.0, span - (high - low)) / 2)
        return {"range": [round(max(0.0, top - span), 2), round(top + 0.02 * span, 2)]}
    return {"rangemode": "tozero"}


def _numbers(measure: Measure, x: str, lines: Sequence[Line]) -> Table:
    at = sorted({place for line in lines for place in line.x})
    if len(at) > TABLE_ROWS:
        at = [at[round(i * (len(at) - 1) / (TABLE_ROWS - 1))] for i in range(TABLE_ROWS)]
    found = [dict(zip(line.x, line.mean, strict=True)) for line in lines]
    rows = [[str(place), *(number_words(values.get(place)) for values in found)] for place in at]
    return plain(measure.title, [x, *(line.series.label for line in lines)], rows)


def escaped(value: Any, key: str = "") -> Any:
    """Copy a figure with its texts escaped, since plotly reads tags in them; what a file named stays text."""
    if isinstance(value, dict):
        return {k: escaped(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [escaped(v, key) for v in value]
    return html.escape(value, quote=False) if isinstance(value, str) and key not in TEMPLATES else value


def clip(text: str, most: int = 40) -> str:
    """Shorten a name that would not leave room for its plot."""
    return text if len(text) <= most else text[: most - 1] + "…"


def number_words(value: float | None) -> str:
    """Write a number for people, a dash where there is none."""
    return "\N{EN DASH}" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
