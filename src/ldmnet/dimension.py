"""The dimension of a point cloud: Theorem 1's, two independent estimates, and how its variance is spread.

    from ldmnet.dimension import estimate, spread

    found = estimate(features, "theorem1", groups=labels)  # neighbours are sought within a group
    found.value, found.error, found.by_group[3].value
    spread(features, groups=labels).participation.value

Every estimate is the dimension at the distance of the neighbours that it looks at: with few of them the noise's, if
there is some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.graph.groups import Groups, checked_groups
from ldmnet.graph.neighbors import knn
from ldmnet.graph.points import at_least_single, checked_points
from ldmnet.seeds import generator

DimensionMethod = Literal["theorem1", "two_nn", "mle"]
Influence: TypeAlias = tuple[float, Tensor]  # a dimension, and what each point adds to its deviation from the truth
# Both chosen by `benchmarks/dimension.py choose`: see docs/dimension.md, "The correction".
NEIGHBORS = 10
SHARPNESS = 8.0  # R^2 / 4t: at the farthest neighbour, at distance R, the heat kernel is exp(-8)
DISCARDED = 0.1  # TwoNN: the share of the largest ratios that is left out, as its authors do
FEWEST = 5  # distinct points of a group
EXPLAINED = 0.95  # of the variance, by the principal components that are counted
FOLDS = 10  # of the jackknife
SINGLY = 100  # points: so many are left out one by one, of more a tenth at a time
SMALL = 3  # neighbourhoods: in a group of no more points than so many hold, they overlap too much to tell an error
MOST = 1e6  # dimensions: beyond, distances differ by rounding alone


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty.

    Attributes:
        value: the estimate; with groups, their mean, weighted by their points.
        error: one standard error, from this one sample; it does not hold the bias.
        n_points: how many points it rests on; those of a dimension are different ones.
        by_group: the same for every group, by its label; empty where there are no groups.
    """

    value: float
    error: float
    n_points: int
    by_group: dict[Hashable, Estimate] = field(default_factory=dict)


def estimate(
    points: Any, method: DimensionMethod = "theorem1", groups: Any = None, *, n_neighbors: int = NEIGHBORS
) -> Estimate:
    """Estimate the dimension of the manifold that points lie on.

    A group whose points are all the same has dimension 0. Points that occur several times in a group count once.

    Args:
        points: (n, d) floating point, a tensor or an array.
        method: "theorem1", the sum of the squared gradients of the coordinate functions by the point integral method,
            corrected for the kernel's end at the farthest neighbour; "mle", maximum likelihood after Levina and Bickel,
            with the points' inverses averaged; or "two_nn", from the two nearest neighbours alone.
        groups: (n,) labels: neighbours are sought within a group, and each has its own estimate. Points labelled -1 are
            left out. None takes all points as one cloud.
        n_neighbors: neighbours per point, the scale that is looked at; a smaller group takes all others.

    Raises:
        InputError: values that are not finite, groups of fewer than five different points, or distances that no
            dimension explains, as in a set of points that are all equally far from each other.
    """
    if method not in get_args(DimensionMethod):
        raise InputError(f"method must be {', '.join(map(repr, get_args(DimensionMethod)))}, got {method!r}.")
    if not isinstance(n_neighbors, Integral) or n_neighbors < 3:
        raise InputError(f"n_neighbors must be a whole number of at least 3, got {n_neighbors!r}.")
    cloud, parts, names = _sorted(points, groups)
    k = 2 if method == "two_nn" else n_neighbors
    clouds = zip(torch.split(cloud, parts.sizes), names, strict=True)
    found = [_of_cloud(part, METHODS[method], k, name) for part, name in clouds]
    if groups is None:
        return found[0]
    share = np.array(parts.sizes) / len(cloud)
    value = float(share @ [each.value for each in found])
    error = math.hypot(*(share * [each.error for each in found]))
    return Estimate(value, error, sum(each.n_points for each in found), dict(zip(names, found, strict=True)))


