"""The default on images as people train them today, and without sweeps.

    python benchmarks/defaults_images.py residual   # CIFAR-10, 50 per class: results/defaults/residual.jsonl
    python benchmarks/defaults_images.py running    # sweeps against running features: results/defaults/running.jsonl

Nothing is tuned, for any method. Records are appended as they come; what is recorded is skipped. `running` is judged on
validation images, since it chooses a default; test accuracy is recorded beside it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from defaults_grid import batch_norm_net
from keel import table
from measure import record_missing
from torch import Tensor

from ldmnet import Method, TrainSettings, fit
from ldmnet.data import load, stratified, subset_and_validation
from ldmnet.networks import FeatureNet, initialize, mlp, mnist_net, residual_net
from ldmnet.training import evaluate

SEEDS = range(3)
Runs = Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]
Pair = tuple[Tensor, Tensor]
# a table with classes to hold out for validation; the rest of the rows test
TABLES = ("texture", "letter")


@lru_cache(maxsize=2)
def images(name: str, seed: int) -> tuple[Pair, Pair, Pair]:
    """Training, validation and test images, standardised by the training images."""
    split = load(name)
    train, held = subset_and_validation(split.y_train, 50, seed)
    x = split.x_train[train].float()
    mean, deviation = x.mean(), x.std()

    def ready(pixels: Tensor, labels: Tensor) -> Pair:
        shaped = pixels.float() if pixels.ndim == 4 else pixels.float()[:, None]
        return (shaped - mean) / deviation, labels

    return (
        ready(split.x_train[train], split.y_train[train]),
        ready(split.x_train[held], split.y_train[held]),
        ready(split.x_test, split.y_test),
    )


@lru_cache(maxsize=2)
def rows(name: str, seed: int) -> tuple[Pair, Pair, Pair]:
    """Training, validation and test rows of a table, 20 per class to train and 20 to validate."""
    x, y = table(name)
    some = stratified(y, 40, seed)
    kept = stratified(y[some], 20, seed)
    rest = torch.ones(len(y), dtype=torch.bool)
    rest[some] = False
    held = torch.ones(len(some), dtype=torch.bool)
    held[kept] = False
    mean, deviation = x[some[kept]].mean(0), x[some[kept]].std(0).clamp(min=1e-9)
    z = ((x - mean) / deviation).float()
    return (z[some[kept]], y[some[kept]]), (z[some[held]], y[some[held]]), (z[rest], y[rest])


def train(
    data: tuple[Pair, Pair, Pair], model: FeatureNet, start: str, method: Method, settings: TrainSettings
) -> dict[str, Any]:
    """One training, its test and validation accuracy, and how it spent its time."""
    if start != "torch":
        initialize(model, start, settings.seed)  # type: ignore[arg-type]
    found = fit(model, data[0], method=method, settings=settings, test=data[2], progress=False)
    assert found.test_accuracy is not None
    return {
        "accuracy": round(100 * found.test_accuracy, 3),
        "val_accuracy": round(100 * evaluate(model, *data[1])[1], 3),
        "train_loss": float(f"{found.train_loss:.4g}"),
        "strength": None if found.regularizer is None else found.regularizer.log[-1].strength,
        "seconds": {phase: round(spent, 1) for phase, spent in found.seconds.items()},
    }


def residual(epochs: int) -> Runs:
    """A wide residual network with shift and flip, as `ldmnet train` trains it but for longer."""
    for seed in SEEDS:
        for method in ("none", "control", "ldmnet"):
            place = {"method": method, "seed": seed, "epochs": epochs}
            settings = TrainSettings(
                epochs=epochs,
                lr=0.05,
                batch_size=50,
                schedule="cosine",
                weight_decay=0.005,
                augment="shift,flip",
                precision="bfloat16",
                seed=seed,
            )
            yield (
                place,
                lambda seed=seed, method=method, settings=settings: train(
                    images("cifar10", seed), residual_net((3, 32, 32), 10), "he", Method(method), settings
                ),
            )


def running(epochs: int) -> Runs:
    """LDMNet with sweeps and with running features, beside none: plain, BatchNorm, DropOut, augmentation, tables."""
    methods = {"none": {}, "sweep": {"features": "sweep"}, "running": {"features": "running"}}
    mnist = {"epochs": epochs, "batch_size": 50}
    adamw = {"lr": 0.002, "optimizer": "adamw", "schedule": "cosine"}
    cells: dict[str, tuple[Callable[[], FeatureNet], str, dict[str, Any], dict[str, Any]]] = {
        "paper's network": (mnist_net, "torch", {"lr": 0.01}, {}),
        "BatchNorm": (batch_norm_net, "he", adamw, {}),
        "BatchNorm and shifts": (batch_norm_net, "he", {**adamw, "augment": "shift"}, {}),
        "DropOut": (mnist_net, "torch", {"lr": 0.01}, {"dropout": 0.5}),
    }
    for seed in SEEDS:
        for name, (net, start, how, also) in cells.items():
            for method, options in methods.items():
                chosen = Method("ldmnet" if options else "dropout" if also else "none", **options, **also)
                settings = TrainSettings(**{**mnist, **how}, seed=seed)  # type: ignore[arg-type]
                yield (
                    {"cell": f"MNIST, {name}", "method": method, "seed": seed, "epochs": epochs},
                    lambda seed=seed, net=net, start=start, chosen=chosen, settings=settings: train(
                        images("mnist", seed), net(), start, chosen, settings
                    ),
                )
        for name in TABLES:
            for method, options in methods.items():
                chosen = Method("ldmnet" if options else "none", **options)
                settings = TrainSettings(
                    epochs=epochs, lr=0.001, batch_size=32, optimizer="adamw", schedule="cosine", seed=seed
                )
                yield (
                    {"cell": f"{name}, MLP", "method": method, "seed": seed, "epochs": epochs},
                    partial(_on_table, name, seed, chosen, settings),
                )


def _on_table(name: str, seed: int, method: Method, settings: TrainSettings) -> dict[str, Any]:
    data = rows(name, seed)
    net = mlp(data[0][0].shape[1], int(data[0][1].max()) + 1, (256, 256))
    return train(data, net, "he", method, settings)


def main() -> None:
    """Train what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["residual", "running"])
    parser.add_argument("--epochs", type=int, help="150 for residual, 100 for running")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    runs = residual(options.epochs or 150) if options.which == "residual" else running(options.epochs or 100)
    record_missing(runs, options.output or Path("results/defaults") / f"{options.which}.jsonl")


if __name__ == "__main__":
    main()
