"""LDMClassifier against scikit-learn's MLPClassifier, both untuned, in one pipeline, on scikit-learn's own data.

python benchmarks/sklearn_table.py                       the table as Markdown
python benchmarks/sklearn_table.py --json                its numbers
python benchmarks/sklearn_table.py --data digits --classifiers LDMClassifier --splits 1 2
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ldmnet.integrations.sklearn import LDMClassifier

DATA: dict[str, Callable[..., Any]] = {"wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "MLPClassifier": lambda: MLPClassifier(random_state=0),
    "LDMClassifier": lambda: LDMClassifier(random_state=0),
    "LDMClassifier, graph off": lambda: LDMClassifier(coupling=float("inf"), random_state=0),
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
    lines = [
        "| data | splits | " + " | ".join(names) + " | seconds per fit |",
        "|---|---:|" + "---:|" * (len(names) + 1),
    ]
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
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--classifiers", nargs="+", choices=list(CLASSIFIERS), default=list(CLASSIFIERS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # MLPClassifier's 200 epochs are its default
    torch.set_num_threads(1)
    started = time.perf_counter()
    rows = [
        measure(data, name, seed)
        for data in arguments.data
        for seed in arguments.splits
        for name in arguments.classifiers
    ]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print(markdown(rows))
        print(f"\n{time.perf_counter() - started:.0f} seconds in all.")


if __name__ == "__main__":
    main()
