"""Low-rank embedding: a linear map that makes each person's samples low-rank and all samples together full-rank.

It minimises sum_c |T X_c|_* - |T X|_* over maps T of spectral norm 1, where X_c are the samples of person c as columns
and |.|_* is the nuclear norm. The objective is never negative, and zero when the people's spans are independent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ldmnet.errors import InputError


def low_rank_map(
    x: Tensor, identity: Tensor, *, steps: int = 100, step_size: float = 0.1
) -> tuple[Tensor, list[float]]:
    """Learn the map by subgradient steps from the identity.

    Args:
        x: (n, d) samples; reduce them by PCA first, a step costs n d^2.
        identity: (n,) whose they are.
        steps: how many.
        step_size: of the first step, relative to |T|; it falls as one over the square root.

    Returns:
        (d, d) float64, the map of the lowest objective, of spectral norm 1; and the objective's value at every step,
        the start first.
    """
    if x.ndim != 2 or identity.shape != (len(x),):
        raise InputError(f"x must be (n, d) and identity (n,), got {tuple(x.shape)} and {tuple(identity.shape)}.")
    if steps < 0 or not 0 < step_size < math.inf:
        raise InputError(f"steps must be 0 or above and step_size above 0, got {steps} and {step_size}.")
    x = x.double()
    classes = [x[identity == person] for person in torch.unique(identity)]
    T = torch.eye(x.shape[1], dtype=torch.float64, device=x.device)
    value, gradient = _objective(T, x, classes)
    best, objective = T, [value]
    for step in range(steps):
        size = float(torch.linalg.matrix_norm(gradient))
        if size == 0:
            break
        length = step_size * float(torch.linalg.matrix_norm(T)) / math.sqrt(step + 1)
        T = T - length / size * gradient
        T = T / torch.linalg.matrix_norm(T, 2)
        value, gradient = _objective(T, x, classes)
        if value < min(objective):
            best = T
        objective.append(value)
    return best, objective


def _objective(T: Tensor, x: Tensor, classes: list[Tensor]) -> tuple[float, Tensor]:
    """The objective at T and one of its subgradients."""
    value, gradient = 0.0, torch.zeros_like(T)
    for sign, samples in ((-1.0, x), *((1.0, c) for c in classes)):
        norm, part = _nuclear(samples @ T.T)
        value += sign * norm
        gradient += sign * (part.T @ samples)
    return value, gradient


def _nuclear(A: Tensor) -> tuple[float, Tensor]:
    """The nuclear norm and its subgradient U V', from the smaller Gram matrix."""
    wide = A.shape[0] < A.shape[1]
    gram = A @ A.T if wide else A.T @ A
    values, vectors = torch.linalg.eigh(gram)
    kept = values > 1e-12 * values[-1].clamp_min(1e-300)  # a zero singular value adds nothing to either
    root, basis = values[kept].sqrt(), vectors[:, kept]
    inverse_root = (basis / root) @ basis.T
    return float(root.sum()), inverse_root @ A if wide else A @ inverse_root
