"""Groups of runs to plots: the numbers that the page draws, and the words and tables that say the same.

A plot is a plain dictionary, since it goes into the page as JSON; `page.js` draws the kinds `lines`, `features` and
`spectrum`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ldmnet.errors import missing_extra
from ldmnet.records.snapshots import Points, Snapshot
from ldmnet.records.tables import ORDER
from ldmnet.report.collect import Group, Run, Series
from ldmnet.report.tables import Table, plain

Spec = dict[str, Any]
MOST_LINES = 12  # of one plot
TABLE_EPOCHS = 11  # rows of the table behind a plot
SPRITE_COLUMNS = 20
RANGE = 1000  # coordinates go into the page as whole numbers from -RANGE to RANGE


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


# ---- lines over epochs


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
        spec: Spec = {"label": self.series.label, "color": self.color, "x": self.x, "y": _short(self.mean)}
        if len(self.runs) > 1:
            columns = [[v for v in values if v is not None] for values in zip(*self.runs, strict=True)]
            spec["low"] = _short([min(values, default=None) for values in columns])
            spec["high"] = _short([max(values, default=None) for values in columns])
        return spec


def color_of(group: Group, series: Series) -> int:
    """The number of a method's colour, the same in every plot."""
    method = series.runs[0].method
    if group.kind != "training" and method in ORDER:
        return ORDER.index(method)
    return group.series.index(series)


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
    last = [f"{line.series.label} {_words(_last(line.mean))}" for line in drawn]
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
    rows = [[str(epoch), *(_words(values.get(epoch)) for values in by_line)] for epoch in epochs]
    return plain(f"{title}, by epoch", ["epoch", *(line.series.label for line in lines)], rows)


def _history_lines(group: Group, name: str, scale: float = 1.0) -> list[Line]:
    """One line a method of a number in the histories, over the runs that have it."""
    lines = []
    for series in group.series:
        runs = [[_number(epoch.get(name), scale) for epoch in run.history] for run in series.runs]
        runs = [values for values in runs if any(v is not None for v in values)]
        if runs:
            longest = max(map(len, runs))
            runs = [values + [None] * (longest - len(values)) for values in runs]
            lines.append(Line(series, color_of(group, series), list(range(1, longest + 1)), runs))
    return lines


def curves(number: int, group: Group) -> Part:
    """Training loss; training, validation and snapshot accuracy where there."""
    part = Part(group.title)
    if lines := _history_lines(group, "loss"):
        part.plots.append(lines_plot(f"loss-{number}", "Training loss", "loss", lines, log=True))
    if lines := [line for line in _history_lines(group, "penalty") if any(line.mean)]:
        part.plots.append(lines_plot(f"penalty-{number}", "Penalty, eq. (9)", "penalty", lines, log=True))
    if lines := _history_lines(group, "accuracy", 100):
        part.plots.append(lines_plot(f"train-{number}", "Training accuracy, %", "%", lines, late=True))
    if lines := _history_lines(group, "val_accuracy", 100):
        part.plots.append(lines_plot(f"validation-{number}", "Validation accuracy, %", "%", lines, late=True))
    if lines := _followed_lines(group):
        title = _followed_title(group)
        part.plots.append(lines_plot(f"followed-{number}", title, "%", lines, late=True, markers=True))
    if not part.plots:
        part.notes.append("These runs kept no history of their epochs.")
    elif not any(plot.name.startswith("validation") for plot in part.plots):
        part.notes.append("No validation data was held out while these runs trained.")
    without = [series.label for series in group.series if not series.traced.history]
    if part.plots and without:
        part.notes.append(f"There is no history of: {', '.join(without)}.")
    return part


def _followed_title(group: Group) -> str:
    points = next((run.snapshots.points for run in group.runs if run.snapshots is not None), None)
    kind = "" if points is None else f"{len(points.labels)} {points.part} samples that were followed"
    return f"Accuracy on the {kind}, %"


def _followed_lines(group: Group) -> list[Line]:
    lines = []
    for series in group.series:
        kept = series.traced.snapshots
        if kept is not None:
            labels = kept.points.labels.numpy()
            right: list[float | None] = [100 * float((s.predicted == labels).mean()) for s in kept.taken.values()]
            lines.append(Line(series, color_of(group, series), list(kept.taken), [right]))
    return lines


# ---- features


def features(number: int, group: Group, sprites: dict[str, str]) -> tuple[Part, Part]:
    """The features by method and epoch, and their spectrum; methods that followed the same samples side by side.

    Args:
        number: the group's.
        group: the runs.
        sprites: the pictures of all samples by id, which this adds to.
    """
    shown, spectra = Part(group.title), Part(group.title)
    alike: dict[tuple[Any, ...], list[Series]] = {}
    for series in group.series:
        kept = series.traced.snapshots
        if kept is not None and kept.taken:
            alike.setdefault((_points_id(kept.points), *kept.taken), []).append(series)
    for place, members in enumerate(alike.values()):
        name = f"{number}-{place}"
        shown.plots.append(_features_plot(name, group, members, sprites))
        spectra.plots.extend(_spectrum_plots(name, group, members))
    without = [series.label for series in group.series if series.traced.snapshots is None]
    if not alike:
        sentence = "These runs kept no snapshots of their features: reproduce needs --snapshots for that."
        shown.notes.append(sentence)
        spectra.notes.append(sentence)
    elif without:
        shown.notes.append(f"There are no snapshots of: {', '.join(without)}.")
    return shown, spectra


