"""Small runs of every kind, for the report's tests: seconds to train, and names that try to be markup."""

import json

import numpy as np
import torch

from ldmnet.data.userdata import Samples
from ldmnet.records import Record
from ldmnet.runs.compare import compare_methods
from ldmnet.runs.samples import Reading, UserSettings
from ldmnet.runs.trained import train_run

CLASSES = ["<script>alert(1)</script>", "<b>bold</b> & %{x}", "plain"]
METHODS = ("none", "weight_decay", "dropout", "control", "ldmnet")
EPOCHS = 24  # the pull begins at the fifth update


def made_samples(*, pictures=True):
    """Bars that stand elsewhere in each class; without pictures, the same as rows of a table."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = rng.integers(0, 120, (90, 1, 9, 9), np.uint8)
    for i, c in enumerate(y):
        x[i, 0, :, 3 * c : 3 * c + 2] += rng.integers(20, 130, (9, 2), np.uint8)
    values = torch.from_numpy(x if pictures else x.reshape(90, -1).astype(np.float32))
    return Samples(values, torch.from_numpy(y), CLASSES, [f"<i>{i}</i>.png" for i in range(90)])


def settings(**changes):
    return UserSettings(**{"net": "mlp", "epochs": EPOCHS, "test_share": 0.4, **changes})


def make_training(folder, *, pictures=True, snapshots=True, **changes):
    """A folder of `train`."""
    train_run(made_samples(pictures=pictures), settings(**changes), Reading(), folder, snapshots=snapshots)
    return folder


def make_comparison(folder, methods=METHODS):
    """A folder of `compare`."""
    compare_methods(made_samples(), settings(), folder, methods=methods, splits=1)
    return folder


def make_record(method="ldmnet", seed=0, **changes):
    """A line of a table's records, as `reproduce` writes it."""
    record = {
        "table": "mnist",
        "per_class": 50,
        "method": method,
        "seed": seed,
        "selection": "printed",
        "paper": 95.57 if method == "ldmnet" else None,
        "accuracy": 95.0 + seed,
        "n_train": 500,
        "n_test": 10000,
        "hash": f"{method}-{seed}",
        "settings": {"seed": seed, "method": {"name": method, "mu": 0.01}},
        "loss_curve": [2.0, 1.0 + seed, 0.5],
        "solver": ["CONVERGED"] if method == "ldmnet" else [],
        "seconds": {"train": 3.0, "sweep": 1.0},
        "versions": {"ldmnet": "0.1.0", "torch": "2.13.0"},
        **changes,
    }
    return {**Record(table="", method="", seed=0, hash="", settings={}).to_json(), **record}


def write_records(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
