"""The features of a group of runs as they move over the epochs: their places, their pictures, their spread."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ldmnet.errors import missing_extra
from ldmnet.matching.embeddings import pca
from ldmnet.palette import CLASS_COLORS
from ldmnet.records.snapshots import Points, Snapshot
from ldmnet.report.groups import Group, Series
from ldmnet.report.plots import SYMBOLS, Figure, Line, Measure, Panel, Part, Plot, clip, lines_plot

SPRITE_COLUMNS = 20
RANGE = 1000  # coordinates go into the page as whole numbers from -RANGE to RANGE
GLYPHS = ("●", "■", "◆", "▲", "▼")  # SYMBOLS, in a legend
BOX = {"range": [-1.08 * RANGE, 1.08 * RANGE], "visible": False, "fixedrange": True}


def features(number: int, group: Group) -> Part:
    """Draw the features by method and epoch, and their spread; methods that followed the same samples side by side."""
    part = Part(group.title)
    alike: dict[tuple[Any, ...], list[tuple[Series, list[Snapshot], Points]]] = {}
    for series in group.series:
        kept = series.traced.snapshots
        if kept is not None and kept.taken:
            member = series, list(kept.taken.values()), kept.points
            alike.setdefault((_points_id(kept.points), *kept.taken), []).append(member)
    for place, (key, members) in enumerate(alike.items()):
        name, epochs, points = f"{number}-{place}", list(key[1:]), members[0][2]
        taken = [(series, snapshots) for series, snapshots, _ in members]
        part.plots.append(_features_plot(name, taken, points, epochs))
        part.plots.extend(_spread_plots(name, taken, epochs))
    without = [series.label for series in group.series if series.traced.snapshots is None]
    if not alike:
        part.notes.append("These runs kept no snapshots of their features: reproduce keeps them on request.")
    elif without:
        part.notes.append(f"There are no snapshots of: {', '.join(without)}.")
    return part


def _points_id(points: Points) -> str:
    digest = hashlib.sha256(repr((points.names, points.labels.tolist(), points.class_names)).encode())
    if points.images is not None:
        digest.update(points.images.tobytes())
    return digest.hexdigest()[:12]


def _features_plot(name: str, members: list[tuple[Series, list[Snapshot]]], points: Points, epochs: list[int]) -> Plot:
    labels, classes = points.labels.tolist(), points.class_names
    panels, shares = [], []
    for k, (series, snapshots) in enumerate(members):
        places, share = project(snapshots)
        right = 100 * float((snapshots[-1].predicted == points.labels.numpy()).mean())
        frames = [_frame(xy, s, labels, classes) for xy, s in zip(places, snapshots, strict=True)]
        trace: Figure = {
            "type": "scatter",
            "mode": "markers",
            "text": [f"sample {clip(n)}, class {clip(classes[c])}" for n, c in zip(points.names, labels, strict=True)],
            "hovertemplate": "%{text}<br>taken for %{customdata}<extra></extra>",
            "selected": {"marker": {"size": 18}},
            "unselected": {"marker": {"opacity": 1}},
            "selectedpoints": [0],
        }
        marker: Figure = {
            "size": 8,
            "opacity": 1,
            "color": [f"class-{c % len(CLASS_COLORS)}" for c in labels],
            "symbol": [SYMBOLS[_symbol(c)] for c in labels],
        }
        last = frames[-1]
        trace |= {**last, "marker": {**marker, "line": {"color": "text", **last["marker"]["line"]}}}
        layout = {"margin": {"l": 2, "r": 2, "t": 2, "b": 2}, "xaxis": BOX, "yaxis": BOX, "dragmode": False}
        figure: Figure = {"data": [trace], "layout": layout, "frames": frames}
        panels.append(Panel(f"features-{name}-{k}", f"{series.label}: {right:.1f} % right", figure))
        shares.append(f"{series.label} {100 * share:.0f} %")
    samples: dict[str, Any] = {
        "words": [f"{points.part} sample {n}, class {classes[c]}" for n, c in zip(points.names, labels, strict=True)]
    }
    sprites = {}
    if points.images is not None:
        rows = -(-len(points.names) // SPRITE_COLUMNS)
        height, width = points.images.shape[1:3]
        key = _points_id(points)
        sprites[key] = sprite_png(points.images)
        samples["sprite"] = {"id": key, "columns": SPRITE_COLUMNS, "rows": rows, "height": height, "width": width}
    return Plot(
        f"features-{name}",
        "Where the samples lie",
        f"The features of {len(labels)} {points.part} samples, seen along their two principal components: the two "
        "directions, fixed at the last epoch, in which a method's features spread most. Each epoch is drawn at its own "
        "scale. An outline marks a sample that is taken for another class; beside the method, the share "
        "that is right at the last epoch.",
        panels,
        f"The two directions hold this share of the variance at the last epoch: {', '.join(shares)}.",
        kind="features",
        legend=[(GLYPHS[_symbol(c)], f"class-{c % len(CLASS_COLORS)}", name) for c, name in enumerate(classes)],
        epochs=epochs,
        samples=samples,
        sprites=sprites,
    )


def _symbol(number: int) -> int:
    """A class's symbol: classes of one colour have another one."""
    return (number + number // len(CLASS_COLORS)) % len(SYMBOLS)


def _frame(places: NDArray[np.float64], snapshot: Snapshot, labels: list[int], classes: list[str]) -> Figure:
    """What changes in a trace from epoch to epoch; the places fill the square from -RANGE to RANGE."""
    low, high = places.min(0), places.max(0)
    whole = np.rint(RANGE * (places - (low + high) / 2) / ((high - low).max() / 2 or 1.0)).astype(int)
    predicted = snapshot.predicted.tolist()
    return {
        "x": whole[:, 0].tolist(),
        "y": whole[:, 1].tolist(),
        "customdata": [clip(classes[c]) if c < len(classes) else str(c) for c in predicted],
        "marker": {"line": {"width": [1.8 if a != b else 0 for a, b in zip(predicted, labels, strict=True)]}},
    }


def project(snapshots: Sequence[Snapshot]) -> tuple[list[NDArray[np.float64]], float]:
    """Show each snapshot in the two principal directions of the last one, around its own mean.

    Returns:
        (n, 2) places, one array per snapshot, and the share of the last one's variance that they show.
    """
    values = [torch.from_numpy(snapshot.values()).double() for snapshot in snapshots]
    show = pca(values[-1], 2)
    found = [F.pad(flat := show(v), (0, 2 - flat.shape[1])) for v in values]
    last = found[-1]
    signs = last.gather(0, last.abs().argmax(0, keepdim=True)).sign()  # the sign is free: choose it
    share = float(last.square().sum() / (values[-1] - values[-1].mean(0)).square().sum().clamp(min=1e-300))
    return [((flat - flat.mean(0)) * signs).numpy() for flat in found], share


def sprite_png(images: NDArray[np.uint8]) -> str:
    """Put all pictures on one sheet, as a data address."""
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


def within_share(snapshot: Snapshot) -> float | None:
    """Return the share of the features' variance that lies within classes, in percent."""
    total, within = map(float, snapshot.total)
    return 100 * within / total if total > 0 else None


def _spread_plots(name: str, members: list[tuple[Series, list[Snapshot]]], epochs: list[int]) -> list[Plot]:
    shares = [Line(series, epochs, [[within_share(s) for s in snapshots]]) for series, snapshots in members]
    spectra = []
    for series, snapshots in members:
        total, within = float(snapshots[-1].total[0]), snapshots[-1].within
        line = [100 * float(v) / total if v > 1e-7 * total > 0 else None for v in within]
        spectra.append(Line(series, list(range(1, len(line) + 1)), [line]))
    y = "% of the variance"
    share = Measure(
        "within", "Share of variance within classes",
        "How much of the features' spread lies around the means of their classes, the rest being between those means; "
        "the lower, the tighter the classes.", y, "percent",
    )  # fmt: skip
    spectrum = Measure(
        "spectrum", f"Spread within classes by direction, at epoch {epochs[-1]}",
        "The same share split over the directions in which the features spread most around the means of their classes, "
        "the widest first (the largest eigenvalues of their covariance).", y, "log",
    )  # fmt: skip
    plots = [lines_plot(f"within-{name}", share, shares, markers=True)]
    if any(line.any for line in spectra):
        plots.append(lines_plot(f"spectrum-{name}", spectrum, spectra, x="direction"))
    return plots
