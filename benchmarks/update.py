"""One update (graph and solve) against other ways to compute the same thing, on the same points.

    python benchmarks/update.py --n 7000,54000
    python benchmarks/update.py --n 54000 --paper     also the paper's own recipe, which takes minutes

The neighbours: a k-d tree (the paper's choice), scikit-learn's brute force, FAISS and PyNNDescent where installed.
The solve: SciPy's conjugate gradients column by column (the paper's choice), and a dense factorisation.
"""

from __future__ import annotations

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


def measured(n: int, rounds: int, paper: bool, coupling: float) -> list[dict[str, Any]]:
    inputs, features, labels = class_points(n)
    groups = Groups(labels)
    search = NeighborSearch(groups, K, inputs)
    sorted_features = features[groups.order]
    points = torch.cat([inputs, features], 1)[groups.order].numpy()
    truth = search(sorted_features)
    system = PointIntegralSystem(self_tuned_weights(truth), coupling, "lumped")

    def ours_graph() -> None:
        self_tuned_weights(search(sorted_features))

    def ours_solve() -> None:
        solve_grouped(system, sorted_features, groups)

    works: dict[str, Callable[[], Any]] = {"neighbours: ldmnet": lambda: search(sorted_features)}
    found = searches()
    for name, how in found.items():
        works[f"neighbours: {name}"] = lambda how=how: by_class(points, groups, how)
    works |= {
        "graph: ldmnet": ours_graph,
        "solve: ldmnet": ours_solve,
        "solve: SciPy cg by column": lambda: scipy_columns(system, sorted_features),
    }
    if max(groups.sizes) <= 1000:
        works["solve: dense factorisation by class"] = lambda: dense_by_class(system, sorted_features, groups)
    taken = medians(works, rounds)
    rows = []
    for name, spent in taken.items():
        kind = name.split(":")[0]
        row = {"n": n, "what": name, "seconds": spent, "ldmnet is faster by": spent / taken[f"{kind}: ldmnet"]}
        if (how := found.get(name.removeprefix("neighbours: "))) and "approximate" in name:
            row["recall"] = recall(by_class(points, groups, how), truth)
        rows.append(row)
    if paper:
        recipe = seconds(lambda: by_class(points, groups, kd_tree)) + taken["solve: SciPy cg by column"]
        ours = taken["graph: ldmnet"] + taken["solve: ldmnet"]
        rows.append({"n": n, "what": "update: ldmnet", "seconds": ours, "ldmnet is faster by": 1.0})
        name = "update: the paper's recipe (k-d tree, cg by column)"
        rows.append({"n": n, "what": name, "seconds": recipe, "ldmnet is faster by": recipe / ours})
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], [7000, 54000], rounds=5)
    parser.add_argument("--paper", action="store_true", help="also time the paper's recipe, once")
    parser.add_argument("--coupling", type=float, default=10.0, help="mu / lambda_tilde")
    options = parser.parse_args()
    rows = [row for n in options.n for row in measured(n, options.rounds, options.paper, options.coupling)]
    show("One update against the alternatives", rows, options.json)


if __name__ == "__main__":
    main()
