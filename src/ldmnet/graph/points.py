"""Points: checked, and brought to a scale at which their squares keep their digits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ldmnet.errors import InputError


def checked_points(points: Tensor, name: str) -> Tensor:
    """`points` as an (n, d) floating tensor without gradient, or a sentence that says what is wrong with it."""
    if not isinstance(points, Tensor):
        points = torch.as_tensor(points)
    points = points.detach()
    if points.ndim != 2 or len(points) == 0:
        raise InputError(f"{name} must have shape (n, d) with n at least 1, got {tuple(points.shape)}.")
    if not points.is_floating_point():
        raise InputError(f"{name} must be floating point, got {points.dtype}. Convert with .float().")
    if points.numel():
        most = largest(points)
        if not math.isfinite(most):
            bad = int((~torch.isfinite(points)).any(1).sum())
            raise InputError(f"{name} has NaN or infinite values in {bad} of its {len(points)} rows.")
        if most > 0.01 * (torch.finfo(points.dtype).max / points.shape[1]) ** 0.5:
            raise InputError(f"{name} has values up to {most:.1e}: too large for distances in {points.dtype}.")
    return points


def flat_points(inputs: Any) -> Tensor:
    """Inputs (n, ...) as rows of floating-point numbers, checked."""
    inputs = inputs if isinstance(inputs, Tensor) else torch.as_tensor(np.asarray(inputs))
    if inputs.ndim < 2:
        raise InputError(f"inputs must have shape (n, ...), got {tuple(inputs.shape)}.")
    return checked_points(at_least_single(inputs).flatten(1), "inputs")


def at_least_single(values: Tensor) -> Tensor:
    """Half precision becomes float32: distances and the solve need the digits."""
    half = isinstance(values, Tensor) and values.dtype in (torch.float16, torch.bfloat16)
    return values.float() if half else values


def count_samples(**parts: Any) -> int | None:
    """How many samples there are, as far as what is given tells."""
    for name, part in parts.items():
        if part is not None:
            try:
                return len(part)
            except TypeError as error:
                raise InputError(f"{name} must be one entry per sample, got {part!r}.") from error
    return None


def largest(values: Tensor) -> float:
    """The largest absolute value, in one pass; zero if there are none."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)  # four times as fast as the norm; a NaN anywhere comes through
    return float(torch.maximum(-low, high))


def power_of_two(features: Tensor, others: float) -> float:
    """What to multiply points with so that their squares keep their digits: one, unless all points are very small.

    Args:
        features: (n, d).
        others: the largest of the points' other coordinates.
    """
    info, most = torch.finfo(features.dtype), max(others, largest(features))
    if most == 0 or most >= info.tiny**0.5 / info.eps:  # a difference in the last digit has a normal square
        return 1.0
    limit = 96 if info.bits == 32 else 960  # what the type can hold, and enough for its smallest number
    return 2.0 ** min(limit, 32 * round(-math.log2(most) / 32))  # in few steps: what is kept has to be made anew
