"""What LDMNet adds to training: the update's phases and the penalty, as shares of the SGD between two updates.

python benchmarks/overhead.py --n 500,7000,54000
python benchmarks/overhead.py --net cifar --n 500
"""

from __future__ import annotations

import statistics
import time

import torch
from digits import training_set
from measure import arguments, medians, show
from torch.nn import functional as F

from ldmnet import Method, TrainSettings, fit
from ldmnet.networks import cifar_net, initialize, mnist_net
from ldmnet.paper.specs import CIFAR10, MNIST

EPOCHS = 2  # between two updates


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
    longer = TrainSettings(epochs=EPOCHS * 2, lr=lr, lr_drop_after=1.0)
    taken = medians(
        {
            "hand": lambda: hand_written(fresh(), channels_last, y, lr),
            "fit": lambda: fit(fresh(), (x, y), settings=settings, progress=False),
            "fit, twice the epochs": lambda: fit(fresh(), (x, y), settings=longer, progress=False),
        },
        rounds,
    )
    phases: dict[str, list[float]] = {"train": [], "sweep": [], "graph": [], "solve": []}
    plain_train: list[float] = []
    running: list[float] = []
    first = 0.0
    for _ in range(rounds):
        plain_train.append(fit(fresh(), (x, y), settings=settings, progress=False).seconds["train"])
        method = Method("ldmnet", mu=mu, lambda_tilde=lambda_tilde)
        result = fit(fresh(), (x, y), method=method, settings=longer, progress=False)
        log = result.regularizer.log
        phases["train"].append(result.seconds["train"] / 2)
        phases["sweep"].append(result.seconds["sweep"] / 2)
        phases["graph"].append(log[-1].seconds["graph"])
        phases["solve"].append(log[-1].seconds["solve"])
        first = log[0].seconds["graph"] - log[-1].seconds["graph"]
        method = Method("ldmnet", mu=mu, lambda_tilde=lambda_tilde, features="running")
        running.append(fit(fresh(), (x, y), method=method, settings=longer, progress=False).seconds["train"] / 2)
    sgd = statistics.median(plain_train)
    median = {name: statistics.median(values) for name, values in phases.items()}
    penalty = max(0.0, median["train"] - sgd)
    update = median["graph"] + median["solve"] + penalty
    return {
        "net": net,
        "n": n,
        "images": source,
        "SGD between updates, s": sgd,
        "sweep": median["sweep"] / sgd,
        "graph": median["graph"] / sgd,
        "solve": median["solve"] / sgd,
        "penalty": penalty / sgd,
        "graph + solve + penalty": update / sgd,
        "all of training / plain": (sgd + update + median["sweep"]) / sgd,
        "the same, running features": (statistics.median(running) + median["graph"] + median["solve"]) / sgd,
        "fit plain / hand-written": (taken["fit, twice the epochs"] - taken["fit"]) / taken["hand"],
        "once at the start, s": first,
    }


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
