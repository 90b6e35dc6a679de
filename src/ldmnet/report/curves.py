"""The learning curves of a group of runs."""

from __future__ import annotations

from ldmnet.report.groups import Group
from ldmnet.report.plots import Line, Measure, Part, lines_plot

MEASURES = (
    Measure("loss", "Training loss", "How far the network's answers on its training samples are from the labels "
            "(cross entropy); lower is closer.", "loss", "log"),
    Measure("penalty", "Penalty", "The term that LDMNet and the control add to the loss, eq. (9): how far the features "
            "are from their targets.", "penalty", "log"),
    Measure("accuracy", "Training accuracy", "The share of the training samples that the network gets right, as its "
            "batches saw it.", "%", "accuracy"),
    Measure("val_accuracy", "Validation accuracy", "The share that it gets right of samples that were held out of the "
            "training set to choose settings with.", "%", "accuracy"),
)  # fmt: skip


def curves(number: int, group: Group) -> Part:
    """Draw training loss, penalty, and accuracy in training, on validation data and on the followed samples."""
    part = Part(group.title)
    trained = min((run.record.n_train for run in group.runs if run.record.n_train), default=0)
    for measure in MEASURES:
        lines = [Line.over(series, [run.history for run in series.runs], measure, shift=1) for series in group.series]
        if lines := [line for line in lines if line.any]:
            samples = trained if measure.name == "accuracy" else 0
            part.plots.append(lines_plot(f"{measure.name}-{number}", measure, lines, samples=samples))
    lines, points = [], None
    for series in group.series:
        if (kept := series.traced.snapshots) is not None:
            points = kept.points
            right = [100 * float((s.predicted == points.labels.numpy()).mean()) for s in kept.taken.values()]
            lines.append(Line(series, list(kept.taken), [right]))
    if points is not None:
        n, kind = len(points.labels), points.part
        words = f"The share that it gets right of {n} {kind} samples that were followed; one is {100 / n:.2g} %."
        measure = Measure("followed", f"Accuracy on {n} {kind} samples", words, "%", "accuracy")
        part.plots.append(lines_plot(f"followed-{number}", measure, lines, samples=n, markers=True))
    without = [series.label for series in group.series if not series.traced.history]
    if not part.plots:
        part.notes.append("These runs kept no history of their epochs.")
    elif without:
        part.notes.append(f"There is no history of: {', '.join(without)}.")
    return part
