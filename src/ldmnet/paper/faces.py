"""Presets of matching across modalities: every row's settings, and the grid that they are chosen from.

Extended Yale B and CUFS stand in for the paper's CASIA NIR-VIS 2.0 (Table 9), whose own protocol runs too where the
data is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ldmnet.errors import InputError
from ldmnet.matching.embeddings import METHODS, EmbeddingSettings, face_training
from ldmnet.paper import specs
from ldmnet.paper.presets import paper_methods
from ldmnet.runs.matching import Choice
from ldmnet.training.methods import Method

TABLES = ("yaleb", "cufs")
EPOCHS = specs.NIR_VIS.epochs
LEARNING_RATES = (specs.NIR_VIS.lr, 0.03, 0.3, 0.01, 1.0)
MU, STRENGTH = 5.0, 1.0  # of LDMNet, tuned
STRENGTHS = {  # four of each regulariser
    "weight_decay": [Method("weight_decay", weight_decay_w=factor * specs.NIR_VIS.w) for factor in (1, 10, 0.1, 100)],
    "dropout": [Method("dropout", dropout=p) for p in (0.2, specs.DROPOUT, 0.7, 0.35)],
    "control": [Method("control", mu=mu) for mu in (MU, 20.0, 1.0, 80.0)],
    "ldmnet_tuned": [
        Method("ldmnet", mu=mu, lambda_tilde=strength)
        for mu, strength in ((MU, STRENGTH), (MU, 5.0), (20.0, 20.0), (20.0, 4.0))
    ],
}
MARGINS = (0.2, 0.5, 0.1, 1.0)
NOT_TUNED = ("pca", "ldmnet")


def default_embedding(row: str, epochs: int = EPOCHS) -> EmbeddingSettings:
    """A row's settings before any tuning: the paper's where it prints them."""
    paper, train = specs.NIR_VIS, face_training(epochs, specs.NIR_VIS.lr)
    methods = {**paper_methods(paper), "ldmnet_tuned": Method("ldmnet", mu=MU, lambda_tilde=STRENGTH)}
    if row in methods:
        return EmbeddingSettings(method=methods[row], train=train, width=paper.width)
    once = face_training(1)  # no SGD
    if row == "pca":
        return EmbeddingSettings("pca", train=once, dimensions=paper.pca_dimensions)
    if row == "low_rank":
        return EmbeddingSettings("low_rank", train=once, dimensions=400, step_size=0.01)
    if row == "triplet":
        return EmbeddingSettings("triplet", train=train, width=paper.width)
    raise InputError(f"there is no method {row!r}. The methods: {', '.join(METHODS)}.")


def grid(row: str, epochs: int = EPOCHS) -> list[EmbeddingSettings]:
    """The settings that a row's are chosen from: for a network five learning rates and four strengths."""
    start = default_embedding(row, epochs)
    if row in NOT_TUNED:
        return [start]
    if row == "low_rank":
        return [replace(start, dimensions=d, step_size=s) for d in (200, 400) for s in (0.01, 0.03)]
    if row == "none":
        return [replace(start, train=face_training(epochs, lr)) for lr in LEARNING_RATES]
    trains = [face_training(epochs, lr) for lr in LEARNING_RATES]
    if row == "triplet":
        return [replace(start, train=train, margin=margin) for train in trains for margin in MARGINS]
    return [replace(start, train=train, method=method) for train in trains for method in STRENGTHS[row]]


def starts(rows: Sequence[str], epochs: int = EPOCHS) -> dict[str, Choice]:
    """Some rows' settings before any tuning."""
    return {row: Choice(default_embedding(row, epochs), "printed" if row == "ldmnet" else "default") for row in rows}


def grids(rows: Sequence[str], epochs: int = EPOCHS) -> dict[str, list[EmbeddingSettings]]:
    """The grids of the rows that are tuned."""
    return {row: grid(row, epochs) for row in rows if row not in NOT_TUNED}


def printed(row: str) -> float | None:
    """Table 9, on the descriptors of VGG-face."""
    found = getattr(specs.NIR_VIS, row, None)
    return found[0] if isinstance(found, tuple) else None
