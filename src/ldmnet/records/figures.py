"""Figures: points or records in, one picture file out. Needs the extra `demo` (matplotlib, scikit-learn)."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ldmnet.errors import DataError, missing_extra
from ldmnet.files import written_whole
from ldmnet.palette import class_color, method_color
from ldmnet.records.leads import Parts, standard_error
from ldmnet.records.record import Record
from ldmnet.records.tables import ORDER, TUNED, cells_of

TITLES = {
    "none": "no regulariser",
    "weight_decay": "weight decay",
    "dropout": "DropOut",
    "control": "control (graph off)",
    "ldmnet": "LDMNet",
    "ldmnet_tuned": "LDMNet, tuned",
}
DATA = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "digits5k": "the demo's digits",
    "yaleb": "Extended Yale B",
    "cufs": "CUFS",
}


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing to files."""
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("matplotlib", "demo") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def pca(points: Tensor, dimensions: int = 2) -> Any:
    """The first principal components of (n, d) points, as an (n, dimensions) array."""
    try:
        from sklearn.decomposition import PCA
    except ImportError as error:
        raise missing_extra("scikit-learn", "demo") from error
    return PCA(dimensions, svd_solver="covariance_eigh").fit_transform(points.flatten(1).double().numpy())


def feature_figure(panels: Mapping[str, Tensor], labels: Tensor, path: Path, *, title: str = "") -> Path:
    """Figure 1: one panel a set of features, PCA to two dimensions, one colour a class.

    Args:
        panels: (n, ...) points by panel title.
        labels: (n,) classes.
        path: where the picture goes; the ending gives its format.
        title: a line above all panels.
    """
    plt = pyplot()
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.6 * columns, 3.5 * rows + 0.7), squeeze=False)
    classes = sorted(set(labels.tolist()))
    for axis, (name, points) in zip(axes.flat, panels.items(), strict=False):
        flat = pca(points)
        for c in classes:
            chosen = (labels == c).numpy()
            axis.scatter(
                flat[chosen, 0],
                flat[chosen, 1],
                s=2,
                color=class_color(c).light,
                label=str(c),
                rasterized=True,
            )
        axis.set_title(name, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="lower center", ncol=len(classes), markerscale=5, frameon=False, fontsize=9,
        handletextpad=0.1, columnspacing=1.0,
    )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=11)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        figure.savefig(file, dpi=110)
    plt.close(figure)
    return path


MARKERS = {"none": "v", "weight_decay": "s", "dropout": "^", "control": "D", "ldmnet": "o"}


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
    plt = pyplot()
    from matplotlib.ticker import LogLocator

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2))
    for method in sorted(lines, key=lambda name: (ORDER.index(name.removesuffix(TUNED)), name)):
        plain = method.removesuffix(TUNED)
        tuned = plain != method
        style = {
            "color": method_color(plain).light,
            "marker": MARKERS[plain],
            "markerfacecolor": "white" if tuned else None,
            "linestyle": "--" if tuned else "-",
            "label": TITLES[plain] + (", tuned" if tuned else ""),
            "linewidth": 1.2,
        }
        sizes = sorted(lines[method])
        left.plot(sizes, [lines[method][n][0] for n in sizes], **style)
        right.plot(sizes, [lines[method][n][1] for n in sizes], **style)
    shown = sorted({n for sizes in lines.values() for n in sizes})
    for axis, name in ((left, "test error (%)"), (right, "test loss - training loss")):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(shown, [f"{n:,}" for n in shown], minor=False, rotation=40, ha="right", rotation_mode="anchor")
        axis.set_xticks([], minor=True)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        axis.yaxis.set_minor_formatter(lambda value, _: f"{value:g}")
        axis.tick_params(labelsize=8, which="both")
        axis.set_xlabel("training images")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3, which="both")
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncol=math.ceil(len(names) / 2), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        figure.savefig(file, dpi=110)
    plt.close(figure)
    return path


def parts_figure(parts: Sequence[Parts], path: Path) -> Path:
    """One bar a cell: no regulariser at zero, what the pull adds, and on top of it what the graph adds.

    A cell without a run of no regulariser is left out.
    """
    parts = [part for part in parts if part.pull]
    if not parts:
        raise DataError("there are no records of LDMNet, its control and no regulariser to draw.")
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(8, 0.42 * len(parts) + 1.3))
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
    names = [", ".join([*_where(part), part.settings]) for part in parts]
    axis.set_yticks(places, names, fontsize=9)
    axis.set_xlabel(
        "points of accuracy over no regulariser\n(whiskers: standard error of the graph's part)", fontsize=9
    )
    axis.margins(x=0.1)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, fontsize=8, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        figure.savefig(file, dpi=110)
    plt.close(figure)
    return path


def _where(part: Parts) -> list[str]:
    name, _, images = part.table.partition("-")
    if name in DATA and images.isdigit():  # faces, from few images of a person
        return [DATA[name], f"{images} images a modality"]
    return [DATA.get(part.table, part.table), *([] if part.per_class is None else [f"{part.per_class} a class"])]
