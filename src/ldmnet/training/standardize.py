"""Inputs with mean 0 and deviation 1, by the training set's statistics, and numbers that leave float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ldmnet.errors import DataError

LEFT_OUT = torch.finfo(torch.float64).max  # the deviation by which every value becomes 0


@dataclass(frozen=True, eq=False)
class Standardize:
    """Mean 0 and deviation 1 by the training set's statistics: each column of a table, all pixels of images as one.

    A column that is the same for all training samples, but for rounding, says nothing and is left out: it is 0 for
    every sample, one with another value too.

    Attributes:
        mean: of the shape of a sample.
        deviation: of a table's columns, or one number for images.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Standardize:
        """Take the statistics of a training set."""
        size = x.double().abs().amax(0) if x.ndim == 2 else x.double().abs().max()
        odd = (size > 0) & ((size < 1e-100) | (size > 1e100))  # their squares would be zero or infinite
        unit = torch.where(odd, torch.ldexp(torch.ones_like(size), torch.frexp(size).exponent), 1)
        small = x.double() / unit if bool(odd.any()) else x.double()
        mean = small.mean(0)
        spread = (small - mean).square()
        deviation = (spread.mean(0) if x.ndim == 2 else spread.mean()).sqrt()
        scale = mean.abs() if x.ndim == 2 else mean.abs().max()
        same = deviation <= 1e-12 * scale
        return cls(mean * unit, torch.where(same, LEFT_OUT, deviation * unit))

    def __call__(self, x: Tensor) -> Tensor:
        """Inputs for the network, float32.

        Raises:
            DataError: a value is so far from the training set's that float32 cannot hold it.
        """
        inputs = ((x.double() - self.mean) / self.deviation).float()
        if not bool(inputs.sum().isfinite()):  # one pass, and nearly always enough
            _refuse_values(inputs, "its values leave float32 when they are standardised as the training set was")
        return inputs

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Standardize:
        """From what `to_json` gave; numbers that it cannot have given are a `ValueError`."""
        mean, deviation = (torch.tensor(saved[key], dtype=torch.float64) for key in ("mean", "deviation"))
        if not (bool(mean.isfinite().all()) and bool((deviation > 0).all()) and bool(deviation.isfinite().all())):
            raise ValueError("a mean or a deviation is not a finite number, or not above zero")
        return cls(mean, deviation)


def checked_outputs(outputs: Tensor) -> Tensor:
    """What a network made of samples, (n, ...), if all of it is numbers.

    Raises:
        DataError: the network's numbers left float32, as for a sample that is far from all that it was trained on.
    """
    if not bool(outputs.isfinite().all()):
        _refuse_values(outputs, "the network's numbers leave float32: its values are far from those of the training")
    return outputs


def _refuse_values(values: Tensor, why: str) -> None:
    bad = (~values.isfinite()).flatten(1).any(1)
    if bool(bad.any()):
        first = int(bad.int().argmax()) + 1
        raise DataError(
            f"sample {first}, and {int(bad.sum()) - 1} others of {len(bad)}: {why}. Correct or remove them."
        )
