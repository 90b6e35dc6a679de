"""Chebyshev's iteration for the lumped system where c = mu / lambda_tilde is large.

D^-1 (L + c D) = (1 + c) I - P with P = D^-1 W, whose eigenvalues lie in [-1, 1] whatever the graph. So the best
polynomial of every degree d is known beforehand: it needs no inner products, and the residual falls by T_d(1 + c) at
least, T_d Chebyshev's polynomial. How many steps are needed follows from the first residual.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ldmnet.graph.sparse import csr
from ldmnet.pim.solve import Solution, Status, chunk_width, whole_and_centred
from ldmnet.pim.system import PointIntegralSystem

COUPLING_FROM = 4.0  # below, conjugate gradients adapt to the spectrum and take fewer steps


def chebyshev_pays(system: PointIntegralSystem, tol: float) -> bool:
    """Whether this iteration applies to a system, and takes less time than conjugate gradients."""
    rounding = 32 * torch.finfo(system.D.dtype).eps  # the bound knows nothing of it: near it the residual is measured
    sparse = system.W.layout != torch.strided
    return system.mass == "lumped" and system.coupling >= COUPLING_FROM and tol > rounding and sparse


def chebyshev(
    system: PointIntegralSystem, v: Tensor, *, tol: float = 1e-5, max_steps: int = 50, out: Tensor | None = None
) -> Solution:
    """Solve (L + c D) u = c D v for every column of v.

    Args:
        system: the operator, with the lumped mass.
        v: (n, m), finite.
        tol: a column is solved when |residual| <= tol |right-hand side|, with and without the column's mean.
        max_steps: at most this many products with the matrix.
        out: where the solution is written, v itself perhaps.

    Returns:
        A `Solution`, whose residuals are upper bounds.
    """
    W, D = system.W, system.D
    counts = W.crow_indices().diff()
    values = W.values() / torch.repeat_interleave(D, counts)
    P = csr(W.crow_indices().int(), W.col_indices().int(), values, len(D))
    value = torch.empty_like(v) if out is None else out
    width, steps, ends = chunk_width(v), 0, []
    for chunk in range(0, v.shape[1], width):
        here = slice(chunk, chunk + width)
        mean = v[:, here].mean(0)  # constants are kept: take them out, and no digits are lost on them
        x = v[:, here] - mean
        s = torch.addmm(x, P, x, beta=-1)  # D^-1 times the residual of u = v, which is -L v
        largest = (D.max() * (D @ s.square())).sqrt()  # |residual| is not above this
        size, goal = _sizes(system, x, mean, tol)
        degree, fall = _degree(1 + system.coupling, largest, goal, max_steps)
        if degree:
            _improve(P, 1 + system.coupling, x, s, degree)
        torch.add(x, mean, out=value[:, here])
        steps = max(steps, degree)
        ends.append((largest / fall, size, goal))
    bound, size, goal = (torch.cat(part) for part in zip(*ends, strict=True))
    status = Status.CONVERGED if bool((bound <= goal).all()) else Status.STEP_LIMIT
    return Solution(value, status, steps, bound / torch.where(size > 0, size, 1))


def _sizes(system: PointIntegralSystem, x: Tensor, mean: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """|c D v| of the whole columns, and the residual that solves them: relative to it and to |c D x|."""
    c, weight = system.coupling, system.D.square()
    size, centred = whole_and_centred(c * c * (weight @ x.square()), c * (weight @ x), c * mean, system.D)
    return size, tol * torch.minimum(size, centred)


def _degree(theta: float, start: Tensor, goal: Tensor, most: int) -> tuple[int, float]:
    """The least degree whose polynomial brings every column from `start` to `goal`, and T_degree(theta)."""
    needed = float(torch.where(start > goal, start / goal, 0).max()) if len(start) else 0.0
    if needed <= 1:
        return 0, 1.0
    degree, fall, before = 1, theta, 1.0
    while fall < needed and degree < most:
        degree, fall, before = degree + 1, 2 * theta * fall - before, fall
    return degree, fall


def _improve(P: Tensor, theta: float, x: Tensor, s: Tensor, degree: int) -> None:
    """`degree` steps on x, in place, from s = D^-1 times its residual."""
    d = s / theta
    x += d
    rho = 1 / theta
    for step in range(1, degree):
        s = P @ d if step == 1 else torch.addmm(s.add_(d, alpha=-theta), P, d)
        rho, before = 1 / (2 * theta - rho), rho
        d.mul_(rho * before).add_(s, alpha=2 * rho)
        x += d
