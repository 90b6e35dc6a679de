"""Does the default help on tables, and does it ever cost? Few samples per class, and tables with few columns.

    python benchmarks/defaults_tables.py few       # 20 and 50 per class, an MLP: results/defaults/tables.jsonl
    python benchmarks/defaults_tables.py narrow    # LDMClassifier on narrow tables: results/defaults/narrow.jsonl

Nothing is tuned, for any method. Records are appended as they come; what is recorded is skipped.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from keel import table
from measure import record_missing
from sklearn.model_selection import StratifiedKFold
from torch import nn

from ldmnet import Method, TrainSettings, fit
from ldmnet.data import stratified
from ldmnet.integrations.sklearn import LDMClassifier
from ldmnet.networks import initialize, mlp

FEW = (
    *("penbased", "optdigits", "satimage", "texture", "segment", "letter"),
    *("vowel", "vehicle", "phoneme", "spambase", "ring", "wdbc"),
)
METHODS = {
    "none": Method(),
    "dropout": Method("dropout", dropout=0.5),
    "control": Method("control"),
    "ldmnet": Method("ldmnet"),
}
NARROW = ("iris", "hayes-roth", "titanic", "phoneme", "banana", "tae", "bupa", "monk-2")
MOST_ROWS = 1000  # of a narrow table


def normalised(d_in: int, n_classes: int) -> nn.Module:
    """Two hidden layers with batch normalisation."""
    net = mlp(d_in, n_classes, (32, 32))
    layers: list[nn.Module] = []
    for layer in net.features:  # type: ignore[union-attr]
        layers.append(layer)
        if isinstance(layer, nn.Linear):
            layers.append(nn.BatchNorm1d(layer.out_features))
    net.features = nn.Sequential(*layers)
    return net


NETS: dict[str, dict[str, Any]] = {
    "default": {},
    "32": {"hidden": (32,)},
    "8": {"hidden": (8,)},
    "32-32": {"hidden": (32, 32)},
    "batch norm": {"module": normalised},
    "batch norm, adamw": {"module": normalised, "optimizer": "adamw", "lr": 0.01},
}


def few() -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, float]]]]:
    """An MLP on few samples per class; the rest of the table tests it."""
    for name in FEW:
        x, y = table(name)
        for per_class in (20, 50):
            if int(y.bincount().min()) < per_class + 10:
                continue
            for seed in range(5):
                train = stratified(y, per_class, seed)
                rest = torch.ones(len(y), dtype=torch.bool)
                rest[train] = False
                mean, deviation = x[train].mean(0), x[train].std(0).clamp(min=1e-9)
                z = ((x - mean) / deviation).float()
                data, test = (z[train], y[train]), (z[rest], y[rest])
                for method in METHODS:
                    place = {"table": name, "per_class": per_class, "seed": seed, "method": method}
                    yield place, partial(_mlp, data, test, method, seed)


def _mlp(data: Any, test: Any, method: str, seed: int) -> dict[str, float]:
    net = mlp(data[0].shape[1], int(data[1].max()) + 1, (256, 256))
    initialize(net, "he", seed)
    settings = TrainSettings(epochs=100, lr=0.001, batch_size=32, optimizer="adamw", schedule="cosine", seed=seed)
    found = fit(net, data, method=METHODS[method], settings=settings, test=test, progress=False)
    assert found.test_accuracy is not None
    return {"accuracy": round(100 * found.test_accuracy, 3)}


def narrow() -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, float]]]]:
    """LDMClassifier and the same with the graph switched off, five folds."""
    for name in NARROW:
        x, y = (part.numpy() for part in table(name))
        some = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
        x, y = x[some], y[some]
        folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(x, y))
        for net in NETS:
            for fold, (train, test) in enumerate(folds):
                for method, options in (("control", {"coupling": float("inf")}), ("ldmnet", {})):
                    place = {"table": name, "net": net, "fold": fold, "method": method}
                    model = LDMClassifier(random_state=0, **NETS[net], **options)
                    yield place, partial(_fold, model, (x[train], y[train]), (x[test], y[test]))


def _fold(model: LDMClassifier, data: Any, test: Any) -> dict[str, float]:
    return {"accuracy": round(100 * model.fit(*data).score(*test), 3)}


def main() -> None:
    """Train what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["few", "narrow"])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = {"few": "tables", "narrow": "narrow"}
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    runs = few() if options.which == "few" else narrow()
    record_missing(runs, options.output or Path("results/defaults") / f"{names[options.which]}.jsonl")


if __name__ == "__main__":
    main()