def _of_cloud(points: Tensor, method: Callable[[Tensor], Influence], k: int, name: Hashable) -> Estimate:
    """The dimension of one group's points, (m, d)."""
    nearest = knn(points, min(k, len(points) - 1))
    if bool((nearest.distance[:, 0] == 0).any()):
        points = torch.unique(points, dim=0)
        if len(points) == 1:
            return Estimate(0.0, 0.0, 1)
        _check_enough(len(points), name)
        nearest = knn(points, min(k, len(points) - 1))
    k = nearest.index.shape[1]
    value, influence = method(nearest.distance)
    if not 0 < value < MOST:
        where = "" if name is None else f" in group {name!r}"
        raise InputError(f"the {k} nearest neighbours of every point{where} are equally far: no dimension fits that.")
    if len(points) <= SMALL * (k + 1):
        return Estimate(value, _jackknife(points, method, k), len(points))
    # Points near each other share neighbours, and their deviations go together. Each point gets the deviations of all
    # whose neighbourhood it is in: the sum of squares, over k + 1, weighs a pair by the part that they share.
    reached = influence.clone().index_add_(0, nearest.index.flatten(), influence.repeat_interleave(k))
    return Estimate(value, float((reached.square().sum() / (k + 1)).sqrt()), len(points))


def _jackknife(points: Tensor, method: Callable[[Tensor], Influence], k: int) -> float:
    """The error that leaving out every point once tells, or every tenth of many; up to twice too much."""
    n = len(points)
    parts = n if n <= SINGLY else FOLDS
    size = math.ceil(n / parts)
    part = torch.randperm(n, generator=generator(0, "jackknife")).to(points.device) % parts
    near = knn(points, min(n - 1, k + size))  # of which k are left, whichever part goes
    repeats = []
    for left_out in range(parts):
        rows = part != left_out
        distance = near.distance[rows].masked_fill(part[near.index[rows]] == left_out, math.inf).sort(1).values
        repeats.append(method(distance[:, : min(k, n - 1 - size)])[0])
    return float(np.sqrt((parts - 1) * np.var(repeats))) if all(0 < v < MOST for v in repeats) else math.inf


# ---- the three methods, from (n, k) distances to the neighbours, ascending


def _theorem1(distance: Tensor) -> Influence:
    """Theorem 1 by the point integral method.

    With the heat kernel R_t of eq. (20), |grad u|^2 at p is sum_q R_t (u(p) - u(q))^2 / (2 t sum_q R_t), so that over
    all coordinate functions it is sum_q R_t |p - q|^2 / (2 t sum_q R_t). t goes with the distance to the farthest
    neighbour, where the sum ends.
    """
    squared = (distance[:, :-1] / distance[:, -1:]).square()  # |p - q|^2 / R^2
    kernel = torch.exp(-SHARPNESS * squared)  # R_t, with 4 t = R^2 / SHARPNESS
    gradients, mass = 2 * SHARPNESS * (kernel * squared).sum(1), kernel.sum(1)
    raw = float(gradients.sum() / mass.sum())
    value = _untruncated(raw)
    slope = (_truncated(1.001 * value) - _truncated(0.999 * value)) / (0.002 * value)
    return value, (gradients - raw * mass) / mass.sum() / max(slope, 1e-30)


def _truncated(dimension: float) -> float:
    """The sum of squared gradients that the kernel finds in a ball of flat space, in place of its dimension d.

    With a = d / 2, c = `SHARPNESS` and the lower incomplete gamma function it is 2 gamma(a + 1, c) / gamma(a, c), or
    d - 2 c^a exp(-c) / gamma(a, c): the last term is what is lost where the kernel ends.
    """
    series = []  # gamma(a, c) / (c^a exp(-c)), a sum of positive terms, for a + 1 and for a
    for a in (dimension / 2 + 1, dimension / 2):
        total = term = 1 / a
        while term > 1e-17 * total:
            a += 1
            term *= SHARPNESS / a
            total += term
        series.append(total)
    return 2 * SHARPNESS * series[0] / series[1]


