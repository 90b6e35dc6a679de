"""The default in loops that are not like the paper's: recurrent, several labels, rare classes, trained before.

    python benchmarks/defaults_loops.py              # MNIST, 50 per class: results/defaults/loops.jsonl

A plain loop with `ManifoldRegularizer` and nothing named. Nothing is tuned, for any method. Records are appended as
they come; what is recorded is skipped. Both validation and test figures are recorded: a rule is chosen by the first.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from defaults_images import Pair, images
from measure import record_missing
from torch import Tensor, nn
from torch.nn import functional as F

from ldmnet import ManifoldRegularizer, sweep
from ldmnet.networks import mnist_net

PER_CLASS = 50
LOOP = torch.tensor([1, 0, 0, 0, 0, 0, 1, 0, 1, 1.0])  # digits drawn with a closed line


class Recurrent(nn.Module):
    """A GRU that reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(28, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def features(self, x: Tensor) -> Tensor:
        """The last hidden state."""
        found: Tensor = self.gru(x.flatten(1, 2))[1][0]
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(self.features(x))
        return scores


@dataclass
class Cell:
    """One way of training.

    Attributes:
        net: makes the network.
        data: training, validation and test samples of a seed.
        rate: of Adam.
        grouped: whether the regulariser is told the classes.
        asked: whether to train with the strength named, too, which is in force beside any class.
        alone: epochs without a regulariser before the first update.
        epochs: in all.
    """

    net: Callable[[], nn.Module]
    data: Callable[[int], tuple[Pair, Pair, Pair]]
    rate: float = 0.001
    grouped: bool = True
    asked: bool = False
    alone: int = 0
    epochs: int = 60


def digits(seed: int) -> tuple[Pair, Pair, Pair]:
    """Ten digits."""
    return images("mnist", seed)


def attributes(seed: int) -> tuple[Pair, Pair, Pair]:
    """Four yes or no answers about a digit: even, above four, prime, drawn with a closed line."""
    answers = torch.stack(
        [
            (torch.arange(10) % 2 == 0).float(),
            (torch.arange(10) > 4).float(),
            torch.tensor([0, 0, 1, 1, 0, 1, 0, 1, 0, 0.0]),
            LOOP,
        ],
        1,
    )
    train, held, test = images("mnist", seed)
    return (train[0], answers[train[1]]), (held[0], answers[held[1]]), (test[0], answers[test[1]])


def eights(rare: int, seed: int) -> tuple[Pair, Pair, Pair]:
    """Is it an eight? So many of 400 training samples are, and the others are the other digits."""
    train, held, test = images("mnist", seed)

    def asked(pair: Pair) -> Pair:
        return pair[0], (pair[1] == 8).long()

    some = torch.cat([torch.nonzero(train[1] == 8)[:rare], torch.nonzero(train[1] != 8)[: 400 - rare]]).squeeze(1)
    return asked((train[0][some], train[1][some])), asked(held), asked(test)


def unequal(seed: int) -> tuple[Pair, Pair, Pair]:
    """Ten digits, 50 samples of each, but 5 of the threes and of the eights."""
    (x, y), held, test = images("mnist", seed)
    some = torch.cat([torch.nonzero(y == digit).squeeze(1)[: 5 if digit in (3, 8) else 50] for digit in range(10)])
    return (x[some], y[some]), held, test


CELLS = {
    "GRU, Adam 0.01": Cell(Recurrent, digits, 0.01),
    "GRU, Adam 0.003": Cell(Recurrent, digits, 0.003),
    "GRU, Adam 0.001": Cell(Recurrent, digits),
    "four labels per sample, no classes": Cell(lambda: mnist_net(n_classes=4), attributes, grouped=False),
    "digits, no classes": Cell(mnist_net, digits, grouped=False),
    "1 in 20 of one class": Cell(lambda: mnist_net(n_classes=2), partial(eights, 20), asked=True),
    "1 in 10 of one class": Cell(lambda: mnist_net(n_classes=2), partial(eights, 40), asked=True),
    "1 in 8 of one class": Cell(lambda: mnist_net(n_classes=2), partial(eights, 50), asked=True),
    "two of ten classes ten times rarer": Cell(mnist_net, unequal),
    "trained for 20 epochs before": Cell(mnist_net, digits, alone=20),
    "plain": Cell(mnist_net, digits),
}


def loss_of(scores: Tensor, y: Tensor) -> Tensor:
    """Cross entropy, of one class or of several labels."""
    return F.binary_cross_entropy_with_logits(scores, y) if y.ndim == 2 else F.cross_entropy(scores, y)


def score(model: nn.Module, pair: Pair) -> float:
    """Accuracy in percent, the mean over classes or labels."""
    x, y = pair
    found = sweep(model, x)
    if y.ndim == 2:
        return 100 * float(((found > 0) == (y > 0)).double().mean())
    right = (found.argmax(1) == y).double()
    return 100 * math.fsum(float(right[y == label].mean()) for label in y.unique()) / len(y.unique())


def train(cell: Cell, method: str, seed: int) -> dict[str, Any]:
    """One training, and how it ended."""
    data = cell.data(seed)
    x, y = data[0]
    torch.manual_seed(seed)
    model: Any = cell.net()
    optimizer = torch.optim.Adam(model.parameters(), lr=cell.rate)
    regularizer = None
    if method != "none":
        kind = {"control": {"coupling": math.inf}, "asked": {"strength": 0.3}}.get(method, {})
        groups = y if cell.grouped else None
        regularizer = ManifoldRegularizer(groups=groups, **kind)
    for epoch in range(cell.epochs):
        if regularizer is not None and epoch >= cell.alone and regularizer.due(epoch - cell.alone):
            regularizer.step(sweep(model, x, forward=lambda net, batch: net.features(batch)))
        model.train()
        for index in torch.randperm(len(x)).split(32):
            f = model.features(x[index])
            loss = loss_of(model.head(f), y[index])
            if regularizer is not None and epoch >= cell.alone:
                loss = loss + regularizer.penalty(f, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    return {
        "accuracy": round(score(model, data[2]), 3),
        "val_accuracy": round(score(model, data[1]), 3),
        "strength": None if regularizer is None else regularizer.log[-1].strength,
    }


def runs(seeds: list[int], only: str) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """Every cell with every method."""
    for seed in seeds:
        for name, cell in CELLS.items():
            if only not in name:
                continue
            for method in ("none", "control", "ldmnet", *(["asked"] if cell.asked else [])):
                yield (
                    {"cell": name, "method": method, "seed": seed},
                    lambda cell=cell, method=method, seed=seed: train(cell, method, seed),
                )


def main() -> None:
    """Train what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", default="", help="a part of a cell's name")
    parser.add_argument("--output", type=Path, default=Path("results/defaults/loops.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    record_missing(runs([int(seed) for seed in options.seeds.split(",")], options.only), options.output)


if __name__ == "__main__":
    main()
