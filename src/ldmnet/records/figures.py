"""Figures: points or records in, one picture file out. Needs the extra `demo` (matplotlib, scikit-learn)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ldmnet.errors import missing_extra

TITLES = {
    "none": "no regulariser",
    "weight_decay": "weight decay",
    "dropout": "DropOut",
    "control": "control (graph off)",
    "ldmnet": "LDMNet",
    "ldmnet_tuned": "LDMNet, tuned",
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
                color=plt.cm.tab10(c % 10),
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
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
