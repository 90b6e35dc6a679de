"""The linear system of a class whose rows are spread over all processes, for the solvers of `ldmnet.pim`.

Each process has its rows of W and of every column. A product with W fetches from the others the rows of u that this
process's rows have entries for; sums over rows are added up over the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ldmnet.distributed.world import World
from ldmnet.graph.sparse import csr, row_of_entry
from ldmnet.pim.chebyshev import chebyshev, chebyshev_pays
from ldmnet.pim.grouped import dense_pays
from ldmnet.pim.solve import Solution, Status, column_factors, expected_steps, pcg, rounding_beyond
from ldmnet.pim.system import Mass, PointIntegralSystem

AS_DENSE = 0.1  # of the tolerance, where one process would have factorised the matrix: as exact as that, about


class Halo:
    """The rows of other processes that this one needs. To make one is collective.

    Args:
        world: the processes.
        bounds: where each process's rows begin, and how many there are in all.
        needed: (h,) the rows needed, ascending, none of them this process's.
    """

    def __init__(self, world: World, bounds: Sequence[int], needed: Tensor) -> None:
        self._world = world
        owner = torch.searchsorted(torch.tensor(bounds[1:], device=needed.device), needed, right=True)
        self._take, self._give = world.counts(torch.bincount(owner, minlength=world.size).cpu())
        self._rows = world.exchange(needed, self._take, self._give) - bounds[world.rank]

    def with_mine(self, values: Tensor) -> Tensor:
        """This process's rows (m_here, ...) and, after them, those needed of the others."""
        return torch.cat([values, self._world.exchange(values[self._rows], self._give, self._take)])


class SpreadMatrix:
    """This process's rows of a symmetric matrix, behaving in products like the whole.

    Args:
        inner: (m_here, m_here + h) CSR; the columns are this process's rows, then those of the halo.
        halo: fetches these.
    """

    ndim, layout = 2, torch.sparse_csr

    def __init__(self, inner: Tensor, halo: Halo) -> None:
        self.inner, self.halo = inner, halo
        self.dtype, self.device, self.shape = inner.dtype, inner.device, (len(inner), len(inner))

    def __len__(self) -> int:
        return len(self.inner)

    def __matmul__(self, x: Tensor) -> Tensor:
        wide = self.halo.with_mine(x if x.ndim == 2 else x[:, None])
        out = self.inner @ wide
        return out if x.ndim == 2 else out[:, 0]

    def with_values(self, values: Tensor) -> SpreadMatrix:
        """The same pattern with other values."""
        return SpreadMatrix(csr(self.crow, self.col, values, len(self), self.inner.shape[1]), self.halo)

    @property
    def crow(self) -> Tensor:
        """Where each row's entries begin."""
        return self.inner.crow_indices()

    @property
    def col(self) -> Tensor:
        """The column of each entry."""
        return self.inner.col_indices()

    @classmethod
    def of(cls, world: World, bounds: Sequence[int], crow: Tensor, col: Tensor, values: Tensor) -> SpreadMatrix:
        """From this process's rows with columns counted over all rows. Collective."""
        start, stop = bounds[world.rank], bounds[world.rank + 1]
        mine = (col >= start) & (col < stop)
        needed, place = torch.unique(col[~mine], return_inverse=True)
        local = torch.empty_like(col)
        local[mine], local[~mine] = col[mine] - start, place + (stop - start)
        inner = csr(crow.int(), local.int(), values, stop - start, stop - start + len(needed))
        return cls(inner, Halo(world, bounds, needed))


class SpreadSystem(PointIntegralSystem):
    """The operator of eq. (19) for this process's rows.

    Args:
        W: its rows of the weights.
        coupling: mu / lambda_tilde.
        mass: "consistent" or "lumped".
        world: the processes.
        n: how many rows all have.
    """

    def __init__(self, W: SpreadMatrix, coupling: float, mass: Mass, world: World, n: int) -> None:
        self._world, self._n = world, n
        super().__init__(W, coupling, mass)  # type: ignore[arg-type]
        self.spread = W

    @property
    def rows(self) -> int:
        """The most rows that one process has: all must take the columns in the same chunks."""
        return -(-self._n // self._world.size)

    def total(self, sums: Tensor) -> Tensor:
        """Add up over the processes."""
        return self._world.total(sums)

    def most(self, largest: Tensor) -> Tensor:
        """The largest over the processes."""
        return self._world.most(largest)

    def mean(self, columns: Tensor) -> Tensor:
        """The mean over all processes' rows."""
        return (self.total(columns.sum(0, dtype=torch.float64)) / self._n).to(columns)

    def averager(self, theta: float, columns: int) -> Callable[[Tensor], Tensor]:
        """The product u -> D^-1 W u / theta."""
        W = self.spread
        scaled = W.with_values(W.inner.values() / torch.repeat_interleave(theta * self.D, W.crow.diff()))
        return scaled.__matmul__

    def diagonal(self) -> Tensor:
        """The diagonal of L + c M, this process's part."""
        row, W = row_of_entry(self.spread.inner), self.spread
        own = torch.zeros_like(self.D)
        on_diagonal = row == W.col
        own[row[on_diagonal]] = W.inner.values()[on_diagonal]
        return (self.D - own) + (self._rhs_on_D * self.D + self._rhs_on_W * own)

    def scaled(self) -> tuple[Tensor, Tensor]:
        """The matrix with its diagonal scaled to one, and S."""
        S, W = self.diagonal().sqrt(), self.spread
        row, everyone = row_of_entry(W.inner), W.halo.with_mine(S)
        values = self.on_W * W.inner.values() / (S[row] * everyone[W.col.long()])
        values[row == W.col] = 1
        return W.with_values(values), S  # type: ignore[return-value]

    def double(self) -> SpreadSystem:
        """The same system in float64."""
        W = self.spread.with_values(self.spread.inner.values().double())
        return SpreadSystem(W, self.coupling, self.mass, self._world, self._n)

    def dirichlet_energies(self, *several: Tensor) -> list[float]:
        """The energy of each of several u over all rows."""
        sums = [(u * self._combine(u, self.spread @ u, 1.0, -1.0)).sum(dtype=torch.float64) for u in several]
        return [float(value) for value in self.total(torch.stack(sums))]

    def solve(self, v: Tensor, tol: float, max_steps: int) -> Solution:
        """What `ldmnet.pim.solve_grouped` does with one class, for this process's rows of v."""
        single = v.dtype == torch.float32
        if single and rounding_beyond(self, tol, v.dtype):
            return self._in_double(v, tol, max_steps)
        factors = column_factors(v, self)
        if factors is not None:
            part = self.solve(v * factors, tol, max_steps)
            return replace(part, value=part.value / factors)
        dense = dense_pays(self._n, v.shape[1], expected_steps(self, tol))
        within = AS_DENSE * tol if dense else tol
        if chebyshev_pays(self, within):
            return chebyshev(self, v, tol=within, max_steps=max_steps)
        part = pcg(self, v, tol=within, max_steps=max_steps)
        return self._in_double(v, within, max_steps) if single and part.status is Status.ROUNDING else part

    def _in_double(self, v: Tensor, tol: float, max_steps: int) -> Solution:
        part = self.double().solve(v.double(), tol, max_steps)
        return replace(part, value=part.value.to(v.dtype), residual=part.residual.to(v.dtype))
