"""Preconditioned conjugate gradients for all feature columns at once.

Differs from the textbook's method in three ways: each column has its own step lengths and stops by itself; a
column whose search direction has p'Ap <= 0 stops at the iterate before it (eq. (19) as printed is indefinite
where mu / lambda_tilde is large); and a column that is solved is left alone, so nothing is divided by zero.

Jacobi's preconditioner is built into the matrix: the diagonal is scaled to one, and plain conjugate gradients on
the scaled system take the same steps. Columns are worked on in chunks that stay in the processor's cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.pim.system import PointIntegralSystem

CHUNK_BYTES = 2800 * 2**10  # of one (n, chunk) array: stays in the cache (`benchmarks/constants.py --only chunks`)
LEAST_CHUNK = 16  # columns
SAFE = 2.0**20  # columns of v up to this large, or not below one over it, are worked on as they are


class Status(Enum):
    """How a solve ended; the value is what to do about it."""

    CONVERGED = "nothing: every column met the tolerance"
    STEP_LIMIT = "raise max_steps, loosen tol, or lower lambda_tilde (a larger mu / lambda_tilde converges faster)"
    ROUNDING = "raise the coupling mu / lambda_tilde, or loosen tol: rounding alone leaves this residual, not the steps"
    NEGATIVE_CURVATURE = (
        "the system is not positive definite at this mu / lambda_tilde: use mass='lumped', which always is, "
        "or raise lambda_tilde"
    )


@dataclass(frozen=True)
class Solution:
    """What a solve found.

    Attributes:
        value: u, of v's shape.
        status: the worst over the columns.
        steps: products with the matrix that the slowest column took; zero for a direct solve.
        residual: relative residuals |c M v - A u| / |c M v|, one a column.
        negative_curvature: how many columns stopped at p'Ap <= 0.
    """

    value: Tensor
    status: Status
    steps: int
    residual: Tensor
    negative_curvature: int = 0

    def told(self) -> str:
        """How it ended and what to do about it, in words that follow a subject."""
        counted = f" in {self.negative_curvature} columns" if self.negative_curvature else ""
        return (
            f"ended with {self.status.name}{counted} (largest relative residual {float(self.residual.max()):.1e}); to "
            f"mend it: {self.status.value}"
        )


def pcg(
    system: PointIntegralSystem,
    v: Tensor,
    *,
    x0: Tensor | None = None,
    tol: float = 1e-5,
    max_steps: int = 50,
) -> Solution:
    """Solve (L + c M) u = c M v for every column of v.

    Args:
        system: the operator.
        v: (n,) or (n, m).
        x0: where to start; v itself unless given.
        tol: a column is solved when |residual| <= tol |right-hand side|, with and without the column's mean.
        max_steps: at most this many products with the matrix.

    Returns:
        A `Solution`. A column that did not converge has its last iterate, never a NaN.
    """
    if v.shape[:1] != system.D.shape:
        raise InputError(f"v has {v.shape[0]} rows but the system has {len(system.D)}.")
    if x0 is not None and x0.shape != v.shape:
        raise InputError(f"x0 has shape {tuple(x0.shape)} but v has {tuple(v.shape)}.")
    columns = v if v.ndim == 2 else v[:, None]
    starts = columns if x0 is None else x0.reshape(columns.shape)
    factors = column_factors(columns)
    if factors is not None:
        columns, starts = columns * factors, starts * factors
    width = chunk_width(columns, CHUNK_BYTES)
    matrix, S = system.scaled()
    value = torch.empty_like(columns)
    ends = []
    for chunk in range(0, columns.shape[1], width):
        here = slice(chunk, chunk + width)
        mean = columns[:, here].mean(0)  # constants are kept: take them out, and no digits are lost on them
        centred = columns[:, here] - mean
        b, r = system.rhs_and_residual_at(centred)
        if x0 is None:
            x = centred
        else:
            x = starts[:, here] - mean
            r = b - system.matvec(x)
        ends.append(_conjugate_gradients(system, matrix, S, x, b, r, _sizes(system, b, mean), tol, max_steps))
        torch.add(x, mean, out=value[:, here])
    if factors is not None:
        value /= factors
    bent = sum(end.bent for end in ends)
    if bent:
        status = Status.NEGATIVE_CURVATURE
    elif any(end.unsolved for end in ends):
        status = Status.STEP_LIMIT if any(end.steps >= max_steps for end in ends) else Status.ROUNDING
    else:
        status = Status.CONVERGED
    residual = torch.cat([end.residual for end in ends])
    return Solution(value.reshape(v.shape), status, max(end.steps for end in ends), residual, bent)


def column_factors(columns: Tensor) -> Tensor | None:
    """Powers of two (m,) that bring the columns of v (n, m) to sizes whose squares keep their digits; None if all have.

    Raises:
        InputError: v has NaN or infinite values.
    """
    if columns.numel() == 0:
        return None
    largest = torch.linalg.vector_norm(columns, torch.inf, dim=0)  # one pass
    if not bool(largest.isfinite().all()):
        raise InputError("v has NaN or infinite values.")
    odd = (largest > 0) & ((largest < 1 / SAFE) | (largest > SAFE))
    if not bool(odd.any()):
        return None
    exponent = -torch.frexp(largest).exponent
    most = 120 if columns.dtype == torch.float32 else 1000  # what the type can hold
    return torch.where(odd, torch.ldexp(torch.ones_like(largest), exponent.clamp(-most, most)), 1)


def chunk_width(columns: Tensor, chunk_bytes: int) -> int:
    """How many columns to work on at one time."""
    return max(LEAST_CHUNK, chunk_bytes // (max(1, len(columns)) * columns.element_size()))


@dataclass(frozen=True)
class _End:
    """How one chunk of columns ended."""

    residual: Tensor
    bent: int
    unsolved: bool
    steps: int


def _conjugate_gradients(
    system: PointIntegralSystem,
    matrix: Tensor,
    S: Tensor,
    x: Tensor,
    b: Tensor,
    r: Tensor,
    sizes: tuple[Tensor, Tensor],
    tol: float,
    max_steps: int,
) -> _End:
    """Improve x, in place, with right-hand side b and residual r; matrix is S^-1 A S^-1.

    Residuals are reported relative to the first of `sizes`; a column is solved when it is so relative to both.
    """
    scale, size = S[:, None], sizes[0]
    weights = torch.stack([torch.ones_like(S), S.square()])  # for |r| in the scaled and in the true norm
    goal = (tol * torch.minimum(*sizes)).square()
    r = r / scale
    rr, error = weights @ r.square()  # (columns,) each
    active = ~(error <= goal)  # a NaN is not solved
    bent = torch.zeros_like(active)
    y = torch.zeros_like(x)  # the correction to x, scaled
    p = r.clone()
    steps = 0
    while steps < max_steps and bool(active.any()):
        Ap = matrix @ p
        steps += 1
        curvature = (p * Ap).sum(0)
        bent |= active & ~(curvature > 0)  # DEVIATION(3)
        active &= ~bent
        length = torch.where(active, rr / torch.where(active, curvature, 1), 0)
        y.addcmul_(p, length)
        r.addcmul_(Ap, length, value=-1)
        rr_next, error_next = weights @ r.square()
        error = torch.where(active, error_next, error)
        active &= ~(error <= goal)
        p.mul_(torch.where(active, rr_next / torch.where(active, rr, 1), 0)).add_(r)
        rr = rr_next
    x.addcdiv_(y, scale)
    unsolved = active
    if _recursion_may_drift(system, tol, x.dtype) and steps:
        error = (b - system.matvec(x)).square().sum(0)
        unsolved = ~bent & ~(error <= goal)
    residual = error.sqrt() / torch.where(size > 0, size, 1)
    return _End(residual, int(bent.sum()), bool(unsolved.any()), steps)


def _sizes(system: PointIntegralSystem, b: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """|c M v| of the whole columns, and |b|, c M v of the centred ones: M keeps constants up to D."""
    return whole_and_centred(b.square().sum(0), system.D @ b, system.coupling * mean, system.D)


def whole_and_centred(squares: Tensor, along: Tensor, shift: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """|b + shift D| and |b| by column, from |b|^2 and D'b."""
    whole = squares + 2 * shift * along + shift.square() * D.square().sum()
    return whole.clamp(min=0).sqrt(), squares.sqrt()


def expected_steps(system: PointIntegralSystem, tol: float) -> float:
    """About how many steps `pcg` takes: three quarters of Chebyshev's bound, which is what was measured."""
    c = system.coupling
    condition = (2 + c) / c if system.mass == "lumped" else max(c, 1 / c)
    root = math.sqrt(condition)
    return max(1.0, 0.75 * math.log(2 / tol) / math.log((root + 1) / max(root - 1, 1e-9)))


def rounding_beyond(system: PointIntegralSystem, tol: float, dtype: torch.dtype, margin: float = 1.0) -> bool:
    """Whether rounding alone, times a margin, leaves a residual above the tolerance: where the coupling is small."""
    return torch.finfo(dtype).eps * margin * (2 + system.coupling) / system.coupling > tol


def _recursion_may_drift(system: PointIntegralSystem, tol: float, dtype: torch.dtype) -> bool:
    """Whether rounding can part the updated residual from the true one by as much as the tolerance."""
    unknown = system.mass == "consistent" and system.coupling > 2  # the lowest eigenvalue
    return unknown or rounding_beyond(system, tol, dtype, margin=4)
