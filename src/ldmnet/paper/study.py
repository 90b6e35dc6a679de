"""What the paper leaves unsaid, varied one thing at a time around the printed rows at 50 images per class.

Judged on validation images that are never trained on; the test accuracy is recorded beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ldmnet.errors import InputError
from ldmnet.paper.presets import BY_DEFAULT, Departure
from ldmnet.runs.datasets import RunSettings
from ldmnet.runs.run import Run

PER_CLASS = 50
DepartureT = TypeVar("DepartureT", bound=Departure)


@dataclass(frozen=True)
class Variation(Departure):
    """One departure from a printed row.

    Attributes:
        row: which row of the table is varied.
    """

    row: str = "ldmnet"


SHARED = (
    Variation("as printed"),
    Variation("mass: consistent", method={"mass": "consistent"}),
    Variation("graph on the features alone", method={"input_scale": 0.0}),
    Variation("by default", method=BY_DEFAULT),
    Variation("lr x 2, by default", method=BY_DEFAULT, lr=2),
    Variation("lr x 5, by default", method=BY_DEFAULT, lr=5),
    Variation("control by default", method={"mu": None}, row="control"),
    Variation("control, lr x 5, by default", method={"mu": None}, lr=5, row="control"),
    Variation("no regulariser, lr x 5", lr=5, row="none"),
    Variation("DropOut, lr x 5", lr=5, row="dropout"),
    Variation("weight decay, lr x 5", lr=5, row="weight_decay"),
)
# On MNIST, pixels keep their scale (about 64 for a standard deviation of one), so that lr and mu still fit.
MNIST_ONLY = (
    Variation("the point counts among its 20", method={"n_neighbors": 19, "sigma_neighbor": 9}),
    Variation("inputs x 0.1 in the graph", method={"input_scale": 0.1}),
    Variation("inputs x 0.01 in the graph", method={"input_scale": 0.01}),
    Variation("weight decay 5e-4 beside LDMNet", method={"weight_decay_w": 5e-4}),
    Variation("DropOut beside LDMNet", method={"dropout": 0.5}),
    Variation("DropOut beside LDMNet, by default", method={**BY_DEFAULT, "dropout": 0.5}),
    Variation("mu x 0.2", method={"mu": 0.002}),
    Variation("mu x 5", method={"mu": 0.05}),
    Variation("lambda_tilde x 0.2", method={"lambda_tilde": 0.01}),
    Variation("lambda_tilde x 5", method={"lambda_tilde": 0.25}),
    Variation("no sweep: the features that the batches saw", method={"features": "running"}),
    Variation("update every epoch", method={"epochs_per_update": 1}),
    Variation("update every 4 epochs", method={"epochs_per_update": 4}),
    Variation("per-image contrast", run={"preprocess": "contrast", "pixel_scale": 1 / 64}),
    Variation("standardised pixels x 64", run={"preprocess": "standard", "pixel_scale": 1 / 64}),
    Variation("Xavier initialisation", run={"init": "xavier"}),
    Variation("PyTorch initialisation", run={"init": "torch"}),
    Variation("weight decay, PyTorch's w instead of 2w", method={"weight_decay_w": 0.05}, row="weight_decay"),
    Variation("weight decay x 0.2", method={"weight_decay_w": 0.02}, row="weight_decay"),
    Variation("weight decay, lr x 2", lr=2, row="weight_decay"),
    Variation("DropOut, lr x 2", lr=2, row="dropout"),
    Variation("DropOut of 0.25", method={"dropout": 0.25}, row="dropout"),
    Variation("in bfloat16", train={"precision": "bfloat16"}),
    Variation("DropOut, in bfloat16", train={"precision": "bfloat16"}, row="dropout"),
)
LOCAL_CONTRAST: dict[str, Any] = {"preprocess": "local_contrast", "pixel_scale": 1.0}
CIFAR10_ONLY = (
    Variation("control, lr x 5, mu 0.5", method={"mu": 0.5}, lr=5, row="control"),
    Variation(
        "lr x 5, mu and lambda_tilde 0.5, features alone",
        method={"mu": 0.5, "lambda_tilde": 0.5, "input_scale": 0.0},
        lr=5,
    ),
    Variation("control as printed, in float32", train={"precision": "float32"}, row="control"),
    *(
        Variation(f"local contrast: {name}", run=LOCAL_CONTRAST, method=method, lr=5, row=row)
        for name, method, row in (
            ("no regulariser, lr x 5", {}, "none"),
            ("weight decay, lr x 5", {}, "weight_decay"),
            ("DropOut, lr x 5", {}, "dropout"),
            ("LDMNet, lr x 5, by default", BY_DEFAULT, "ldmnet"),
            ("control, lr x 5, by default", {"mu": None}, "control"),
            ("control, lr x 5, SVHN's mu", {"mu": 0.5}, "control"),
            ("LDMNet, lr x 5, SVHN's mu and lambda_tilde", {"mu": 0.5, "lambda_tilde": 0.1}, "ldmnet"),
            (
                "DropOut beside LDMNet, lr x 5, SVHN's mu and lambda_tilde",
                {"mu": 0.5, "lambda_tilde": 0.1, "dropout": 0.5},
                "ldmnet",
            ),
        )
    ),
)
SVHN_ONLY = (
    Variation("lambda_tilde x 5, features alone", method={"lambda_tilde": 0.5, "input_scale": 0.0}),
    Variation("mu and lambda_tilde x 2, features alone", method={"mu": 1.0, "lambda_tilde": 0.2, "input_scale": 0.0}),
    Variation("lr x 2, features alone", method={"input_scale": 0.0}, lr=2),
    Variation("control, lr x 2, by default", method={"mu": None}, lr=2, row="control"),
    Variation("control, lr x 2", lr=2, row="control"),
    Variation("control, mu x 2", method={"mu": 1.0}, row="control"),
    Variation("DropOut, lr x 2", lr=2, row="dropout"),
    Variation("weight decay, lr x 2", lr=2, row="weight_decay"),
    Variation("no regulariser, lr x 2", lr=2, row="none"),
    Variation("no regulariser, mean image", run={"preprocess": "mean_image", "pixel_scale": 64.0}, row="none"),
    Variation("no regulariser, per-image contrast", run={"preprocess": "contrast"}, row="none"),
)
VARIATIONS: dict[str, tuple[Variation, ...]] = {
    "mnist": SHARED + MNIST_ONLY,
    "cifar10": SHARED + CIFAR10_ONLY,
    "svhn": SHARED + SVHN_ONLY,
}


def named_like(variations: Sequence[DepartureT], names: Sequence[str]) -> list[DepartureT]:
    """The variations whose names contain one of some words; all without words."""
    chosen = [v for v in variations if not names or any(name in v.name for name in names)]
    if not chosen:
        listed = "; ".join(v.name for v in variations)
        raise InputError(f"no variation's name contains any of {list(names)}. The variations: {listed}.")
    return chosen


def study_runs(
    table: str, seeds: Sequence[int], names: Sequence[str] = (), *, threads: int = 1
) -> list[Run[RunSettings]]:
    """The runs of a table's study, most seeds last; `names` picks variations by a part of their name."""
    if table not in VARIATIONS:
        raise InputError(f"there is no study of {table!r}. The studies: {', '.join(VARIATIONS)}.")
    return [
        Run(
            f"study-{table}",
            variation.name,
            variation.of(table, PER_CLASS, variation.row, per_class=PER_CLASS, seed=seed, threads=threads),
            "validation",
        )
        for seed in seeds
        for variation in named_like(VARIATIONS[table], names)
    ]
