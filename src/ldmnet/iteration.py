"""One outer iteration of Algorithm 1 in one process: dual step, graph, alpha."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ldmnet.dimension import live
from ldmnet.errors import InputError
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch
from ldmnet.graph.points import at_least_single, checked_points
from ldmnet.graph.weights import self_tuned_weights
from ldmnet.pim.grouped import solve_grouped
from ldmnet.pim.solve import Solution, Status
from ldmnet.pim.system import PointIntegralSystem
from ldmnet.settings import ManifoldSettings
from ldmnet.strength import Pull, measured
from ldmnet.updates import Update, describe

TOL, ROUGH_TOL = 1e-5, 1e-3  # of the solve, where neighbours are exact and where they are not


@dataclass(frozen=True, eq=False)
class Iteration:
    """What an outer iteration leaves behind.

    Attributes:
        target: (m, d_feat) alpha + Z, rows sorted by group.
        Z: (m, d_feat) the dual variable, likewise; None where it is not kept.
        solution: how the solve ended.
        update: the log's entry.
    """

    target: Tensor
    Z: Tensor | None
    solution: Solution
    update: Update


def tolerance(settings: ManifoldSettings, *, rough: bool) -> float:
    """The relative residual at which a column counts as solved; `rough` where neighbours are found approximately."""
    if settings.tol is not None:
        return settings.tol
    return ROUGH_TOL if rough or settings.mu is None else TOL


def checked_features(features: Tensor, n: int | None, width: int | None) -> Tensor:
    """The features (n, d_feat) of all samples, checked; n and d_feat are `n` and `width` where these are known."""
    f = checked_points(at_least_single(features), "features")
    if n is not None and len(f) != n:
        raise InputError(
            f"features has {len(f)} rows but the regularizer was built for {n} samples. Pass the "
            "features of the whole training set, in its order (see ldmnet.sweep)."
        )
    if width is not None and f.shape[1] != width:
        raise InputError(
            f"features has {f.shape[1]} columns but the last step had {width}. "
            "Pass the same layer's features at every step."
        )
    return f


def iterate(
    f: Tensor, before: Tensor | None, groups: Groups, search: NeighborSearch, pull: Pull, settings: ManifoldSettings
) -> Iteration:
    """One outer iteration.

    Args:
        f: (m, d_feat) features, rows sorted by group.
        before: (m, d_feat) the last target; None before the first update.
        groups: the partition.
        search: finds the neighbours.
        pull: mu and lambda_tilde, which are updated.
        settings: the options.
    """
    pulled = pull.mu > 0
    penalty = pull.update(lambda: measured(f, groups))
    Z = torch.zeros_like(f)
    if before is not None and pulled:
        Z = before - f  # eq. (8): Z + alpha - f
    v = f - Z  # eq. (22)
    system, dimension, started = None, None, time.perf_counter()
    if not pull.smooths:
        built = started
        solution = Solution(v, Status.CONVERGED, 0, f.new_zeros(1))  # L = 0: the control
        target = f.clone()  # alpha + Z = v + Z, without the rounding
    else:
        nearest = search(f)  # Algorithm 1, step 1
        W = self_tuned_weights(nearest, settings.sigma_neighbor, cuts=groups.starts[1:])
        dimension = live(nearest.distance, groups.sizes)
        system = PointIntegralSystem(W, pull.coupling, settings.mass)
        built = time.perf_counter()
        tol = tolerance(settings, rough=search.approximates)
        solution = solve_grouped(system, v, groups, tol=tol, max_steps=settings.max_steps, overwrite=True)  # step 2
        target = solution.value.add_(Z)  # in place: no second array of this size
    seconds = {"graph": built - started, "solve": time.perf_counter() - built}
    update = describe(f, Z, target, solution, system, seconds, search.recall)
    update = replace(update, mu=pull.mu, lambda_tilde=pull.lambda_tilde, strength=pull.current)
    return Iteration(target, Z, solution, replace(update, penalty=penalty, dimension=dimension))
