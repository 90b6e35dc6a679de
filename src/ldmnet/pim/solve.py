"""Preconditioned conjugate gradients for all feature columns at once.

Differs from the textbook's method in three ways: each column has its own step lengths and stops by itself; a
column whose search direction has p'Ap <= 0 stops at the iterate before it (eq. (19) as printed is indefinite
where mu / lambda_tilde is large); and a column that is solved is left alone, so nothing is divided by zero.

Jacobi's preconditioner is built into the matrix: the diagonal is scaled to one, and plain conjugate gradients on
the scaled system take the same steps. Columns are worked on in chunks that stay in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.pim.system import PointIntegralSystem

CHUNK_BYTES = 700 * 2**10  # of one (n, chunk) array
LEAST_CHUNK = 16  # columns


class Status(Enum):
    """How a solve ended; the value is what to do about it."""

    CONVERGED = "nothing: every column met the tolerance"
    STEP_LIMIT = "raise max_steps, loosen tol, or lower lambda_tilde (a larger mu / lambda_tilde converges faster)"
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
        tol: a column is solved when |residual| <= tol |right-hand side|.
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
    width = max(LEAST_CHUNK, CHUNK_BYTES // (len(columns) * columns.element_size()))
    matrix, S = system.scaled()
    value = torch.empty_like(columns)
    residual, bent, unsolved, steps = [], 0, False, 0
    for chunk in range(0, columns.shape[1], width):
        here = slice(chunk, chunk + width)
        b, r = system.rhs_and_residual_at(columns[:, here].contiguous())
        x = starts[:, here].clone(memory_format=torch.contiguous_format)
        if x0 is not None:
            r = b - system.matvec(x)
        end = _conjugate_gradients(matrix, S, x, b, r, tol, max_steps)
        value[:, here] = x
        residual.append(end.residual)
        bent += end.bent
        unsolved |= end.unsolved
        steps = max(steps, end.steps)
    if bent:
        status = Status.NEGATIVE_CURVATURE
    else:
        status = Status.STEP_LIMIT if unsolved else Status.CONVERGED
    return Solution(value.reshape(v.shape), status, steps, torch.cat(residual), bent)


@dataclass(frozen=True)
class _End:
    """How one chunk of columns ended."""

    residual: Tensor
    bent: int
    unsolved: bool
    steps: int


def _conjugate_gradients(
    matrix: Tensor, S: Tensor, x: Tensor, b: Tensor, r: Tensor, tol: float, max_steps: int
) -> _End:
    """Improve x, in place, with right-hand side b and residual r; matrix is S^-1 A S^-1."""
    scale = S[:, None]
    weights = torch.stack([torch.ones_like(S), S.square()])  # for |r| in the scaled and in the true norm
    size = torch.linalg.vector_norm(b, dim=0)
    goal = (tol * size).square()
    x.mul_(scale)
    r = r / scale
    rr, error = weights @ r.square()  # (columns,) each
    active = error > goal
    bent = torch.zeros_like(active)
    p = r.clone()
    steps = 0
    while steps < max_steps and bool(active.any()):
        Ap = matrix @ p
        steps += 1
        curvature = (p * Ap).sum(0)
        active &= rr > 0  # r underflowed: nothing is left to solve
        bent |= active & (curvature <= 0)  # DEVIATION(3)
        active &= ~bent
        length = torch.where(active, rr / torch.where(active, curvature, 1), 0)
        x.addcmul_(p, length)
        r.addcmul_(Ap, length, value=-1)
        rr_next, error_next = weights @ r.square()
        error = torch.where(active, error_next, error)
        active &= error > goal
        p.mul_(torch.where(active, rr_next / torch.where(active, rr, 1), 0)).add_(r)
        rr = rr_next
    x.div_(scale)
    residual = error.sqrt() / torch.where(size > 0, size, 1)
    return _End(residual, int(bent.sum()), bool(active.any()), steps)
