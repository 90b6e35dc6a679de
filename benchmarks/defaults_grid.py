"""Does the regulariser without a number do any harm? MNIST at 50 per class, 90 ways to train a network.

Each cell of the grid is trained without a regulariser, with the control and with LDMNet, all with no number named, in a
hand-written loop as in the README. Records are appended as they come; what is recorded is skipped.

    LDMNET_DATA=... python benchmarks/defaults_grid.py --output results/defaults/grid.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from measure import record_missing
from torch import Tensor, nn
from torch.nn import functional as F

from ldmnet import ManifoldRegularizer, sweep
from ldmnet.data import load, subset_and_validation
from ldmnet.errors import InputError
from ldmnet.networks import FeatureNet, initialize, mnist_net

METHODS = ("none", "control", "ldmnet")
PIXELS = ("0..255 less mean", "0..1", "standardised")
STARTS = ("gaussian", "torch", "he")
SGD = {  # learning rates over a factor of 100, about what trains with those pixels in the middle
    ("paper", "0..255 less mean"): (1e-4, 1e-3, 1e-2),
    ("paper", "0..1"): (1e-3, 1e-2, 1e-1),
    ("paper", "standardised"): (1e-3, 1e-2, 1e-1),
    "batch norm": (5e-3, 5e-2, 5e-1),
}
ADAMW = (3e-4, 3e-3)
PER_CLASS, BATCH = 50, 100


def batch_norm_net() -> FeatureNet:
    """Two convolutions and a hidden layer, each with batch normalisation."""
    features = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, 128, bias=False),
        nn.BatchNorm1d(128),
        nn.ReLU(),
    )
    return FeatureNet(features, 128, 10)


def cells() -> list[dict[str, Any]]:
    """All of the grid: 90 cells."""
    found = []
    for net, pixels, start in itertools.product(("paper", "batch norm"), PIXELS, STARTS):
        rates = SGD["batch norm"] if net == "batch norm" else SGD[net, pixels]
        for optimizer, lr in [*(("sgd", lr) for lr in rates), *(("adamw", lr) for lr in ADAMW)]:
            found.append({"net": net, "pixels": pixels, "start": start, "optimizer": optimizer, "lr": lr})
    return found


@lru_cache(maxsize=3)
def samples(pixels: str, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images in one of the scales, with their labels."""
    split = load("mnist")
    train, _ = subset_and_validation(split.y_train, PER_CLASS, seed)
    x, x_test = split.x_train[train].float(), split.x_test.float()
    if pixels == "0..1":
        x, x_test = x / 255, x_test / 255
    elif pixels == "standardised":
        mean, deviation = x.mean(), x.std()
        x, x_test = (x - mean) / deviation, (x_test - mean) / deviation
    else:
        x, x_test = x - x.mean(0), x_test - x.mean(0)
    shape = (-1, 1, 28, 28)
    return x.reshape(shape), split.y_train[train], x_test.reshape(shape), split.y_test


def train(cell: dict[str, Any], method: str, *, epochs: int, seed: int) -> dict[str, Any]:
    """Train once, in a plain loop."""
    x, y, x_test, y_test = samples(cell["pixels"], seed)
    torch.manual_seed(seed)
    model = mnist_net() if cell["net"] == "paper" else batch_norm_net()
    if cell["start"] != "torch":
        initialize(model, cell["start"], seed)
    if cell["optimizer"] == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), cell["lr"], momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), cell["lr"])
    step = cell["net"] == "paper"  # the paper's schedule; cosine for the other
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        (lambda e: 1.0 if e < 2 * epochs / 3 else 0.1)
        if step
        else (lambda e: (1 + math.cos(math.pi * e / epochs)) / 2),
    )
    regularizer = None
    if method != "none":
        regularizer = ManifoldRegularizer(groups=y, **({"coupling": math.inf} if method == "control" else {}))
    draw, loss_mean = torch.Generator().manual_seed(seed), math.nan
    for epoch in range(epochs):
        if regularizer is not None and regularizer.due(epoch):
            try:
                regularizer.step(sweep(model, x, layer="features"))
            except InputError:  # features that are no numbers, or beyond 1e18: it has diverged
                return {"accuracy": None, "train_loss": None}
        model.train()
        total = 0.0
        for index in torch.randperm(len(x), generator=draw).split(BATCH):
            f = model.features(x[index])
            loss = F.cross_entropy(model.head(f), y[index])
            total += float(loss.detach()) * len(index)
            if regularizer is not None:
                loss = loss + regularizer.penalty(f, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        loss_mean = total / len(x)
        if not math.isfinite(loss_mean):
            return {"accuracy": None, "train_loss": None}
    right = float((sweep(model, x_test).argmax(1) == y_test).double().mean())
    found = {"accuracy": round(100 * right, 2), "train_loss": float(f"{loss_mean:.4g}")}
    if regularizer is not None:
        found["strength"] = float(f"{regularizer.log[-1].strength or 0:.3g}")
    return found


def main() -> None:
    """Train what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/defaults/grid.jsonl"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1", help="for processes side by side: 1/2 and 2/2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    how = {"epochs": options.epochs, "seed": options.seed}
    runs = [
        ({**cell, "method": method, **how}, partial(train, cell, method, **how))
        for cell in cells()
        for method in METHODS
    ]
    record_missing(runs, options.output, options.part)


if __name__ == "__main__":
    main()
