"""The learning curves of a group of runs."""

from __future__ import annotations

from ldmnet.report.collect import Group
from ldmnet.report.plots import Line, Part, color_of, finite, lines_plot


def _history_lines(group: Group, name: str, scale: float = 1.0) -> list[Line]:
    """One line a method of a number in the histories, over the runs that have it."""
    lines = []
    for series in group.series:
        runs = [[finite(epoch.get(name), scale) for epoch in run.history] for run in series.runs]
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
