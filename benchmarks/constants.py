"""The constants of `graph` and `pim` that decide how fast an update is: each at other values, on the work it decides.

    python benchmarks/constants.py                  all of them, some ten minutes
    python benchmarks/constants.py --only triangle

Every row has the time at another value over that at the value in force, in turns. None of these constants changes what
is computed, but for rounding; those of the approximate search change which neighbours are found, and `recall` is the
share of the true ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import torch
from measure import arguments, medians, show
from points import class_points

from ldmnet.graph import approximate, neighbors, sparse, weights
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import Neighbors, NeighborSearch
from ldmnet.pim import PointIntegralSystem, chebyshev, grouped, solve, solve_grouped, system

MB = 2**20
COUPLING = 0.2  # 0.01 / 0.05, as for most rows of the paper


class Trial(NamedTuple):
    """A constant, what it is set to in turn, and the work that is timed; `recall` tells what the work found."""

    module: ModuleType
    name: str
    values: tuple[float, ...]
    on: str
    work: Callable[[], Any]
    recall: Callable[[], float] | None = None


def graph(n: int, n_classes: int) -> tuple[Neighbors, Groups, torch.Tensor]:
    _, features, labels = class_points(n, n_classes)
    groups = Groups(labels)
    f = groups.gather(features)
    return NeighborSearch(groups, 20, None)(f), groups, f


def solving(n: int, n_classes: int, coupling: float = COUPLING, dense_up_to: int | None = None) -> Callable[[], Any]:
    nearest, groups, f = graph(n, n_classes)
    operator = PointIntegralSystem(weights.self_tuned_weights(nearest, 10), coupling, "lumped")

    def work() -> None:
        with_value(grouped, "DENSE_UP_TO", dense_up_to, lambda: solve_grouped(operator, f, groups))

    return work


def with_value(module: ModuleType, name: str, value: float | None, work: Callable[[], Any]) -> Any:
    """What work gives while a constant has another value; None leaves it."""
    before = getattr(module, name)
    setattr(module, name, before if value is None else value)
    try:
        return work()
    finally:
        setattr(module, name, before)


def trials() -> Iterator[Callable[[], list[Trial]]]:
    """Groups of trials, each made when it is due: graphs take memory."""

    def dense() -> list[Trial]:
        name = "DENSE_UP_TO"
        return [Trial(grouped, name, (0,), f"10 classes of {m}, iterated", solving(10 * m, 10)) for m in (50, 500)] + [
            Trial(grouped, name, (10**9,), "2 classes of 4000, factorised", with_cost(solving(8000, 2)))
        ]

    def with_cost(work: Callable[[], Any]) -> Callable[[], Any]:
        forced = lambda: with_value(grouped, "STEP_COST", 10**9, work)  # noqa: E731
        return lambda: (forced if grouped.DENSE_UP_TO > 10**8 else work)()

    def step_cost() -> list[Trial]:
        values = (0, 10**9)
        return [Trial(grouped, "STEP_COST", values, f"10 classes of {m}", solving(10 * m, 10)) for m in (500, 1000)]

    def inverse() -> list[Trial]:
        values = (0, 10**9)
        return [Trial(grouped, "INVERT_UP_TO", values, f"10 classes of {m}", solving(10 * m, 10)) for m in (300, 1000)]

    def triangle() -> list[Trial]:
        return [Trial(grouped, "TRIANGLE", (16, 32, 128, 2048), "10 classes of 1000", solving(10_000, 10))]

    def iteration() -> list[Trial]:
        trial = []
        for c in (0.02, 0.1, 0.2):
            work, other = solving(8000, 2, c), 1e9 if c >= chebyshev.COUPLING_FROM else 0
            trial.append(Trial(chebyshev, "COUPLING_FROM", (other,), f"2 classes of 4000, coupling {c}", work))
        return trial

    def chunks() -> list[Trial]:
        sizes = (MB // 2, 2 * MB, 24 * MB, 10**9)
        return [
            Trial(chebyshev, "CHUNK_BYTES", sizes, "2 classes of 4000", solving(8000, 2)),
            Trial(solve, "CHUNK_BYTES", sizes, "2 classes of 4000, coupling 0.02", solving(8000, 2, 0.02)),
        ]

    def products() -> list[Trial]:
        nearest, _, f = graph(8000, 2)
        W = weights.self_tuned_weights(nearest, 10)
        parts, operator = (W.crow_indices(), W.col_indices(), W.values()), PointIntegralSystem(W, COUPLING, "lumped")
        wide, narrow = f, f[:, :64].contiguous()
        return [
            Trial(sparse, "WIDE", (10**9,), "500 columns", lambda: sparse.multiplier(*parts, 500)(wide)),
            Trial(sparse, "WIDE", (0,), "64 columns", lambda: sparse.multiplier(*parts, 64)(narrow)),
            Trial(system, "ENERGY_COLUMNS", (4, 64, 512), "n = 8000", lambda: operator.dirichlet_energies(f)),
        ]

    def blocks() -> list[Trial]:
        nearest, groups, _ = graph(54_000, 10)
        work = lambda: weights.self_tuned_weights(nearest, 10, cuts=groups.starts[1:])  # noqa: E731
        return [Trial(weights, "BLOCK", (1, 10**9), "10 classes of 5400", work)]

    def rough() -> list[Trial]:
        _, f, _ = class_points(12_000, 1, d_feat=50)
        groups = Groups(torch.zeros(len(f), dtype=torch.int64))
        truth = NeighborSearch(groups, 20, None)(f).distance[:, -1:]

        def search() -> Neighbors:
            return with_value(neighbors, "AUTO_FROM", 1, lambda: NeighborSearch(groups, 20, None, kind="auto")(f))

        def recall() -> float:
            return float((search().distance <= truth * (1 + approximate.SAME)).double().mean())

        tried = {"LISTED": (24, 96), "RECALL": (0.9, 0.99), "CELL": (256, 1024), "PROBES": (4, 16), "KEPT": (12, 48)}
        tried |= {"HOP": (7, 20), "ROUNDS": (1, 20), "SAMPLE": (64,), "FULL_UP_TO": (10**9,)}
        return [
            Trial(approximate, name, values, "one class of 12000", search, recall) for name, values in tried.items()
        ]

    yield from (dense, step_cost, inverse, triangle, iteration, chunks, products, blocks, rough)


def main() -> None:
    parser = arguments(__doc__, [])
    parser.add_argument("--only", help="one group of them: dense, step_cost, inverse, triangle, iteration, chunks, ...")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for made in trials():
        if args.only not in (None, made.__name__):
            continue
        for trial in made():
            now = getattr(trial.module, trial.name)
            works = {
                str(value): lambda trial=trial, value=value: with_value(trial.module, trial.name, value, trial.work)
                for value in (now, *trial.values)
            }
            taken = medians(works, args.rounds)
            place = f"{trial.module.__name__.removeprefix('ldmnet.')}.{trial.name}"
            for value in trial.values:
                row = {"constant": place, "in force": now, "tried": value, "on": trial.on}
                row |= {"time": taken[str(value)] / taken[str(now)]}
                if trial.recall is not None:
                    found = [with_value(trial.module, trial.name, v, trial.recall) for v in (now, value)]
                    row |= {"recall in force": found[0], "recall": found[1]}
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    show("Time over that at the value in force", rows, args.json)


if __name__ == "__main__":
    main()
