"""One update (graph and solve) against other ways to compute the same thing, on the same points.

    python benchmarks/update.py --n 7000,54000
    python benchmarks/update.py --n 54000 --paper     also the paper's own recipe, which takes minutes

The neighbours: a k-d tree (the paper's choice), scikit-learn's brute force, FAISS and PyNNDescent where installed
(`pip install faiss-cpu pynndescent`). The solve: SciPy's conjugate gradients column by column (the paper's choice), and
a dense factorisation.

Features move between updates, so every search starts with features that it has not seen: each round moves all of them
by 0.01 of a standard normal. A library builds its index anew; ours goes on from its last search, except where it says
"first search".
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from measure import arguments, medians, seconds, show
from points import class_points

from ldmnet import PointIntegralSystem, self_tuned_weights
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import Neighbors, NeighborSearch
from ldmnet.pim import solve_grouped
from ldmnet.records.figures import pyplot

K = 20


def by_class(points: np.ndarray, groups: Groups, search: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Neighbours within each class by some library; rows in sorted order."""
    index = np.empty((len(points), K), np.int64)
    for start, size in zip(groups.starts, groups.sizes, strict=True):
        index[start : start + size] = search(points[start : start + size])[:, 1:] + start
    return index


def searches() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    from sklearn.neighbors import NearestNeighbors

    def brute(p: np.ndarray) -> np.ndarray:
        search = NearestNeighbors(n_neighbors=K + 1, algorithm="brute", n_jobs=-1).fit(p)
        return search.kneighbors(p, return_distance=False)

    found: dict[str, Callable[[np.ndarray], np.ndarray]] = {"scikit-learn brute force": brute}
    try:
        import faiss

        def flat(p: np.ndarray) -> np.ndarray:
            index = faiss.IndexFlatL2(p.shape[1])
            index.add(p)
            return index.search(p, K + 1)[1]

        def hnsw(p: np.ndarray) -> np.ndarray:
            index = faiss.IndexHNSWFlat(p.shape[1], 32)
            index.add(p)
            return index.search(p, K + 1)[1]

        def ivf(p: np.ndarray) -> np.ndarray:
            index = faiss.IndexIVFFlat(faiss.IndexFlatL2(p.shape[1]), p.shape[1], max(1, len(p) // 400))
            index.train(p)
            index.add(p)
            index.nprobe = 8
            return index.search(p, K + 1)[1]

        found |= {"FAISS flat": flat, "FAISS HNSW (approximate)": hnsw, "FAISS IVF (approximate)": ivf}
    except ImportError:
        pass
    try:
        import pynndescent

        def descent(p: np.ndarray) -> np.ndarray:
            return pynndescent.NNDescent(p, n_neighbors=K + 1).neighbor_graph[0]

        found["PyNNDescent (approximate)"] = descent
    except ImportError:
        pass
    return found


def kd_tree(p: np.ndarray) -> np.ndarray:
    """The paper's search."""
    from sklearn.neighbors import KDTree

    return KDTree(p).query(p, K + 1, return_distance=False)


def scipy_columns(system: PointIntegralSystem, v: torch.Tensor) -> None:
    """The paper's solve: conjugate gradients on one column after another."""
    W = system.W
    n = len(W)
    parts = (W.values().numpy(), W.col_indices().numpy(), W.crow_indices().numpy())
    matrix = system.on_D * scipy.sparse.diags(system.D.numpy()) + system.on_W * scipy.sparse.csr_matrix(parts, (n, n))
    jacobi = scipy.sparse.diags(1 / matrix.diagonal())
    b = system.rhs(v).numpy()
    for j in range(v.shape[1]):
        scipy.sparse.linalg.cg(matrix, b[:, j], x0=v[:, j].numpy(), rtol=1e-5, maxiter=50, M=jacobi)


def dense_by_class(system: PointIntegralSystem, v: torch.Tensor, groups: Groups) -> None:
    for start, size in zip(groups.starts, groups.sizes, strict=True):
        rows = slice(start, start + size)
        A = system.block(start, start + size).to_dense()
        torch.cholesky_solve(system.rhs(v)[rows], torch.linalg.cholesky(A))


def recall(index: np.ndarray, truth: Neighbors) -> float:
    exact = truth.index.numpy()
    return float(np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(index, exact, strict=True)]))


class Moving:
    """Features in sorted order that move a little whenever they are asked for."""

    def __init__(self, inputs: torch.Tensor, features: torch.Tensor, groups: Groups) -> None:
        self._inputs, self.features = inputs[groups.order], features[groups.order]
        self._draw = torch.Generator().manual_seed(1)

    def moved(self) -> torch.Tensor:
        """The features after a move."""
        self.features = self.features + 0.01 * torch.randn(self.features.shape, generator=self._draw)
        return self.features

    def points(self) -> np.ndarray:
        """Inputs and features side by side, as they are now."""
        return torch.cat([self._inputs, self.features], 1).numpy()


def first_searches(n: int, rounds: int) -> list[dict[str, Any]]:
    """A first search on the features alone, as without numbers, against FAISS's exact one; in turns."""
    _, features, labels = class_points(n)
    groups, found = Groups(labels), searches()
    sorted_features = features[groups.order].contiguous()
    works = {"ldmnet, exact": lambda: NeighborSearch(groups, K)(sorted_features)}
    if "FAISS flat" in found:
        works["FAISS flat"] = lambda: by_class(sorted_features.numpy(), groups, found["FAISS flat"])
    taken = medians(works, rounds)
    return [
        {"n": n, "what": f"first search, features alone: {name}", "seconds": spent, "times": rounds}
        | {"ldmnet is faster by": spent / taken["ldmnet, exact"]}
        for name, spent in taken.items()
    ]


