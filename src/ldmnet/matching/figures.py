"""Pictures of matching: Figure 2 (people in two modalities) and CMC curves. Needs the extra `demo` (matplotlib)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ldmnet.errors import missing_extra
from ldmnet.files import written_whole
from ldmnet.matching.embeddings import TITLES, pca
from ldmnet.palette import class_color, method_color

Scatter = Mapping[str, Sequence[float]]


def scatter_points(features: Tensor, identity: Tensor, modality: Tensor, people: int = 5) -> dict[str, list[float]]:
    """The first few people's features, PCA to two dimensions, as lists `x`, `y`, `person` and `modality`."""
    chosen = torch.unique(identity)[:people]
    rows = torch.isin(identity, chosen)
    flat = pca(features[rows], 2)(features[rows])
    flat = torch.nn.functional.pad(flat, (0, 2 - flat.shape[1]))
    columns = [*flat.T, torch.searchsorted(chosen, identity[rows]), modality[rows]]
    names = ("x", "y", "person", "modality")
    return {
        name: [float(f"{v:.4g}") if name in "xy" else int(v) for v in column.tolist()]
        for name, column in zip(names, columns, strict=True)
    }


def people_figure(panels: Mapping[str, Scatter], modalities: tuple[str, str], path: Path, *, title: str = "") -> Path:
    """Figure 2: one panel a method, one colour a person, a filled circle or an open diamond a modality.

    Args:
        panels: points as from `scatter_points`, by panel title.
        modalities: the names of both modalities.
        path: where the picture goes; the ending gives its format.
        title: a line above all panels.
    """
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = _figure(3.5 * columns, 3.3 * rows + 0.9)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, (name, points) in zip(axes.flat, panels.items(), strict=False):
        for x, y, person, modality in zip(*(points[k] for k in ("x", "y", "person", "modality")), strict=True):
            colour = class_color(int(person)).light
            if modality == 0:
                axis.plot(x, y, "o", color=colour, markersize=4.5, markeredgewidth=0, alpha=0.85)
            else:
                axis.plot(x, y, "D", markersize=4.5, markerfacecolor="none", markeredgecolor=colour, alpha=0.85)
        axis.set_title(name, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.margins(0.06)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    (circle,) = axes[0][0].plot([], [], "o", color="#444444", markersize=6, markeredgewidth=0, label=modalities[0])
    (diamond,) = axes[0][0].plot(
        [], [], "D", markersize=6, markerfacecolor="none", markeredgecolor="#444444", label=modalities[1]
    )
    figure.legend(handles=[circle, diamond], loc="outside lower center", ncol=2, frameon=False, fontsize=10)
    return _save(figure, path, title)


def cmc_figure(curves: Mapping[str, Sequence[float]], path: Path, *, title: str = "") -> Path:
    """Cumulative match characteristics: the share of probes identified within the first r, a line a method.

    Args:
        curves: per cent of the probes, from rank 1 on, by method.
        path: where the picture goes.
        title: a line above.
    """
    figure = _figure(6.4, 4.6)
    axis = figure.subplots()
    styles, names = ("-", "--", "-.", ":"), {title: method for method, title in TITLES.items()}
    for i, (name, curve) in enumerate(curves.items()):
        ranks = range(1, len(curve) + 1)
        axis.plot(
            ranks, list(curve), styles[i % len(styles)], color=method_color(names.get(name, name), i).light,
            marker="o", markersize=3, linewidth=1.6, label=name,
        )  # fmt: skip
    longest = max(map(len, curves.values()))
    axis.set_xticks(range(1, longest + 1, max(1, round(longest / 10))))
    axis.set_xlabel("rank")
    axis.set_ylabel("probes identified within rank, %")
    axis.set_ylim(top=101)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="lower right", framealpha=0.9)
    return _save(figure, path, title)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "demo") from error
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path, title: str) -> Path:
    if title:
        figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as place:
        figure.savefig(place, dpi=110)
    return path
