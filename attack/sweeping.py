"""Runs of a sweep with workers, which are spawned and import this module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ldmnet.runs.datasets import RunSettings, TrainingData
from ldmnet.runs.run import Run
from ldmnet.training import Method, TrainSettings


def runs() -> list[Run[Any]]:
    """One run without a regulariser and one with."""
    methods = (Method(), Method("ldmnet", mu=0.01, lambda_tilde=0.05))
    train = TrainSettings(epochs=3, checkpoint_every=1)
    return [Run("mnist", m.name, RunSettings("mnist", 5, method=m, train=train)) for m in methods]


def load_small(settings: RunSettings, data_dir: str | Path | None) -> TrainingData:
    """Made-up images in place of MNIST."""
    x = torch.randn(30, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    y = torch.arange(30) % 10
    pixels = torch.zeros(30, 1, 28, 28, dtype=torch.uint8)
    return TrainingData((x, y), (x, y), None, pixels, "made up", "made-up images")
