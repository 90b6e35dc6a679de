"""Chebyshev's iteration for the lumped system where c = mu / lambda_tilde is not very small.

D^-1 (L + c D) = (1 + c) I - P with P = D^-1 W, whose eigenvalues lie in [-1, 1] whatever the graph. So the best
polynomial of every degree is known beforehand: p products with W leave of the residual 1 / T_{p+1}(1 + c) at most, T
Chebyshev's polynomials. There are no inner products to take, and the number of products follows from the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ldmnet.pim.solve import Solution, Status, chunk_width
from ldmnet.pim.system import PointIntegralSystem

# Times by `benchmarks/constants.py`: conjugate gradients take 1.9 times as long as this at coupling 0.1; below, they
# adapt to the spectrum and take fewer steps, and this takes 1.07 times as long at 0.02.
COUPLING_FROM = 0.1
CHUNK_BYTES = 6 * 2**20  # of one (n, chunk) array; from half a megabyte to all columns, times differ by a quarter


def chebyshev_pays(system: PointIntegralSystem, tol: float) -> bool:
    """Whether this iteration applies to a system, and takes less time than conjugate gradients."""
    rounding = 32 * torch.finfo(system.D.dtype).eps  # the bound knows nothing of it: near it the residual is measured
    sparse = system.W.layout != torch.strided
    return system.mass == "lumped" and system.coupling >= COUPLING_FROM and tol > rounding and sparse


def chebyshev(
    system: PointIntegralSystem, v: Tensor, *, tol: float, max_steps: int, out: Tensor | None = None
) -> Solution:
    """Solve (L + c D) u = c D v for every column of v.

    Args:
        system: the operator, with the lumped mass.
        v: (n, m), finite.
        tol: columns are solved when |residual| <= tol |right-hand side|, with and without their means, in the norm
            |r| = (sum_i r_i^2 / D_i)^(1/2). The error of u is then at most tol |v|, in the norm weighted by D.
        max_steps: at most this many products with the matrix.
        out: where the solution is written, v itself perhaps.

    Returns:
        A `Solution`, whose residuals are upper bounds.
    """
    D, theta = system.D, 1 + system.coupling
    mass = system.total(D.sum())
    steps, bound = _steps(theta, tol, max_steps)
    value = torch.empty_like(v) if out is None else out
    width = min(chunk_width(v, CHUNK_BYTES, system), v.shape[1])
    averaged = system.averager(theta, width)  # u -> P u / theta
    for chunk in range(0, v.shape[1], max(1, width)):
        here = slice(chunk, chunk + width)
        mean = system.total(D @ v[:, here]) / mass  # constants are kept: take them out, and no digits are lost on them
        u = _iterated(averaged, theta, v[:, here] - mean, steps)
        torch.add(mean, u, alpha=system.coupling / theta, out=value[:, here])
    status = Status.CONVERGED if bound <= tol else Status.STEP_LIMIT
    return Solution(value, status, steps, v.new_full((v.shape[1],), bound))


def _steps(theta: float, tol: float, most: int) -> tuple[int, float]:
    """The fewest products that leave at most `tol` of the residual, and what they leave: 1 / T_{steps+1}(theta)."""
    steps, now, before = 0, theta, 1.0
    while now * tol < 1 and steps < most:
        steps, now, before = steps + 1, 2 * theta * now - before, now
    return steps, 1 / now


def _iterated(averaged: Callable[[Tensor], Tensor], theta: float, x: Tensor, steps: int) -> Tensor:
    """The solution of u - averaged(u) = x, about: from zero, one step without a product and `steps` with one."""
    before, u, weight = None, x, 2.0
    for _ in range(steps):
        weight = 1 / (1 - weight / (4 * theta * theta))
        ahead = averaged(u).add_(x)
        if before is None:
            ahead *= weight  # the iterate before the first is zero
        else:
            torch.lerp(before, ahead, weight, out=ahead)
        before, u = u, ahead
    return u