def _untruncated(raw: float) -> float:
    """The dimension in which a ball gives this sum: `_truncated` solved by bisection; `MOST` where none does."""
    low, high = 1e-6, MOST
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _truncated(middle) < raw else (low, middle)
    return high


def _mle(distance: Tensor) -> Influence:
    """Maximum likelihood, Levina and Bickel (2004), the points' inverses averaged as MacKay and Ghahramani do."""
    inverse = torch.log(distance[:, -1:] / distance[:, :-1]).sum(1) / (distance.shape[1] - 1)
    mean = float(inverse.mean())
    value = 1 / mean if mean > 0 else math.inf
    return value, (mean - inverse) * (value**2 / len(inverse))


def _two_nn(distance: Tensor) -> Influence:
    """TwoNN, Facco et al. (2017): the slope of -log(1 - F) over log(r2 / r1), through the origin.

    The influences are those of maximum likelihood for the same ratios, with the largest cut off.
    """
    log_ratio = torch.log(distance[:, 1] / distance[:, 0])
    n = len(log_ratio)
    kept = int(n * (1 - DISCARDED))
    x = log_ratio.sort().values[:kept]
    y = -torch.log1p(-torch.arange(1, kept + 1, dtype=x.dtype, device=x.device) / n)
    below = float(x @ x)
    value = float(x @ y) / below if below > 0 else math.inf
    influence = value * ((log_ratio <= x[-1]).to(x) - value * log_ratio.clamp(max=float(x[-1]))) / kept
    return value, influence - influence.mean()


METHODS: dict[str, Callable[[Tensor], Influence]] = {"theorem1": _theorem1, "two_nn": _two_nn, "mle": _mle}


def live(distance: Tensor, sizes: Sequence[int], n_neighbors: int = NEIGHBORS) -> float | None:
    """The mean dimension within groups by "mle", from the neighbours that a graph has found anyway.

    Args:
        distance: (n, k) distances to the neighbours, ascending, inf where there is none; rows sorted by group.
        sizes: how many rows each group has.
        n_neighbors: how many of the neighbours to use.

    Returns:
        The mean over groups, weighted by their points. Points with fewer than three neighbours at a distance above
        zero do not count; None where no point does.
    """
    n, sums = inverse_sums(distance, sizes, n_neighbors)
    there = sums > 0
    return float((n.square() / sums)[there].sum() / n[there].sum()) if bool(there.any()) else None


def inverse_sums(distance: Tensor, sizes: Sequence[int], n_neighbors: int = NEIGHBORS) -> tuple[Tensor, Tensor]:
    """By group, how many points count and the sum of one over their dimension; the arguments of `live`."""
    near = distance[:, :n_neighbors]
    usable = near.isfinite() & (near > 0)
    count = usable.sum(1)
    logs = torch.where(usable, near.double(), 1).log()
    farthest = torch.where(usable, logs, -torch.inf).amax(1)
    inverse = (count * farthest - logs.sum(1)) / (count - 1)  # sum of log(R / r) over k - 1, as in `_mle`
    counted = count >= 3
    which = torch.repeat_interleave(torch.tensor(sizes, device=distance.device))[counted]
    n = torch.bincount(which, minlength=len(sizes)).double()
    return n, torch.zeros_like(n).index_add_(0, which, inverse[counted])


# ---- the variance


@dataclass(frozen=True)
class Spread:
    """How a cloud's variance is spread, each number with its uncertainty, by group, and for the groups together.

    Attributes:
        within_share: the variance around the group's mean over the variance around the mean of all.
        participation: (sum of eigenvalues)^2 / sum of their squares of the group's covariance, m for m equal ones.
        components: how many principal components hold 95 % of the group's variance.
    """

    within_share: Estimate
    participation: Estimate
    components: Estimate


