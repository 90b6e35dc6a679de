"""Numbers: graph, system, solve and step at every scale, against the tests' dense reference, or with a sentence."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import torch

from attack.cases import Outcome, draw_of, in_batches, short
from ldmnet import ManifoldRegularizer, PointIntegralSystem, Status, knn, pcg, self_tuned_weights
from ldmnet.errors import InputError, NumericalWarning
from ldmnet.graph.groups import Groups
from ldmnet.pim import solve_grouped

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import reference

TYPES = {torch.float32: (-36, 15, 3e-4), torch.float64: (-290, 140, 1e-7)}  # powers of ten, and the tolerance
K, SIGMA = 8, 4


class Numbers:
    """The part's cases: neighbours with weights, solutions, and steps of the regulariser in turn."""

    name = "numbers"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.checks = {"neighbours and W": neighbours, "solve": solved, "pcg": by_pcg, "step": stepped}

    def close(self) -> None:
        """Nothing is left behind."""

    def run(self, start: int, stop: int) -> Iterator[Outcome]:
        """The outcomes of some cases."""
        yield from in_batches(self._case, start, stop, size=2000)

    def _case(self, case: int) -> tuple[str, str, str]:
        kind = list(self.checks)[case % len(self.checks)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", NumericalWarning)
            try:
                return kind, *self.checks[kind](draw_of(self.seed, self.name, case))
            except InputError:
                return kind, "refused", ""
            except NumericalWarning:
                return kind, "told", ""
            except BaseException as error:
                return kind, "not our error", short(error)


def cloud(draw: Random, n: int, d: int) -> np.ndarray:
    """Points of one of several kinds: even, in clumps, on a line, with duplicates, far from zero, of odd columns."""
    rng = np.random.default_rng(draw.getrandbits(32))
    points, kind = rng.normal(size=(n, d)), draw.randrange(7)
    if kind == 1:
        points = points * 1e-3 + rng.integers(0, 3, (n, 1))
    elif kind == 2:
        points = points[:, :1] * rng.normal(size=(1, d)) + 1e-3 * points
    elif kind == 3:
        points[rng.integers(0, n, max(1, n // 8))] = points[0]
    elif kind == 4:
        points = points + 10.0 ** draw.uniform(0, 2)
    elif kind == 5:
        points = points * 10.0 ** rng.uniform(-2, 2, d)
    elif kind == 6:
        points = rng.standard_t(2, size=(n, d))
    return points


def _scaled(draw: Random, points: np.ndarray, dtype: torch.dtype) -> tuple[torch.Tensor, np.ndarray]:
    """Points at a scale that the type may hold, and the same as the reference sees them: brought back to about one."""
    low, high, _ = TYPES[dtype]
    made = (torch.from_numpy(points) * 10.0 ** draw.uniform(low, high)).to(dtype)
    largest = float(made.abs().max())
    return made, made.double().numpy() / largest if largest else made.double().numpy()


def neighbours(draw: Random) -> tuple[str, str]:
    """Distances and weights."""
    dtype = draw.choice(list(TYPES))
    n = draw.randrange(2, 40)
    tol = TYPES[dtype][2]
    made, plain = _scaled(draw, cloud(draw, n, draw.randrange(1, 12)), dtype)
    found = knn(made, K)
    size = float(made.abs().max()) or 1.0
    truth = np.array([[d for d, _ in row] for row in reference.nearest(plain, K)])
    ours = found.distance.double().numpy()[:, : truth.shape[1]] / size
    off = float(np.abs(ours - truth).max(initial=0.0))
    if not off <= tol * float(truth.max(initial=1e-30)):
        return "wrong", f"{dtype}, {n} points: a distance is off by {off:.2e} of {truth.max():.2e}"
    W = self_tuned_weights(found, SIGMA).to_dense().double().numpy()
    if (
        not np.isfinite(W).all()
        or np.abs(W - W.T).max() > 1e-5
        or (np.diag(W) != 1).any()
        or W.min() < 0
        or W.max() > 1
    ):
        return "wrong", f"{dtype}, {n} points: W is not symmetric with a diagonal of one and entries from 0 to 1"
    return "right", ""


def _system(draw: Random, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, np.ndarray, float]:
    n, m = draw.randrange(2, 40), draw.randrange(1, 5)
    W = self_tuned_weights(knn(torch.from_numpy(cloud(draw, n, 3)).to(dtype), K), SIGMA)
    v, plain = _scaled(draw, cloud(draw, n, m), dtype)
    return W, v, plain, 10.0 ** draw.uniform(-6, 6)


def _judged(
    W: torch.Tensor, plain: np.ndarray, v: torch.Tensor, c: float, found: object, dtype: torch.dtype
) -> tuple[str, str]:
    truth = reference.solve(W.to_dense().double().numpy(), plain, c, "lumped")
    value = found.value.double().numpy() / (float(v.abs().max()) or 1.0)  # type: ignore[attr-defined]
    off = float(np.abs(value - truth).max())
    status = found.status  # type: ignore[attr-defined]
    if not np.isfinite(value).all():
        return "wrong", f"{dtype}, c {c:.1e}: not finite, {status.name}"
    # the residual is of the order of c, so the solution's own error grows as 1 / c
    most = max(TYPES[dtype][2], 1e-5) * (1 + 1 / c) * 3
    if status is Status.CONVERGED and not off <= most:
        return "wrong", f"{dtype}, {len(v)} rows, c {c:.1e}: off by {off:.2e} and said to be CONVERGED"
    return ("right", "") if status is Status.CONVERGED else ("told", "")


def solved(draw: Random) -> tuple[str, str]:
    """The solution of eq. (19), lumped, by groups."""
    dtype = draw.choice(list(TYPES))
    W, v, plain, c = _system(draw, dtype)
    found = solve_grouped(PointIntegralSystem(W, c, "lumped"), v, Groups(torch.zeros(len(v))), max_steps=3000)
    return _judged(W, plain, v, c, found, dtype)


def by_pcg(draw: Random) -> tuple[str, str]:
    """The solution of eq. (19), by conjugate gradients."""
    dtype = draw.choice(list(TYPES))
    W, v, plain, c = _system(draw, dtype)
    return _judged(W, plain, v, c, pcg(PointIntegralSystem(W, c, "lumped"), v, max_steps=3000), dtype)


def stepped(draw: Random) -> tuple[str, str]:
    """Two steps of the regulariser with the paper's numbers, in float64."""
    n, d = draw.randrange(6, 30), draw.randrange(1, 5)
    groups = np.array([draw.randrange(3) for _ in range(n)])
    inputs = np.random.default_rng(draw.getrandbits(32)).normal(size=(n, 3))
    mass, mu, lambda_tilde = (
        draw.choice(("lumped", "consistent")),
        10.0 ** draw.uniform(-3, 1),
        10.0 ** draw.uniform(-2, 1),
    )
    if mass == "consistent":
        lambda_tilde = max(lambda_tilde, mu / 2)  # beyond, eq. (19) is not definite
    options = {"mu": mu, "lambda_tilde": lambda_tilde, "mass": mass, "n_neighbors": K, "sigma_neighbor": SIGMA}
    ours = ManifoldRegularizer(torch.from_numpy(inputs), groups, tol=1e-12, max_steps=1000, **options)
    theirs = reference.ReferenceLDMNet(inputs, groups, mu, lambda_tilde, mass, K, SIGMA)
    for step in range(2):
        f = np.random.default_rng(draw.getrandbits(32)).normal(size=(n, d))
        ours.step(torch.from_numpy(f))
        off = float(np.abs(ours.target.numpy() - theirs.step(f)).max())
        if not off <= 1e-7 * (1 + lambda_tilde / mu):
            return "wrong", f"step {step + 1}, {mass}, c {mu / lambda_tilde:.1e}: target off by {off:.2e}"
    return "right", ""