def measured(n: int, rounds: int, paper: bool, coupling: float) -> list[dict[str, Any]]:
    inputs, features, labels = class_points(n)
    groups = Groups(labels)
    moving = Moving(inputs, features, groups)
    exact, auto = NeighborSearch(groups, K, inputs), NeighborSearch(groups, K, inputs, kind="auto")
    first = {"exact": seconds(lambda: exact(moving.features)), "auto": seconds(lambda: auto(moving.features))}
    found = searches()
    taken: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[..., Any], *args: Any) -> Any:
        started = time.perf_counter()
        result = work(*args)
        taken.setdefault(name, []).append(time.perf_counter() - started)
        return result

    recalls: dict[str, float] = {}
    for _ in range(rounds):
        now = moving.moved()
        truth = timed("neighbours: ldmnet, exact", exact, now)
        recalls["neighbours: ldmnet, auto"] = recall(timed("neighbours: ldmnet, auto", auto, now).index.numpy(), truth)
        points = moving.points()
        for name, how in found.items():
            if n > 20_000 and "HNSW" in name and len(taken.get(f"neighbours: {name}", [])) >= 1:
                continue  # minutes: once is enough to see
            index = timed(f"neighbours: {name}", by_class, points, groups, how)
            recalls[f"neighbours: {name}"] = recall(index, truth)
        W = timed("weights: ldmnet", self_tuned_weights, truth)
        system = PointIntegralSystem(W, coupling, "lumped")
        timed("solve: ldmnet", solve_grouped, system, now, groups)
        timed("solve: SciPy cg by column", scipy_columns, system, now)
        if max(groups.sizes) <= 1000:
            timed("solve: dense factorisation by class", dense_by_class, system, now, groups)
    median = {name: statistics.median(values) for name, values in taken.items()}
    rows = []
    for name, spent in median.items():
        row: dict[str, Any] = {"n": n, "what": name, "seconds": spent, "times": len(taken[name])}
        kind = name.split(":")[0]
        if kind != "weights":
            ours = "solve: ldmnet" if kind == "solve" else "neighbours: ldmnet, exact"
            if recalls.get(name, 1.0) < 0.9999:
                ours = "neighbours: ldmnet, auto"
            row["ldmnet is faster by"] = spent / median[ours]
        if name in recalls:
            row["recall"] = recalls[name]
        rows.append(row)
    for kind, spent in first.items():
        rows.append({"n": n, "what": f"neighbours: ldmnet, {kind}, first search", "seconds": spent, "times": 1})
    ours = median["neighbours: ldmnet, exact"] + median["weights: ldmnet"] + median["solve: ldmnet"]
    rows.append({"n": n, "what": "update: ldmnet, exact", "seconds": ours, "times": rounds})
    if paper:
        points = moving.points()
        recipe = seconds(lambda: by_class(points, groups, kd_tree)) + median["solve: SciPy cg by column"]
        name = "update: the paper's recipe (k-d tree, cg by column)"
        rows.append({"n": n, "what": name, "seconds": recipe, "times": 1, "ldmnet is faster by": recipe / ours})
    return rows


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Bars of seconds, one panel a size."""
    plt = pyplot()
    sizes = list(dict.fromkeys(row["n"] for row in rows))
    most = max(sum(row["n"] == n for row in rows) for n in sizes)
    figure, panels = plt.subplots(
        1, len(sizes), figsize=(7 * len(sizes), 0.34 * most + 1), layout="constrained", squeeze=False
    )
    for n, panel in zip(sizes, panels[0], strict=True):
        here = [row for row in rows if row["n"] == n][::-1]
        names = [
            row["what"] + (f", recall {row['recall']:.3f}" if row.get("recall", 1) < 0.9999 else "") for row in here
        ]
        colours = ["tab:blue" if "ldmnet" in row["what"] else "tab:gray" for row in here]
        panel.barh(names, [row["seconds"] for row in here], color=colours)
        panel.set(xscale="log", xlabel="seconds", title=f"{n:,} points of 784 + 500 coordinates")
        for place, row in enumerate(here):
            panel.text(row["seconds"], place, f" {row['seconds']:.3g}", va="center", fontsize=8)
        panel.margins(x=0.15)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], [7000, 54000], rounds=5)
    parser.add_argument("--paper", action="store_true", help="also time the paper's recipe, once")
    parser.add_argument("--coupling", type=float, default=10.0, help="mu / lambda_tilde")
    parser.add_argument("--first", action="store_true", help="only a first search on the features alone")
    parser.add_argument("--plot", default=None, help="a picture to write")
    options = parser.parse_args()
    rows = [row for n in options.n for row in first_searches(n, options.rounds)]
    if not options.first:
        rows = [row for n in options.n for row in measured(n, options.rounds, options.paper, options.coupling)] + rows
    if options.plot:
        draw(rows, options.plot)
    show("One update against the alternatives", rows, options.json)


if __name__ == "__main__":
    main()
