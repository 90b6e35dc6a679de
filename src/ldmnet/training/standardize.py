"""Inputs with mean 0 and deviation 1, by the training set's statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Standardize:
    """Mean 0 and deviation 1 by the training set's statistics: each column of a table, all pixels of images as one.

    Attributes:
        mean: of the shape of a sample.
        deviation: of a table's columns, or one number for images.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Standardize:
        """Take the statistics of a training set."""
        mean = x.double().mean(0)
        spread = (x.double() - mean).square()
        deviation = (spread.mean(0) if x.ndim == 2 else spread.mean()).sqrt()
        scale = mean.abs() if x.ndim == 2 else mean.abs().max()
        return cls(mean, torch.where(deviation <= 1e-12 * scale, torch.ones_like(deviation), deviation))

    def __call__(self, x: Tensor) -> Tensor:
        """Inputs for the network, float32."""
        return ((x.double() - self.mean) / self.deviation).float()

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Standardize:
        """From what `to_json` gave."""
        return cls(*(torch.tensor(saved[key], dtype=torch.float64) for key in ("mean", "deviation")))
