"""The log of an update: what the solver met, how far things moved, where the time went."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ldmnet.pim.solve import Solution, Status
from ldmnet.pim.system import PointIntegralSystem

# Columns that the log is about, in blocks side by side so that the rest need not be read from memory. For 54,000
# samples of 500 features the log takes 0.04 s, on all columns 1.04 s, where the solve takes 0.37 s (one thread).
LOGGED_BLOCKS, BLOCK = 4, 4

SCALARS = (
    "penalty",
    "strength",
    "mu",
    "lambda_tilde",
    "move",
    "dual",
    "energy",
    "residual",
    "solver_steps",
    "recall",
    "dimension",
)


@dataclass(frozen=True)
class Update:
    """The log of one `step`: what the solver met, how far things moved, where the time went.

    Attributes:
        status: the solver's worst status over the feature columns.
        solver_steps: products with the matrix.
        residual: the largest relative residual over the columns.
        negative_curvature: columns that stopped at negative curvature.
        move: |alpha - f| over |f - mean f|, on 16 of the feature columns, four evenly spaced blocks of four.
        dual: |Z|.
        energy: Dirichlet energy of alpha over that of f, on the same columns.
        seconds: by phase: graph, solve, other (Z, v, copies, this log).
        recall: the share of the true neighbours in the graph, on a sample; 1 where the search is exact.
        mu: the weight of the penalty until the next update.
        lambda_tilde: the strength of the manifold term in this one.
        strength: the same without a unit, with ramp and brake; None for the paper's numbers.
        penalty: the mean penalty since the last update; None where there was none.
        dimension: the mean dimension within groups of the graph's points, see `ldmnet.dimension.live`; None where there
            is no graph.
    """

    status: str
    solver_steps: int
    residual: float
    negative_curvature: int
    move: float
    dual: float
    energy: float
    seconds: dict[str, float]
    recall: float = 1.0
    mu: float = 0.0
    lambda_tilde: float = 0.0
    strength: float | None = None
    penalty: float | None = None
    dimension: float | None = None

    def scalars(self) -> dict[str, float]:
        """The numbers by name, as `ldmnet/mu`, for loggers.

        `ldmnet/status` is 0 where the solve converged, 1 at the step limit, 2 at negative curvature; `ldmnet/seconds`
        is the whole update's. What is None is left out: the first update has no penalty yet.
        """
        numbers = {name: getattr(self, name) for name in SCALARS}
        numbers |= {"status": list(Status.__members__).index(self.status), "seconds": sum(self.seconds.values())}
        return {f"ldmnet/{name}": float(value) for name, value in numbers.items() if value is not None}


def describe(
    f: Tensor,
    Z: Tensor,
    target: Tensor,
    solution: Solution,
    system: PointIntegralSystem | None,
    seconds: dict[str, float],
    recall: float = 1.0,
) -> Update:
    """The log entry of an update from features f and dual Z to target = alpha + Z.

    `system` is None for the control.
    """
    before, after = logged(f), logged(target) - logged(Z)
    around = before - before.mean(0)
    spread = float(torch.linalg.vector_norm(around))
    energy = 1.0
    if system is not None:  # L is blind to a column's mean, rounding is not
        now, then = system.dirichlet_energies(after - after.mean(0), around)
        energy = now / max(then, torch.finfo(f.dtype).tiny)
    return Update(
        status=solution.status.name,
        solver_steps=solution.steps,
        residual=float(solution.residual.max()),
        negative_curvature=solution.negative_curvature,
        move=float(torch.linalg.vector_norm(after - before)) / max(spread, 1e-30),
        dual=float(torch.linalg.vector_norm(Z)),
        energy=energy,
        seconds=seconds,
        recall=recall,
    )


def logged(features: Tensor) -> Tensor:
    """The columns that the log is about, (n, 16) or all that there are."""
    last = features.shape[1] - BLOCK
    if last <= (LOGGED_BLOCKS - 1) * BLOCK:
        return features
    starts = [last * block // (LOGGED_BLOCKS - 1) for block in range(LOGGED_BLOCKS)]
    return torch.cat([features[:, start : start + BLOCK] for start in starts], 1)
