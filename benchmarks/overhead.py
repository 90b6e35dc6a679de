"""What LDMNet adds to training: the update's phases and the penalty, as shares of the SGD between two updates.

python benchmarks/overhead.py --n 500,7000,54000
python benchmarks/overhead.py --net cifar --n 500
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from functools import partial

import torch
from digits import training_set
from measure import arguments, medians, show
from torch.nn import functional as F

from ldmnet import ManifoldRegularizer, Method, TrainSettings, fit, strength, sweep
from ldmnet.networks import cifar_net, initialize, mnist_net
from ldmnet.paper.specs import CIFAR10, MNIST

EPOCHS = 2  # between two updates
LARGE = 20_000  # images: above, the hand-written loop is left out and approximate neighbours are tried
KINDS: dict[str, dict[str, str]] = {
    "exact": {},
    "running": {"features": "running"},
    "auto": {"neighbors": "auto"},
    "default": {},  # no number named
}
# In so few epochs the pull would still wait: here it is whole from the second update on.
strength.LEARNT, strength.START = math.inf, 1.0


def hand_written(model, x, y, lr):
    """The plain loop as one would write it by hand, on data in memory."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x)).split(100):
            loss = F.cross_entropy(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def penalty_seconds(model, x, y, lr, mu, lambda_tilde, rounds):
    """What the penalty adds to one step of SGD: the median over pairs of steps, one with it and one without."""
    regularizer = ManifoldRegularizer(x, y, mu=mu, lambda_tilde=lambda_tilde)
    regularizer.step(sweep(model, x, layer="features"))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    batches = [index for _ in range(rounds + 1) for index in torch.randperm(len(x)).split(100)]
    added = []
    for pair, index in enumerate(batches[: max(40, 60 * rounds)]):
        taken = {}
        for pulled in (pair % 2 == 0, pair % 2 == 1):
            started = time.perf_counter()
            features = model.features(x[index])
            loss = F.cross_entropy(model.head(features), y[index])
            if pulled:
                loss = loss + regularizer.penalty(features, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            taken[pulled] = time.perf_counter() - started
        added.append(taken[True] - taken[False])
    return max(0.0, statistics.median(added))


def printed(net: str, n: int) -> tuple[float, float, float]:
    """The paper's lr, mu and lambda_tilde for the row nearest to n images."""
    table = MNIST if net == "mnist" else CIFAR10
    row = min(table.rows, key=lambda row: abs(row.per_class - n / 10))
    return table.lr, row.mu, row.lambda_tilde


def measured(net: str, n: int, rounds: int) -> dict[str, object]:
    x, y, source = training_set(net, n)
    lr, mu, lambda_tilde = printed(net, n)
    make, scheme = (mnist_net, "gaussian") if net == "mnist" else (cifar_net, "xavier")
    channels_last = x.contiguous(memory_format=torch.channels_last)

    def fresh():
        model = make()
        initialize(model, scheme, 0)
        return model.to(memory_format=torch.channels_last)

    settings = TrainSettings(epochs=EPOCHS, lr=lr, lr_drop_after=1.0)
    longer = TrainSettings(epochs=EPOCHS * 2 if n <= LARGE else EPOCHS + 1, lr=lr, lr_drop_after=1.0)  # two updates
    share = EPOCHS / longer.epochs
    plain = partial(fit, data=(x, y), progress=False)
    loops: dict[str, float] = {}
    if n <= LARGE:
        taken = medians(
            {
                "hand": lambda: hand_written(fresh(), channels_last, y, lr),
                "fit": lambda: plain(fresh(), settings=settings),
                "fit, twice the epochs": lambda: plain(fresh(), settings=longer),
            },
            rounds,
        )
        loops["fit plain / hand-written"] = (taken["fit, twice the epochs"] - taken["fit"]) / taken["hand"]
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        spent["sgd"].append(plain(fresh(), settings=longer).seconds["train"] * share)
        for kind, options in KINDS.items():
            if kind == "auto" and n <= LARGE:
                continue  # classes this small are searched exactly
            numbers = {} if kind == "default" else {"mu": mu, "lambda_tilde": lambda_tilde}
            method = Method("ldmnet", **numbers, **options)
            result = plain(fresh(), method=method, settings=longer)
            first, last = result.regularizer.log[0].seconds, result.regularizer.log[-1].seconds
            spent[f"{kind} train"].append(result.seconds["train"] * share)
            spent[f"{kind} sweep"].append(result.seconds["sweep"] / 2)
            for phase in ("graph", "solve", "other"):
                spent[f"{kind} {phase}"].append(last[phase])
            spent[f"{kind} start"].append(first["graph"] - last["graph"])
    median = {name: statistics.median(values) for name, values in spent.items()}
    sgd = median["sgd"]
    steps = EPOCHS * math.ceil(n / 100)
    penalty = steps * penalty_seconds(fresh(), channels_last, y, lr, mu, lambda_tilde, rounds)
    outside = {  # of SGD, in an update
        kind: sum(median[f"{kind} {phase}"] for phase in ("sweep", "graph", "solve", "other"))
        for kind in KINDS
        if f"{kind} graph" in median
    }
    row = {
        "net": net,
        "n": n,
        "images": source,
        "SGD between updates, s": sgd,
        "sweep": median["exact sweep"] / sgd,
        "graph": median["exact graph"] / sgd,
        "solve": median["exact solve"] / sgd,
        "penalty": penalty / sgd,
        "other": median["exact other"] / sgd,
        "graph + solve + penalty": (median["exact graph"] + median["exact solve"] + penalty) / sgd,
        "all of training / plain": (median["exact train"] + outside["exact"]) / sgd,
        "the same, running features": (median["running train"] + outside["running"] - median["running sweep"]) / sgd,
        "the same, by default": (median["default train"] + outside["default"] - median["default sweep"]) / sgd,
        **loops,
        "once at the start, s": median["exact start"],
    }
    if "auto" in outside:
        row["auto: graph"], row["auto: solve"] = median["auto graph"] / sgd, median["auto solve"] / sgd
        row["auto: graph + solve + penalty"] = (median["auto graph"] + median["auto solve"] + penalty) / sgd
        row["auto: all of training / plain"] = (median["auto train"] + outside["auto"]) / sgd
        row["auto: once at the start, s"] = median["auto start"]
    return row


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], [500, 7000, 54000])
    parser.add_argument("--net", choices=["mnist", "cifar"], default="mnist")
    options = parser.parse_args()
    started = time.perf_counter()
    rows = [measured(options.net, n, options.rounds) for n in options.n]
    show("LDMNet's cost in shares of the SGD between two updates", rows, options.json)
    if not options.json:
        print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
