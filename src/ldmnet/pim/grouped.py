"""The alpha update group by group: a graph within groups makes the system block diagonal.

Small blocks are factorised densely, many of one size in one batch; large ones are solved by Chebyshev's iteration, or
by conjugate gradients where that does not apply.
A dense block that is not positive definite, or not solved to the tolerance, goes to conjugate gradients too: they
stop at negative curvature, and of two solutions the one with the smaller residual is kept. What float32 cannot solve to
the tolerance, because the coupling is small, is solved in float64.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ldmnet.graph.groups import Groups
from ldmnet.graph.sparse import row_of_entry
from ldmnet.pim.chebyshev import chebyshev, chebyshev_pays
from ldmnet.pim.solve import Solution, Status, column_factors, expected_steps, pcg, rounding_beyond
from ldmnet.pim.system import PointIntegralSystem

# Times by `benchmarks/constants.py`, with 500 columns and coupling 0.2. Iterated, ten classes of 50 take 5.1 times as
# long, of 500 1.9 times, of 1,000 1.3 times; two of 4,000 take 3.0 times as long factorised.
STEP_COST = 350  # operations of a factorisation in the time of one step of conjugate gradients on one number
DENSE_UP_TO = 2048  # rows of a group: dense blocks of more take too much memory
INVERT_UP_TO = 600  # rows: a product with the inverse; as fast at 300 as triangular solves, 1.3 times the time at 1,000
TRIANGLE = 64  # rows of the triangles that are inverted in a triangular solve: 16 to 128 are alike, whole: 1.9 times
BATCH_ELEMENTS = 64 * 2**20  # entries of the dense blocks at one time
CHECKED_COLUMNS = 32  # a direct solve's residual is measured on this many


def solve_grouped(
    system: PointIntegralSystem,
    v: Tensor,
    groups: Groups,
    *,
    tol: float = 1e-5,
    max_steps: int = 50,
    overwrite: bool = False,
) -> Solution:
    """Solve (L + c M) u = c M v for rows in the groups' sorted order, W without entries between groups.

    Args:
        system: the operator over all rows.
        v: (n, m).
        groups: the partition.
        tol: see `pcg`.
        max_steps: see `pcg`.
        overwrite: True if v is not needed any more: the solution then takes its place.
    """
    single = v.dtype == torch.float32
    if single and rounding_beyond(system, tol, v.dtype):
        part = _in_double(system, v, groups, tol, max_steps)
        return replace(part, value=v.copy_(part.value)) if overwrite else part
    factors = column_factors(v)
    if factors is not None:
        scaled = solve_grouped(system, v * factors, groups, tol=tol, max_steps=max_steps, overwrite=True)
        value = torch.div(scaled.value, factors, out=v if overwrite else None)
        return replace(scaled, value=value)
    value = v if overwrite else torch.empty_like(v)
    parts: list[Solution] = []
    iterate: list[Tensor] = []  # groups for conjugate gradients, one row of positions each
    direct: dict[int, tuple[Tensor, Tensor]] = {}  # first row of some of them -> what a factorisation found, residuals
    blocks, steps = _DenseBlocks(system), expected_steps(system, tol)
    for size, rows in groups.buckets(BATCH_ELEMENTS):
        if size * v.shape[1] == 0 or not dense_pays(size, v.shape[1], steps):
            iterate += list(rows)
            continue
        part, failed, missed = blocks.solve(rows, v, tol)
        span = _span(rows)
        if bool(failed.any()):
            value[rows[~failed]] = part.value[~failed]
        elif span is None:
            value[rows] = part.value
        else:
            value[span] = part.value.flatten(0, 1)
        parts.append(replace(part, residual=part.residual[~failed].flatten()))
        iterate += list(rows[failed])
        direct |= {int(rows[g, 0]): (part.value[g], part.residual[g]) for g in missed.nonzero().flatten().tolist()}
    for positions in iterate:
        start, stop = int(positions[0]), int(positions[-1]) + 1
        block, here = system.block(start, stop), value[start:stop]
        if chebyshev_pays(block, tol):
            parts.append(chebyshev(block, v[start:stop], tol=tol, max_steps=max_steps, out=here))
            continue
        part = pcg(block, v[start:stop], tol=tol, max_steps=max_steps)
        if start in direct and not float(part.residual.max()) < float(direct[start][1].max()):
            part = Solution(direct[start][0], Status.ROUNDING, 0, direct[start][1])
        if single and part.status is Status.ROUNDING:
            whole = Groups(torch.zeros(stop - start, dtype=torch.int64, device=v.device))
            part = _in_double(block, v[start:stop], whole, tol, max_steps)
        here.copy_(part.value)
        parts.append(part)
    return Solution(
        value,
        max((part.status for part in parts), key=list(Status).index),
        max(part.steps for part in parts),
        torch.cat([part.residual for part in parts]),
        max(part.negative_curvature for part in parts),
    )


def _in_double(system: PointIntegralSystem, v: Tensor, groups: Groups, tol: float, max_steps: int) -> Solution:
    """What `solve_grouped` gives in float64, in the type of v."""
    part = solve_grouped(system.double(), v.double(), groups, tol=tol, max_steps=max_steps, overwrite=True)
    return replace(part, value=part.value.to(v.dtype), residual=part.residual.to(v.dtype))


def dense_pays(size: int, columns: int, steps: float) -> bool:
    """Whether factorising a block takes less time than conjugate gradients of so many steps."""
    return size <= DENSE_UP_TO and size**2 / 3 + 2 * size * columns <= STEP_COST * steps * columns


def _solve_in_blocks(factor: Tensor, b: Tensor) -> Tensor:
    """Solve F F' x = b into b, batched: triangular solves as matrix products, which run faster.

    Args:
        factor: (g, m, m) lower triangular.
        b: (g, m, columns), overwritten.
    """
    edges = list(range(0, factor.shape[1], TRIANGLE))
    blocks = [slice(start, min(start + TRIANGLE, factor.shape[1])) for start in edges]
    inverse = []
    for here in blocks:
        one = torch.eye(here.stop - here.start, dtype=b.dtype, device=b.device).expand(len(b), -1, -1)
        inverse.append(torch.linalg.solve_triangular(factor[:, here, here], one, upper=False))
    for here, inv in zip(blocks, inverse, strict=True):
        right = b[:, here]
        if here.start:
            right = torch.baddbmm(right, factor[:, here, : here.start], b[:, : here.start], alpha=-1)
        b[:, here] = torch.bmm(inv, right)
    for here, inv in zip(reversed(blocks), reversed(inverse), strict=True):
        right = b[:, here]
        if here.stop < b.shape[1]:
            right = torch.baddbmm(right, factor[:, here.stop :, here].mT, b[:, here.stop :], alpha=-1)
        b[:, here] = torch.bmm(inv.mT, right)
    return b


def _span(rows: Tensor) -> slice | None:
    """Ascending positions as a slice, where there are no gaps: no copies then."""
    start, stop = int(rows[0, 0]), int(rows[-1, -1]) + 1
    return slice(start, stop) if stop - start == rows.numel() else None


class _DenseBlocks:
    """The system's diagonal blocks as dense matrices."""

    def __init__(self, system: PointIntegralSystem) -> None:
        self._system = system

    def solve(self, rows: Tensor, v: Tensor, tol: float) -> tuple[Solution, Tensor, Tensor]:
        """Solve for g groups of one size, rows (g, m).

        Returns:
            The solution, with the residuals of some columns (g, columns); which groups (g,) conjugate gradients should
            do; and which of these (g,) have a solution whose residual is above the tolerance.
        """
        system = self._system
        A, W = self._matrices(rows)
        factor, info = torch.linalg.cholesky_ex(A)
        failed = info > 0  # not positive definite
        factor[failed] = torch.eye(A.shape[1], dtype=A.dtype, device=A.device)
        span = _span(rows)
        here = v[rows] if span is None else v[span].view(*rows.shape, -1)  # (g, m, columns)
        mean = here.mean(1, keepdim=True)
        b = here - mean  # constants are kept: take them out, and no digits are lost on them
        if W is None:
            b *= system.D[rows][..., None]
        else:
            b = torch.bmm(W, b)
        b *= system.coupling
        if A.shape[1] <= INVERT_UP_TO:
            value = torch.bmm(torch.cholesky_inverse(factor), b)
        else:
            value = _solve_in_blocks(factor, b.clone())
        checked = slice(None, None, max(1, v.shape[1] // CHECKED_COLUMNS))
        error = torch.linalg.vector_norm(b[..., checked] - torch.bmm(A, value[..., checked]), dim=1)
        whole = b[..., checked] + system.coupling * mean[..., checked] * system.D[rows][..., None]  # c M v
        size = torch.linalg.vector_norm(whole, dim=1)
        residual = error / torch.where(size > 0, size, 1)  # (g, checked columns)
        missed = ~failed & ~(residual <= tol).all(1)
        return Solution(value.add_(mean), Status.CONVERGED, 0, residual), failed | missed, missed

    def _matrices(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """(g, m, m) blocks of the system's matrix, and of W where the right-hand side needs it."""
        system = self._system
        W, g, m = system.W, rows.shape[0], rows.shape[1]
        at, to, values = row_of_entry(W), W.col_indices(), W.values()
        if _span(rows) != slice(0, len(W)):  # some of the groups
            slot = torch.full((len(W),), -1, dtype=torch.int64, device=rows.device)  # row -> g * m + place
            slot[rows.flatten()] = torch.arange(g * m, device=rows.device)
            at = slot[at]
            inside = at >= 0
            at, to, values = at[inside], slot[to[inside]], values[inside]
        dense = torch.zeros(g * m * m, dtype=W.dtype, device=rows.device)
        dense[at * m + to % m] = values
        dense = dense.view(g, m, m)
        W_blocks = None if system.mass == "lumped" else dense.clone()
        A = dense.mul_(system.on_W)
        A.diagonal(dim1=1, dim2=2).add_(system.on_D * system.D[rows])
        return A, W_blocks
