"""The learning curves of a group of runs."""

from __future__ import annotations

from ldmnet.report.groups import Group
from ldmnet.report.plots import Axis, Line, Part, finite, lines_plot, positive

PLOTS: tuple[tuple[str, str, str, str, Axis], ...] = (
    ("loss", "Training loss", "How far the network's answers on its training samples are from the labels (cross "
     "entropy); lower is closer.", "loss", "log"),
    ("penalty", "Penalty", "The term that LDMNet and the control add to the loss, eq. (9): how far the features are "
     "from their targets.", "penalty", "log"),
    ("accuracy", "Training accuracy", "The share of the training samples that the network gets right, as its batches "
     "saw it.", "%", "accuracy"),
    ("val_accuracy", "Validation accuracy", "The share that it gets right of samples that were held out of the "
     "training set to choose settings with.", "%", "accuracy"),
)  # fmt: skip


def curves(number: int, group: Group) -> Part:
    """Draw training loss, penalty, and accuracy in training, on validation data and on the followed samples."""
    part = Part(group.title)
    trained = [int(result["n_train"]) for run in group.runs if (result := run.result) and result.get("n_train")]
    for name, title, words, y, axis in PLOTS:
        if lines := _history_lines(group, name, axis):
            samples = min(trained, default=0) if name == "accuracy" else 0
            part.plots.append(lines_plot(f"{name}-{number}", title, words, lines, y=y, axis=axis, samples=samples))
    lines, points = [], None
    for series in group.series:
        if (kept := series.traced.snapshots) is not None:
            points = kept.points
            right = [100 * float((s.predicted == points.labels.numpy()).mean()) for s in kept.taken.values()]
            lines.append(Line(series, list(kept.taken), [list(right)]))
    if points is not None:
        n, kind = len(points.labels), points.part
        words = f"The share that it gets right of {n} {kind} samples that were followed; one is {100 / n:.2g} %."
        title = f"Accuracy on {n} {kind} samples"
        part.plots.append(
            lines_plot(f"followed-{number}", title, words, lines, y="%", axis="accuracy", samples=n, markers=True)
        )
    without = [series.label for series in group.series if not series.traced.history]
    if not part.plots:
        part.notes.append("These runs kept no history of their epochs.")
    elif without:
        part.notes.append(f"There is no history of: {', '.join(without)}.")
    return part


def _history_lines(group: Group, name: str, axis: Axis) -> list[Line]:
    """One line per method of a number in the histories, over the runs that have it."""
    lines = []
    for series in group.series:
        runs = [
            [positive(epoch.get(name)) if axis == "log" else finite(epoch.get(name), 100) for epoch in run.history]
            for run in series.runs
        ]
        runs = [values for values in runs if any(v is not None for v in values)]
        if runs:
            longest = max(map(len, runs))
            runs = [values + [None] * (longest - len(values)) for values in runs]
            lines.append(Line(series, list(range(1, longest + 1)), runs))
    return lines
