"""Which classes a group of runs gets right, and which it takes for one another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldmnet.records.snapshots import Snapshots
from ldmnet.report.groups import Group, Series, span
from ldmnet.report.plots import Panel, Part, Plot, clip
from ldmnet.report.tables import Table, plain

Matrix = NDArray[np.int64]
MOST_CLASSES = 60  # of a confusion matrix
MOST_BARS = 20  # classes with bars
COUNTED = 15  # classes: above, the numbers do not fit into the cells
PAIRS = 10  # rows of the table of confusions


def confusion(kept: Snapshots) -> Matrix:
    """Count the followed samples at the last epoch by class (rows) and by answer (columns)."""
    size = len(kept.points.class_names)
    labels, predicted = kept.points.labels.numpy(), kept.taken[max(kept.taken)].predicted
    counts = np.zeros((size, size), np.int64)
    known = predicted < size  # a network may have more outputs than there are classes
    np.add.at(counts, (labels[known], predicted[known]), 1)
    return counts


def classes(number: int, group: Group) -> Part:
    """Draw a confusion matrix per method, and the accuracy per class."""
    part = Part(group.title)
    kept = [(series, found) for series in group.series if (found := series.traced.snapshots) and found.taken]
    if not kept:
        part.notes.append("These runs kept no answers for single samples: reproduce keeps them on request.")
        return part
    counts = [(series, confusion(found)) for series, found in kept]
    points = kept[0][1].points
    names, n = points.class_names, [len(found.points.labels) for _, found in kept]
    part.notes.append(
        f"Counted on the {span(n)} {points.part} samples that were followed, so one sample is {100 / min(n):.2g} % of "
        "all; the table of results counts every test sample."
    )
    if len(names) <= MOST_CLASSES:
        table = _pairs(counts, names)
        part.plots.append(
            Plot(
                f"confusion-{number}",
                "Confusion matrix",
                "Rows are the true classes, columns the network's answers: what is off the diagonal is a mistake. "
                "Numbers count samples; the shade grows with the share of the row.",
                [
                    Panel(f"confusion-{number}-{i}", series.label, _heatmap(series, matrix, names))
                    for i, (series, matrix) in enumerate(counts)
                ],
                "" if table else "No sample is taken for another class.",
                table,
                kind="square small" if len(names) <= 10 and max(map(len, names)) <= 3 else "square",
            )
        )
    sizes = np.stack([np.bincount(found.points.labels.numpy(), minlength=len(names)) for _, found in kept])
    if sizes.all(0).any():
        part.plots.append(_accuracy(number, counts, names, sizes))
    return part


def _heatmap(series: Series, counts: Matrix, names: list[str]) -> dict[str, Any]:
    share = 100 * counts / counts.sum(1, keepdims=True).clip(min=1)
    cells = [
        [[a, b, s] for b, s in zip(map(clip, names), row, strict=True)]
        for a, row in zip(map(clip, names), np.round(share).tolist(), strict=True)
    ]
    ticks: dict[str, Any] = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "",
        "showticklabels": False,
    }
    if len(names) <= COUNTED:
        texts = [clip(name, 14) for name in names]
        ticks |= {"showticklabels": True, "tickvals": list(range(len(names))), "ticktext": texts}
    trace = {
        "type": "heatmap",
        "z": np.round(10 * np.sqrt(share), 1).tolist(),  # so that single mistakes are seen
        "text": [[str(v) if v else "" for v in row] for row in counts.tolist()],
        "customdata": cells,
        "zmin": 0,
        "zmax": 100,
        "colorscale": [[0, "surface"], [1, series.color]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "class %{customdata[0]}<br>taken for %{customdata[1]}<br>%{customdata[2]} % of the class"
        "<extra></extra>",
    }
    if len(names) <= COUNTED:
        trace |= {"texttemplate": "%{text}", "textfont": {"size": 11}}
    layout = {
        "xaxis": {"title": {"text": "taken for"}, "tickangle": -45 if max(map(len, names)) > 3 else 0, **ticks},
        "yaxis": {"title": {"text": "class"}, "autorange": "reversed", **ticks},
    }
    return {"data": [trace], "layout": layout}


def _pairs(counts: list[tuple[Series, Matrix]], names: list[str]) -> Table | None:
    """The pairs of classes that are confused most often, over all methods."""
    total = np.sum([matrix for _, matrix in counts], axis=0) * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-total, axis=None, kind="stable")[:PAIRS]
    pairs = [divmod(int(place), len(names)) for place in order if total.flat[place] > 0]
    if not pairs:
        return None
    rows = [[names[i], names[j], *(str(matrix[i, j]) for _, matrix in counts)] for i, j in pairs]
    return plain(
        "The most frequent confusions, in samples", ["class", "taken for", *(s.label for s, _ in counts)], rows
    )


def _accuracy(number: int, counts: list[tuple[Series, Matrix]], names: list[str], sizes: NDArray[np.intp]) -> Plot:
    """Bars of the accuracy per class; `sizes` (methods, classes) says of how many samples."""
    there = [i for i in range(len(names)) if sizes[:, i].all()]
    share = np.stack([100 * np.diagonal(matrix) / n.clip(min=1) for (_, matrix), n in zip(counts, sizes, strict=True)])
    shown = there if len(there) <= MOST_BARS else sorted(sorted(there, key=lambda i: share[:, i].mean())[:MOST_BARS])
    traces = [
        {
            "type": "bar",
            "name": clip(series.label),
            "x": list(range(len(shown))),
            "y": np.round(share[k, shown], 1).tolist(),
            "customdata": [clip(names[i]) for i in shown],
            "marker": {"color": series.color, "pattern": {"shape": "/" if series.repeat else ""}},
            "hovertemplate": "class %{customdata}: %{y:.1f} %",
        }
        for k, (series, _) in enumerate(counts)
    ]
    layout = {
        "showlegend": True,
        "bargap": 0.25,
        "xaxis": {"tickvals": list(range(len(shown))), "ticktext": [clip(names[i], 14) for i in shown]},
        "yaxis": {"title": {"text": "%"}, "range": [0, 102]},
    }
    lowest = [there[int(k)] for k in share[:, there].argmin(1)]
    ends = [f"{s.label} {names[i]} ({row[i]:.0f} %)" for (s, _), i, row in zip(counts, lowest, share, strict=True)]
    summary = f"The class with the lowest accuracy: {', '.join(ends)}."
    if len(shown) < len(there):
        summary += f" The {MOST_BARS} lowest of {len(there)} classes are drawn."
    rows = [[names[i], span(sizes[:, i].tolist()), *(f"{share[k, i]:.1f}" for k in range(len(counts)))] for i in there]
    head = ["class", "samples", *(series.label for series, _ in counts)]
    return Plot(
        f"per-class-{number}",
        "Accuracy per class",
        "Of the samples of a class, the share that the network assigns to it. A class with few samples moves in large "
        "steps: the table has their numbers.",
        [Panel(f"per-class-{number}", "", {"data": traces, "layout": layout})],
        summary,
        plain("Accuracy per class, %", head, rows),
        kind="wide",
    )
