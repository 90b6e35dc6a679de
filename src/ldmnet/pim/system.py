"""The linear system of the alpha update, eq. (19): (L + c M) u = c M v, with c = mu / lambda_tilde.

The paper prints M = W, here `mass="consistent"`. With `mass="lumped"` M is D = diag(W 1), W's row sums, as one
lumps a mass matrix in finite elements: then the system is positive definite for every c, which the printed one
is not. Both are the two ends of M = (1 - s) D + s W, and since L = D - W the matrix is always a D + b W:

    L + c M = (1 + c (1 - s)) D + (c s - 1) W
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.graph.sparse import csr, multiplier, row_of_entry

Mass = Literal["consistent", "lumped"]
_SHARE_OF_W: dict[str, float] = {"consistent": 1.0, "lumped": 0.0}  # s in M = (1 - s) D + s W
LEAST_COUPLING, MOST_COUPLING = 1e-12, 1e12  # beyond, L or c M is lost in the other's rounding
# At a time: few, so that large graphs gather their rows from the cache. At n = 8,000 four take 1.9 times as long, 64
# and more 0.9 times (`benchmarks/constants.py`).
ENERGY_COLUMNS = 16


class PointIntegralSystem:
    """The operator of eq. (19) and its right-hand side.

    Args:
        W: (n, n) symmetric weights, sparse CSR or dense.
        coupling: c = mu / lambda_tilde, above zero and finite.
        mass: "consistent" (M = W, as printed) or "lumped" (M = D).
    """

    def __init__(self, W: Tensor, coupling: float, mass: Mass = "consistent") -> None:
        if W.ndim != 2 or W.shape[0] != W.shape[1]:
            raise InputError(f"W must be square, got shape {tuple(W.shape)}.")
        if not 0 < coupling < float("inf"):
            raise InputError(f"coupling must be above zero and finite, got {coupling}.")
        if not LEAST_COUPLING <= coupling <= MOST_COUPLING:
            raise InputError(
                f"coupling, which is mu / lambda_tilde, is {coupling:.1e}: float64 cannot tell what it does beyond "
                f"{LEAST_COUPLING:g} to {MOST_COUPLING:g}."
            )
        if mass not in _SHARE_OF_W:
            raise InputError(f"mass must be one of {', '.join(_SHARE_OF_W)}, got {mass!r}.")
        self.W = W
        self.coupling = float(coupling)
        self.mass: Mass = mass
        share = _SHARE_OF_W[mass]
        self.D = W @ torch.ones(len(W), dtype=W.dtype, device=W.device)  # (n,)
        wrong = ~((self.D > 0) & self.D.isfinite())  # a NaN is neither
        if bool(wrong.any()):
            row = int(wrong.int().argmax())
            raise InputError(
                f"row {row} of W sums to {float(self.D[row])}, as do {int(wrong.sum()) - 1} other rows that cannot be "
                "solved for: sums must be above zero and finite."
            )
        self.on_D = 1 + self.coupling * (1 - share)
        self.on_W = self.coupling * share - 1
        self._rhs_on_D = self.coupling * (1 - share)
        self._rhs_on_W = self.coupling * share

    def matvec(self, u: Tensor) -> Tensor:
        """(L + c M) u for one column (n,) or several (n, m)."""
        return self._combine(u, self.W @ u, self.on_D, self.on_W)

    def rhs(self, v: Tensor) -> Tensor:
        """The right-hand side of eq. (19), c M v."""
        return self._combine(v, self.W @ v, self._rhs_on_D, self._rhs_on_W)

    def rhs_and_residual_at(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The right-hand side, and the residual of u = v, which is -L v: both from one product with W."""
        Wv = self.W @ v
        return self._combine(v, Wv, self._rhs_on_D, self._rhs_on_W), self._combine(v, Wv, -1.0, 1.0)

    def diagonal(self) -> Tensor:
        """The diagonal of L + c M, (n,)."""
        own = _diagonal(self.W)
        return (self.D - own) + (self._rhs_on_D * self.D + self._rhs_on_W * own)  # L's part is never below zero

    def scaled(self) -> tuple[Tensor, Tensor]:
        """The matrix with its diagonal scaled to one, S^-1 (L + c M) S^-1, and S as (n,): Jacobi's preconditioner."""
        S = self.diagonal().sqrt()
        if self.W.layout == torch.strided:
            return self.to_dense() / (S[:, None] * S), S
        row, col = row_of_entry(self.W), self.W.col_indices()
        values = self.on_W * self.W.values() / (S[row] * S[col])
        values[row == col] = 1
        # 32-bit indices: the product's own library takes no others, and would convert them at every call
        return csr(self.W.crow_indices().int(), col.int(), values, len(S)), S

    def to_dense(self) -> Tensor:
        """L + c M as a dense matrix."""
        W = self.W if self.W.layout == torch.strided else self.W.to_dense()
        return self.on_D * torch.diag(self.D) + self.on_W * W

    def block(self, start: int, stop: int) -> PointIntegralSystem:
        """The system of rows start to stop alone, where W has no entry that leaves them."""
        W = self.W
        if W.layout == torch.strided:
            inner = W[start:stop, start:stop]
        else:
            crow = W.crow_indices()[start : stop + 1]
            first, last = int(crow[0]), int(crow[-1])
            inner = csr(crow - first, W.col_indices()[first:last] - start, W.values()[first:last], stop - start)
        return PointIntegralSystem(inner, self.coupling, self.mass)

    def double(self) -> PointIntegralSystem:
        """The same system in float64."""
        W = self.W
        if W.layout != torch.strided:
            return PointIntegralSystem(
                csr(W.crow_indices(), W.col_indices(), W.values().double(), len(W)), self.coupling, self.mass
            )
        return PointIntegralSystem(W.double(), self.coupling, self.mass)

    def dirichlet_energy(self, u: Tensor) -> float:
        """Sum over columns of u' L u, what the alpha update makes small."""
        return self.dirichlet_energies(u)[0]

    def dirichlet_energies(self, *several: Tensor) -> list[float]:
        """The energy of each of several u, (n,) or (n, m)."""
        W = self.W
        if W.layout == torch.strided:
            times: Callable[[Tensor], Tensor] = W.matmul
        else:
            times = multiplier(W.crow_indices(), W.col_indices(), W.values(), ENERGY_COLUMNS)
        energies = []
        for u in several:
            parts = torch.split(u if u.ndim == 2 else u[:, None], ENERGY_COLUMNS, dim=1)
            energies.append(sum(float((part * self._combine(part, times(part), 1.0, -1.0)).sum()) for part in parts))
        return energies

    def _combine(self, u: Tensor, Wu: Tensor, on_D: float, on_W: float) -> Tensor:
        """on_D * D u + on_W * W u."""
        D = self.D if u.ndim == 1 else self.D[:, None]
        if on_W == 0:
            return (on_D * D) * u
        return torch.addcmul(Wu if on_W == 1 else on_W * Wu, D, u, value=on_D)


def _diagonal(W: Tensor) -> Tensor:
    if W.layout == torch.strided:
        return W.diagonal()
    row, col = row_of_entry(W), W.col_indices()
    on_diagonal = row == col
    diagonal = torch.zeros(len(W), dtype=W.dtype, device=W.device)
    diagonal[row[on_diagonal]] = W.values()[on_diagonal]
    return diagonal
