"""The features of a group of runs as they move over the epochs: their places, their pictures, their spectrum."""

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
from ldmnet.records.snapshots import Points, Snapshot
from ldmnet.report.collect import Group, Series
from ldmnet.report.plots import Line, Part, Plot, Spec, color_of, lines_plot, short, words
from ldmnet.report.tables import plain

SPRITE_COLUMNS = 20
RANGE = 1000  # coordinates go into the page as whole numbers from -RANGE to RANGE


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
                "scale": short(scale),
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
                "all": [short(_shares(s.spectrum, float(s.total[0]))) for s in taken],
                "within": [short(_shares(s.within, float(s.total[1]))) for s in taken],
            }
        )
        values = [effective_dimension(s.within, float(s.total[1])) for s in taken]
        dimensions.append(Line(series, color, epochs, [values]))
    ends = ", ".join(f"{line['label']} {words(line['within'][-1][0])} %" for line in lines)
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
            [[str(i + 1), *(words(line["within"][-1][i]) for line in lines)] for i in range(10)],
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
