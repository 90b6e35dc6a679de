"""The runs behind each table: the paper's numbers joined with what it leaves unsaid (docs/reproduction.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ldmnet.errors import InputError
from ldmnet.palette import TUNED
from ldmnet.paper import specs
from ldmnet.runs.datasets import RunSettings
from ldmnet.runs.run import Run
from ldmnet.training.methods import METHODS, Method
from ldmnet.training.settings import Precision, TrainSettings

PRINTED_ROWS = METHODS


def _sgd(table: specs.PaperTable, precision: Precision = "float32") -> TrainSettings:
    return TrainSettings(epochs=specs.EPOCHS, lr=table.lr, precision=precision)


# What the paper does not say: pixels, initialisation. Each was measured, see docs/reproduction.md.
SETUP: dict[str, RunSettings] = {
    "mnist": RunSettings("mnist", None, net="mnist", init="gaussian", train=_sgd(specs.MNIST)),
    "svhn": RunSettings(
        "svhn", None, net="cifar", preprocess="local_contrast", init="xavier", train=_sgd(specs.SVHN, "bfloat16")
    ),
    "cifar10": RunSettings(
        "cifar10", None, net="cifar", pixel_scale=64.0, init="xavier", train=_sgd(specs.CIFAR10, "bfloat16")
    ),
}
SETUP["digits5k"] = replace(SETUP["mnist"], data="digits5k")  # the demo: MNIST's set-up on the embedded digits
DIGITS5K_A_CLASS = 500
BFLOAT16_FROM = 400  # images per class, on MNIST; at 50 it changes no accuracy (docs/reproduction.md)


def paper_methods(spec: specs.PaperRow | specs.NirVis) -> dict[str, Method]:
    """Every row's method with the hyperparameters that the paper prints."""
    return {
        "none": Method(),
        "weight_decay": Method("weight_decay", weight_decay_w=spec.w),
        "dropout": Method("dropout", dropout=specs.DROPOUT),
        "control": Method("control", mu=spec.mu),
        "ldmnet": Method("ldmnet", mu=spec.mu, lambda_tilde=spec.lambda_tilde),
    }


def printed_method(table: str, per_class: int, row: str) -> Method:
    """A row's method with the hyperparameters that the paper prints for that size."""
    if row not in PRINTED_ROWS:
        raise InputError(f"there is no row {row!r}. The rows: {', '.join(PRINTED_ROWS)}.")
    return paper_methods(paper_table(table).row(per_class))[row]


@dataclass(frozen=True)
class Departure:
    """What a run changes of a printed row; the rest stays as the paper prints it for the size.

    Attributes:
        name: what is varied, and to what, in a study.
        lr: a factor on the learning rate.
        method: fields of the `Method` to replace.
        train: fields of the `TrainSettings` to replace.
        run: fields of the `RunSettings` to replace.
    """

    name: str = ""
    lr: float = 1.0
    method: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)

    def of(self, table: str, size: int, row: str, **more: Any) -> RunSettings:
        """The settings of a printed row with these changes."""
        setup = SETUP[table]
        return replace(
            setup,
            method=replace(printed_method(table, size, row), **self.method),
            train=replace(setup.train, **{"lr": setup.train.lr * self.lr, **self.train}),
            **{**more, **self.run},
        )


BY_DEFAULT = {"mu": None, "lambda_tilde": None}  # no number: see ldmnet.strength
CHOSEN: dict[str, dict[str, Departure]] = {
    # a table or a row is here once validation images have chosen, at 50 images per class (docs/reproduction.md)
    "mnist": {
        "none": Departure(lr=5),
        "weight_decay": Departure(lr=5),
        "dropout": Departure(lr=2),
        "control": Departure(lr=5, method={"mu": 0.003}),
        "ldmnet": Departure(method={"input_scale": 0.0}),
    },
    "cifar10": {
        "none": Departure(lr=5),
        "weight_decay": Departure(lr=5),
        "dropout": Departure(lr=5),
        "control": Departure(lr=5, method={"mu": 0.5}),
        "ldmnet": Departure(lr=5, method={"mu": 0.5, "lambda_tilde": 0.5, "input_scale": 0.0}),
    },
    "svhn": {
        "dropout": Departure(lr=2),
        "control": Departure(),  # as LDMNet, without the graph
        "ldmnet": Departure(method={"input_scale": 0.0}),
    },
}
CHOSEN["digits5k"] = CHOSEN["mnist"]


def rows_of(table: str) -> tuple[str, ...]:
    """The rows of a table: as printed, then tuned."""
    return PRINTED_ROWS + tuple(row + TUNED for row in CHOSEN.get(table, {}))


def paper_table(table: str) -> specs.PaperTable:
    """The printed table behind one of ours."""
    return specs.TABLES["mnist" if table == "digits5k" else table]


def classification_runs(
    table: str,
    sizes: Sequence[int],
    rows: Sequence[str],
    seeds: Sequence[int],
    *,
    threads: int = 1,
    precision: Precision | None = None,
) -> list[Run[RunSettings]]:
    """The runs of a classification table: every size, then every seed, then every row.

    Args:
        table: mnist, svhn, cifar10 or digits5k.
        sizes: training images per class.
        rows: by name, as in `rows_of`.
        seeds: each draws another subset.
        threads: of torch, in every run.
        precision: of the networks' passes; the one that the table's records have unless given.
    """
    if table not in SETUP:
        raise InputError(f"there is no table {table!r}. The tables: {', '.join(SETUP)}.")
    spec = paper_table(table)
    most = DIGITS5K_A_CLASS - 1 if table == "digits5k" else math.inf  # one of them at least is left to test
    known = [row.per_class for row in spec.rows if row.per_class <= most]
    unknown = [size for size in sizes if size not in known]
    if unknown:
        raise InputError(f"{table} has no row for {unknown} images per class. The rows: {known}.")
    runs = []
    for size in sizes:
        passes = precision or ("bfloat16" if size >= BFLOAT16_FROM else SETUP[table].train.precision)
        whole = (spec.name, size) == ("mnist", 6000)
        for seed in seeds:
            for row in rows:
                plain = row.removesuffix(TUNED)
                if row != plain and row not in rows_of(table):
                    raise InputError(f"{table} has no row {row!r}. The rows: {', '.join(rows_of(table))}.")
                departure = replace(Departure() if row == plain else CHOSEN[table][plain], train={"precision": passes})
                settings = departure.of(
                    table, size, plain, per_class=None if whole else size, seed=seed, threads=threads
                )  # fmt: skip
                selection = "printed" if row == plain else "validation"
                runs.append(Run(table, row, settings, selection, spec.row(size).accuracy.get(plain), size))
    return runs