def spread(points: Any, groups: Any = None, *, seed: int = 0) -> Spread:
    """Measure how the variance of points is spread, with the errors of a jackknife that leaves out a tenth at a time.

    A group whose points are all the same has participation 0 and 0 components. Neither number exceeds the number of
    points less one: compare clouds of equal size.

    Args:
        points: (n, d) floating point, a tensor or an array.
        groups: (n,) labels; points labelled -1 are left out. None takes all points as one cloud.
        seed: decides which points are left out together.
    """
    cloud, parts, names = _sorted(points, groups)
    if bool((cloud == cloud[0]).all()):
        raise InputError(f"the {len(cloud)} points are all the same: there is no variance.")
    cloud = cloud / cloud.abs().max()  # squares of the numbers themselves may be zero or infinite
    order = [torch.randperm(size, generator=generator(seed, f"jackknife {i}")) for i, size in enumerate(parts.sizes)]
    fold = torch.cat(order).to(cloud.device) % FOLDS
    repeats = []
    for kept in (fold != one for one in range(FOLDS)):
        repeats.append(_variances(cloud[kept], [int(part.sum()) for part in torch.split(kept, parts.sizes)]))
    errors = (torch.stack(repeats).var(0, correction=0) * (FOLDS - 1)).sqrt()
    out = []
    for value, error in zip(_variances(cloud, parts.sizes).tolist(), errors.tolist(), strict=True):
        found = {name: Estimate(*each) for name, *each in zip(names, value, error, parts.sizes, strict=False)}
        out.append(Estimate(value[-1], error[-1], len(cloud), {} if groups is None else found))
    return Spread(*out)


def _variances(points: Tensor, sizes: Sequence[int]) -> Tensor:
    """(3, groups + 1): share, participation and components of rows sorted by group; last the groups' weighted mean."""
    total = float((points - points.mean(0)).square().sum(1).mean())
    out = []
    for part in torch.split(points, list(sizes)):
        if bool((part == part[0]).all()):
            out.append([0.0, 0.0, 0.0])
            continue
        centred = part - part.mean(0)
        widest = centred.abs().max()  # beside a far larger group the squares of a small one's numbers are zero
        centred /= widest
        gram = (centred.T @ centred if part.shape[0] > part.shape[1] else centred @ centred.T) / len(part)
        eigenvalues = torch.linalg.eigvalsh(gram).flip(0).clamp(min=0)
        variance = float(eigenvalues.sum())
        enough = int((eigenvalues.cumsum(0) < EXPLAINED * variance).sum()) + 1
        participation = variance**2 / float(eigenvalues.square().sum())
        out.append([variance / total * float(widest) ** 2, participation, float(enough)])
    table = torch.tensor(out, dtype=torch.float64).T
    return torch.cat([table, table @ torch.tensor(sizes, dtype=torch.float64)[:, None] / len(points)], 1)


# ---- points and groups


def _sorted(points: Any, groups: Any) -> tuple[Tensor, Groups, list[Hashable]]:
    """The points in double precision sorted by group, the groups, and their labels as they were given."""
    values = points if isinstance(points, Tensor) else torch.as_tensor(points)
    cloud = checked_points(at_least_single(values), "points").double()
    if not cloud.shape[1]:
        raise InputError(f"points must have shape (n, d) with d at least 1, got {tuple(cloud.shape)}.")
    parts = Groups(checked_groups(groups, len(cloud), cloud.device))
    if not parts.sizes:
        raise InputError("every point of groups is labelled -1: there is nothing to estimate.")
    names: list[Hashable] = [None]
    if groups is not None:
        given = groups.tolist() if isinstance(groups, Tensor) else np.asarray(groups).tolist()
        names = [given[parts.order[start]] for start in parts.starts]
    for size, name in zip(parts.sizes, names, strict=True):
        _check_enough(size, name)
    return cloud[parts.order], parts, names


def _check_enough(n: int, name: Hashable) -> None:
    if n < FEWEST:
        whose = "there are" if name is None else f"group {name!r} has"
        raise InputError(f"{whose} {n} different points: a dimension needs at least {FEWEST}.")
