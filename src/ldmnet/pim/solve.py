"""Preconditioned conjugate gradients for all feature columns at once.

Differs from the textbook's method in three ways: each column has its own step lengths and stops by itself; a
column whose search direction has p'Ap <= 0 stops at the iterate before it (eq. (19) as printed is indefinite
where mu / lambda_tilde is large); and a column that is solved is left alone, so nothing is divided by zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.pim.system import PointIntegralSystem


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
    """What `pcg` found.

    Attributes:
        value: u, of v's shape.
        status: the worst over the columns.
        steps: products with the matrix that the slowest column took.
        residual: (columns,) relative residual |c M v - A u| / |c M v| of each column.
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
    b, r = system.rhs_and_residual_at(columns)
    if x0 is None:
        x = columns.clone()
    else:
        x = x0.reshape(columns.shape).clone()
        r = b - system.matvec(x)
    goal = tol * torch.linalg.vector_norm(b, dim=0)  # (m,)
    inverse_diagonal = system.diagonal().reciprocal()[:, None]

    error = torch.linalg.vector_norm(r, dim=0)
    active = error > goal
    bent = torch.zeros_like(active)
    z = inverse_diagonal * r
    p = z.clone()
    rz = (r * z).sum(0)
    steps = 0
    while steps < max_steps and bool(active.any()):
        Ap = system.matvec(p)
        steps += 1
        curvature = (p * Ap).sum(0)
        active &= rz > 0  # r underflowed: nothing is left to solve
        bent |= active & (curvature <= 0)
        active &= ~bent
        length = torch.where(active, rz / torch.where(active, curvature, 1), 0)
        x.addcmul_(p, length)
        r.addcmul_(Ap, length, value=-1)
        error = torch.where(active, torch.linalg.vector_norm(r, dim=0), error)
        active &= error > goal
        torch.mul(inverse_diagonal, r, out=z)
        rz_next = (r * z).sum(0)
        p.mul_(torch.where(active, rz_next / torch.where(active, rz, 1), 0)).add_(z)
        rz = rz_next

    if bool(bent.any()):
        status = Status.NEGATIVE_CURVATURE
    elif bool(active.any()):
        status = Status.STEP_LIMIT
    else:
        status = Status.CONVERGED
    size = torch.linalg.vector_norm(b, dim=0)
    residual = error / torch.where(size > 0, size, 1)
    return Solution(x.reshape(v.shape), status, steps, residual, int(bent.sum()))
