"""Why LDMNet does not help on features of a pre-trained network, and whether a weaker pull or another graph would.

    python benchmarks/frozen.py             # 50 per class, EfficientNet-Lite0: results/benchmarks/frozen.jsonl

An MLP of 256-256 on the features, AdamW at 0.001, 100 epochs, nothing tuned. Each record has the accuracy; the share of
variance within classes of the network's training and test features; and how often the nearest training sample is of a
test sample's class, among the inputs and among the network's features. Records are appended as they come.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import record_missing
from rivals_sources import load
from torch import Tensor
from torch.nn import functional as F

from ldmnet import ManifoldRegularizer, sweep
from ldmnet.dimension import spread
from ldmnet.networks import mlp

FROZEN = ("cifar10", "mnist", "svhn")
PER_CLASS, EPOCHS, BATCH = 50, 100, 32
WAYS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "ldmnet": {},
    "strength 0.1": {"strength": 0.1},
    "strength 0.03": {"strength": 0.03},
    "graph on features": {"input_scale": 0.0},
    "graph on inputs": {"input_scale": 100.0},  # next to which the features do not count
}


def agreement(known: Tensor, labels: Tensor, asked: Tensor, truth: Tensor) -> float:
    """How often the nearest known point is of the point's class, in percent."""
    nearest = torch.cdist(asked, known).argmin(1)
    return 100 * float((labels[nearest] == truth).double().mean())


def run(data: str, way: str, seed: int, data_dir: str | None) -> dict[str, Any]:
    """Train one way and look at the features."""
    split = load(f"frozen:{data}", seed, PER_CLASS, data_dir)
    (x, y), (x_test, y_test) = (pair for pair in map(split.part, (split.train, split.test)) if pair is not None)
    torch.manual_seed(seed)
    model = mlp(x.shape[1], 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    falls = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    asked = WAYS[way]
    regularizer = None if asked is None else ManifoldRegularizer(x, groups=y, **asked)
    for epoch in range(EPOCHS):
        if regularizer is not None and regularizer.due(epoch):
            regularizer.step(sweep(model, x, layer="features"))
        for index in torch.randperm(len(x)).split(BATCH):
            f = model.features(x[index])
            loss = F.cross_entropy(model.head(f), y[index])
            if regularizer is not None:
                loss = loss + regularizer.penalty(f, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        falls.step()
    seen, unseen = (sweep(model, part, layer="features") for part in (x, x_test))
    right = sweep(model, x_test).argmax(1) == y_test
    return {
        "test": 100 * float(right.double().mean()),
        "within_train": spread(seen, y).within_share.value,
        "within_test": spread(unseen, y_test).within_share.value,
        "nearest_inputs": agreement(x, y, x_test, y_test),
        "nearest_features": agreement(seen, y, unseen, y_test),
    }


def cases(data_dir: str | None, seeds: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Seed by seed."""
    for seed in range(seeds):
        for data in FROZEN:
            for way in WAYS:
                yield {"data": data, "way": way, "seed": seed}, partial(run, data, way, seed, data_dir)


def main() -> None:
    """Measure what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of the data  [default: $LDMNET_DATA]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/frozen.jsonl"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    record_missing(cases(options.data, options.seeds), options.output)


if __name__ == "__main__":
    main()
