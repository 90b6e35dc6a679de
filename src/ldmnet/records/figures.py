"""Figures: points or records in, one picture file out. Needs the extra `demo` (matplotlib)."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ldmnet.errors import DataError, missing_extra
from ldmnet.files import written_whole
from ldmnet.matching.embeddings import plane
from ldmnet.palette import TITLES, TUNED, class_color, method_color, title_of
from ldmnet.records.leads import Parts, standard_error
from ldmnet.records.record import Record
from ldmnet.records.tables import ORDER, cells_of

DATA = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "digits5k": "the demo's digits",
    "yaleb": "Extended Yale B",
    "cufs": "CUFS",
}
MARKERS = {"none": "v", "weight_decay": "s", "dropout": "^", "control": "D", "ldmnet": "o"}
BELOW = {"loc": "outside lower center", "frameon": False, "fontsize": 9}  # a legend


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing to files."""
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("matplotlib", "demo") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    figure, axes = pyplot().subplots(
        rows, columns, figsize=(width, height), squeeze=False, layout="constrained"
    )  # fmt: skip
    return figure, axes.ravel()


def _panels(titles: Collection[str]) -> tuple[Any, Any]:
    """A figure with a square for each title, three in a row."""
    columns = min(3, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure, axes = _figure(3.6 * columns, 3.5 * rows + 0.7, rows, columns)
    for axis in axes[len(titles) :]:
        axis.set_visible(False)
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(title, fontsize=10)
        axis.set(xticks=[], yticks=[])
    return figure, axes[: len(titles)]


def _saved(figure: Any, path: Path, title: str = "") -> Path:
    if title:
        figure.suptitle(title, fontsize=11)
    with written_whole(path) as place:
        figure.savefig(place, dpi=110)
    pyplot().close(figure)
    return path


def feature_figure(panels: Mapping[str, Tensor], labels: Tensor, path: Path, *, title: str = "") -> Path:
    """Figure 1: one panel per set of features, PCA to two dimensions, one colour per class.

    Args:
        panels: (n, ...) points by panel title.
        labels: (n,) classes.
        path: where the picture goes; the ending gives its format.
        title: a line above all panels.
    """
    figure, axes = _panels(panels)
    classes = sorted(set(labels.tolist()))
    for axis, points in zip(axes, panels.values(), strict=True):
        flat = plane(points.flatten(1)).numpy()
        for c in classes:
            color = class_color(c).light
            axis.scatter(*flat[(labels == c).numpy()].T, s=2, color=color, label=str(c), rasterized=True)
    shown = axes[0].get_legend_handles_labels()
    figure.legend(*shown, ncol=len(classes), markerscale=5, handletextpad=0.1, columnspacing=1.0, **BELOW)
    return _saved(figure, path, title)


def people_figure(
    panels: Mapping[str, Mapping[str, Sequence[float]]], modalities: Sequence[str], path: Path, *, title: str = ""
) -> Path:
    """Figure 2: one panel per method, one colour per person; circles for one modality, open diamonds for the other.

    Args:
        panels: lists `x`, `y`, `person` and `modality` by panel title.
        modalities: the names of both modalities.
        path: where the picture goes; the ending gives its format.
        title: a line above all panels.
    """
    figure, axes = _panels(panels)
    for axis, points in zip(axes, panels.values(), strict=True):
        for m, (name, marker) in enumerate(zip(modalities, "oD", strict=True)):
            chosen = [i for i, modality in enumerate(points["modality"]) if modality == m]
            x, y = ([points[key][i] for i in chosen] for key in "xy")
            colors = [class_color(int(points["person"][i])).light for i in chosen]
            faces = colors if m == 0 else "none"
            axis.scatter(x, y, s=20, marker=marker, facecolors=faces, edgecolors=colors, alpha=0.85, label=name)
        axis.margins(0.06)
    legend = figure.legend(*axes[0].get_legend_handles_labels(), ncol=2, **BELOW)
    for handle, face in zip(legend.legend_handles, ("#444444", "none"), strict=True):
        handle.set(facecolors=face, edgecolors="#444444")
    return _saved(figure, path, title)


def cmc_figure(curves: Mapping[str, tuple[str, Sequence[float]]], path: Path, *, title: str = "") -> Path:
    """Cumulative match characteristics: the share of probes identified within the first r, one line per method.

    Args:
        curves: by row, its title and the per cent of the probes from rank 1 on.
        path: where the picture goes.
        title: a line above.
    """
    figure, (axis,) = _figure(6.4, 4.6)
    for i, (row, (name, curve)) in enumerate(curves.items()):
        axis.plot(range(1, len(curve) + 1), list(curve), ("-", "--", "-.", ":")[i % 4], marker="o", markersize=3,
                  color=method_color(row, i).light, linewidth=1.6, label=name)  # fmt: skip
    longest = max(len(curve) for _, curve in curves.values())
    axis.set_xticks(range(1, longest + 1, max(1, round(longest / 10))))
    axis.set(xlabel="rank", ylabel="probes identified within rank, %")
    axis.set_ylim(top=101)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="lower right", framealpha=0.9)
    return _saved(figure, path, title)