def _points_id(points: Points) -> str:
    digest = hashlib.sha256(repr((points.names, points.labels.tolist(), points.class_names)).encode())
    if points.images is not None:
        digest.update(points.images.tobytes())
    return digest.hexdigest()[:12]


def _features_plot(name: str, group: Group, members: list[Series], sprites: dict[str, str]) -> Plot:
    kept = [series.traced.snapshots for series in members]
    first = kept[0]
    assert first is not None
    points, epochs = first.points, list(first.taken)
    panels = []
    for series, snapshots in zip(members, kept, strict=True):
        assert snapshots is not None
        places, share = project(list(snapshots.taken.values()))
        scale = [float(np.abs(xy).max()) or 1.0 for xy in places]
        panels.append(
            {
                "label": series.label,
                "color": color_of(group, series),
                "scale": _short(scale),
                "frame": [_frame(xy / s) for xy, s in zip(places, scale, strict=True)],
                "share": round(100 * share, 1),
                "x": [_whole(xy[:, 0] / s) for xy, s in zip(places, scale, strict=True)],
                "y": [_whole(xy[:, 1] / s) for xy, s in zip(places, scale, strict=True)],
                "predicted": [snapshot.predicted.tolist() for snapshot in snapshots.taken.values()],
            }
        )
    sprite = None
    if points.images is not None:
        sprite = {"id": _points_id(points), "columns": SPRITE_COLUMNS, "rows": -(-len(points.names) // SPRITE_COLUMNS)}
        sprite |= {"height": points.images.shape[1], "width": points.images.shape[2]}
        sprites.setdefault(str(sprite["id"]), sprite_png(points.images))
    spec = {
        "kind": "features",
        "epochs": epochs,
        "classes": points.class_names,
        "labels": points.labels.tolist(),
        "names": points.names,
        "part": points.part,
        "sprite": sprite,
        "panels": panels,
    }
    shares = ", ".join(f"{panel['label']} {panel['share']:.0f} %" for panel in panels)
    summary = (
        f"{len(points.names)} {points.part} samples of {len(points.class_names)} classes, seen by their features at "
        f"{len(epochs)} epochs, from {epochs[0]} (before training) to {epochs[-1]}. Each method has one pair of axes: "
        f"the two principal directions of its features at the last epoch, which hold this share of their variance: "
        f"{shares}."
    )
    return Plot(f"features-{name}", "Principal components of the features", summary, spec)


def project(snapshots: Sequence[Snapshot]) -> tuple[list[NDArray[np.float64]], float]:
    """Each snapshot in the two principal directions of the last one, around its own mean.

    Returns:
        (n, 2) places, one a snapshot, and the share of the last one's variance that they show.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine, small matrices on many threads take seconds
    try:
        values = [torch.from_numpy(snapshot.values()).double() for snapshot in snapshots]
        centred = [v - v.mean(0) for v in values]
        _, sizes, directions = torch.linalg.svd(centred[-1], full_matrices=False)
        axes = directions[:2].T
        axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # the sign is free: choose it
        axes = F.pad(axes, (0, 2 - axes.shape[1]))
        places = [(c @ axes).numpy() for c in centred]
    finally:
        torch.set_num_threads(threads)
    return places, float(sizes[:2].square().sum() / sizes.square().sum().clamp(min=1e-300))


def _frame(places: NDArray[np.float64]) -> list[int]:
    """The middle and half the side of the square around some places, as whole numbers like theirs."""
    low, high = places.min(0), places.max(0)
    return _whole(np.array([*(low + high) / 2, max((high - low).max() / 2, 1e-3)]))


def _whole(values: NDArray[np.float64]) -> list[int]:
    out: list[int] = np.rint(RANGE * values).astype(int).tolist()
    return out


def sprite_png(images: NDArray[np.uint8]) -> str:
    """All pictures on one sheet, as a data address."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_extra("Pillow", "report") from error
    n, height, width, channels = images.shape
    rows = -(-n // SPRITE_COLUMNS)
    sheet = np.zeros((rows * SPRITE_COLUMNS, height, width, channels), np.uint8)
    sheet[:n] = images
    sheet = sheet.reshape(rows, SPRITE_COLUMNS, height, width, channels).swapaxes(1, 2)
    sheet = sheet.reshape(rows * height, SPRITE_COLUMNS * width, channels)
    file = io.BytesIO()
    Image.fromarray(sheet[..., 0] if channels == 1 else sheet).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


# ---- spectrum


def _spectrum_plots(name: str, group: Group, members: list[Series]) -> list[Plot]:
    first = members[0].traced.snapshots
    assert first is not None
    epochs = list(first.taken)
    lines: list[Spec] = []
    dimensions: list[Line] = []
    for series in members:
        assert series.traced.snapshots is not None
        taken = list(series.traced.snapshots.taken.values())
        color = color_of(group, series)
        lines.append(
            {
                "label": series.label,
                "color": color,
                "all": [_short(_shares(s.spectrum, float(s.total[0]))) for s in taken],
                "within": [_short(_shares(s.within, float(s.total[1]))) for s in taken],
            }
        )
        values = [effective_dimension(s.within, float(s.total[1])) for s in taken]
        dimensions.append(Line(series, color, epochs, [values]))
    ends = ", ".join(f"{line['label']} {_words(line['within'][-1][0])} %" for line in lines)
    spectrum = Plot(
        f"spectrum-{name}",
        "Spectrum of the features' covariance",
        f"The {len(lines[0]['within'][0])} largest eigenvalues, in percent of their whole sum, at the chosen epoch. "
        f"Within classes at the last epoch, the largest holds: {ends}. The faster a line falls, the fewer dimensions "
        f"the features fill.",
        {"kind": "spectrum", "epochs": epochs, "lines": lines},
        plain(
            f"Largest eigenvalues within classes at epoch {epochs[-1]}, % of their sum",
            ["eigenvalue", *(str(line["label"]) for line in lines)],
            [[str(i + 1), *(_words(line["within"][-1][i]) for line in lines)] for i in range(10)],
        ),
    )
    grown = lines_plot(
        f"dimension-{name}", "Effective dimension within classes", "dimensions", dimensions, markers=True
    )
    return [spectrum, grown]


def _shares(eigenvalues: NDArray[np.float32], total: float) -> list[float | None]:
    return [100 * float(v) / total if total > 0 and v > 1e-7 * total else None for v in eigenvalues]


def effective_dimension(eigenvalues: NDArray[np.float32], total: float) -> float | None:
    """(sum of eigenvalues)^2 / sum of their squares: m for m equal ones."""
    squares = float((eigenvalues.astype(np.float64) ** 2).sum())
    return total**2 / squares if squares > 0 else None


# ---- solver

SOLVER: tuple[tuple[str, str, str, bool], ...] = (
    ("solver_steps", "Iterations of the conjugate gradients", "products", False),
    ("residual", "Largest relative residual", "residual", True),
    ("dual", "Norm of the dual variable Z", "|Z|", False),
    ("energy", "Dirichlet energy after an update over before", "ratio", False),
)


def solver(number: int, group: Group) -> Part:
    """What the solver met at every update."""
    part = Part(group.title)
    logged = [series for series in group.series if _updated(series)]
    if not logged:
        seen = {status for run in group.runs for status in run.record.get("solver") or []}
        part.notes.append(
            f"These runs kept no log of their updates; the records say that the solver ended with: {_statuses(seen)}."
            if seen
            else "These runs kept no log of updates: none of their methods makes any, or it was not written."
        )
        return part
    for name, title, y, log in SOLVER:
        lines = [
            Line(
                series,
                color_of(group, series),
                [int(update["epoch"]) for update in run.updates],
                [[_positive(update[name], log) for update in run.updates]],
            )
            for series, run in ((series, _updated(series)) for series in logged)
            if run is not None
        ]
        lines = [line for line in lines if any(v is not None for v in line.mean)]
        if any(v for line in lines for v in line.mean):
            part.plots.append(lines_plot(f"{name}-{number}", title, y, lines, log=log))
    rows = []
    for series in logged:
        run = _updated(series)
        assert run is not None
        count = Counter(str(update["status"]) for update in run.updates)
        rows.append(
            [
                series.label,
                str(len(run.updates)),
                ", ".join(f"{_statuses([status])} {times}" for status, times in count.items()),
                str(max(update["solver_steps"] for update in run.updates)),
                f"{max(update['residual'] for update in run.updates):.1e}",
            ]
        )
    head = ["method", "updates", "how they ended", "most iterations", "largest residual"]
    part.tables.append(plain("How the updates went", head, rows))
    if not any(plot.name.startswith("solver_steps") for plot in part.plots):
        part.notes.append(
            "No conjugate gradients were needed: small classes are solved directly, and the control solves nothing."
        )
    return part


def _updated(series: Series) -> Run | None:
    return next((run for run in (series.traced, *series.runs) if run.updates), None)


def _statuses(names: Iterable[str]) -> str:
    return ", ".join(sorted(name.lower().replace("_", " ") for name in names))


# ---- numbers


def _number(value: object, scale: float = 1.0) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return scale * float(value)
    return None


def _positive(value: object, log: bool) -> float | None:
    number = _number(value)
    return None if number is None or (log and number <= 0) else number


def _mean(values: Sequence[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return statistics.fmean(there) if there else None


def _last(values: Sequence[float | None]) -> float | None:
    return next((v for v in reversed(values) if v is not None), None)


def _short(values: Iterable[float | None]) -> list[float | None]:
    """Four significant digits: enough for a plot."""
    return [None if v is None or not math.isfinite(v) else float(f"{v:.4g}") for v in values]


def _words(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