def error_figure(records: Iterable[Record], table: str, path: Path) -> Path:
    """Figure 3: test error, and the gap between test and training loss, against the training set's size.

    The same runs as in the table; a cell with a run that diverged is left out. Tuned rows are dashed.
    """
    lines: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    for (_, method), by_seed in cells_of(records, table).items():
        found = list(by_seed.values())
        scores = [r.score for r in found if r.score is not None and "test_loss" in r.more]
        if method in ORDER and len(scores) == len(found):
            gap = statistics.fmean(r.more["test_loss"] - r.more["train_loss"] for r in found)
            lines[method][found[0].n_train] = statistics.fmean(100 - score for score in scores), gap
    if not lines:
        raise DataError(f"there are no records of a table {table!r} with a test loss and a training loss to draw.")
    figure, axes = _figure(9, 4.4, 1, 2)
    for method in sorted(lines, key=lambda name: (list(TITLES).index(name.removesuffix(TUNED)), name)):
        plain = method.removesuffix(TUNED)
        look = {"linestyle": "-"} if plain == method else {"linestyle": "--", "markerfacecolor": "white"}
        sizes = sorted(lines[method])
        for axis, values in zip(axes, zip(*(lines[method][n] for n in sizes), strict=True), strict=True):
            axis.plot(sizes, values, color=method_color(plain).light, marker=MARKERS[plain], linewidth=1.2,
                      label=title_of(method), **look)  # fmt: skip
    shown = sorted({n for sizes in lines.values() for n in sizes})
    from matplotlib.ticker import LogLocator

    for axis, name in zip(axes, ("test error (%)", "test loss - training loss"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="training images", ylabel=name)
        axis.set_xticks(shown, [f"{n:,}" for n in shown], minor=False, rotation=40, ha="right", rotation_mode="anchor")
        axis.set_xticks([], minor=True)
        axis.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        for kind in ("major", "minor"):
            getattr(axis.yaxis, f"set_{kind}_formatter")(lambda value, _: f"{value:g}")
        axis.tick_params(labelsize=8, which="both")
        axis.grid(alpha=0.3, which="both")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, ncol=math.ceil(len(names) / 2), **BELOW)
    return _saved(figure, path)


def parts_figure(parts: Sequence[Parts], path: Path) -> Path:
    """One bar per cell: no regulariser at zero, what the pull adds, and on top of it what the graph adds.

    A cell without a run of no regulariser is left out.
    """
    parts = [part for part in parts if part.pull]
    if not parts:
        raise DataError("there are no records of LDMNet, its control and no regulariser to draw.")
    figure, (axis,) = _figure(8, 0.42 * len(parts) + 1.3)
    places = list(range(len(parts)))[::-1]
    pull = [statistics.fmean(part.pull) for part in parts]
    graph = [statistics.fmean(part.graph) for part in parts]
    errors = [standard_error(part.graph) for part in parts]
    axis.barh(places, pull, color=method_color("control").light, label="the pull: control less no regulariser")
    axis.barh(
        places, graph, left=pull, xerr=errors, error_kw={"elinewidth": 1, "capsize": 2},
        color=method_color("ldmnet").light, label="the graph: LDMNet less control",
    )  # fmt: skip
    for place, start, gain, error in zip(places, pull, graph, errors, strict=True):
        end = max(start, start + gain + error)
        axis.annotate(f"{gain:+.1f}", (end, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(places, [", ".join([*_where(part), part.settings]) for part in parts], fontsize=9)
    axis.set_xlabel(
        "points of accuracy over no regulariser\n(whiskers: standard error of the graph's part)", fontsize=9
    )
    axis.margins(x=0.1)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    figure.legend(ncol=2, **{**BELOW, "loc": "outside upper center", "fontsize": 8})
    return _saved(figure, path)


def _where(part: Parts) -> list[str]:
    name, _, images = part.table.partition("-")
    if name in DATA and images.isdigit():  # faces, from few images of a person
        return [DATA[name], f"{images} images per modality"]
    return [DATA.get(part.table, part.table), *([] if part.per_class is None else [f"{part.per_class} per class"])]
