"""Rows of a comparison that are no network: logistic regression, SVM, random forest, Laplace learning.

The first three are scikit-learn's (extra `sklearn`); the number behind a colon is their strength: `svm:10`. Laplace
learning is transductive: it sees the inputs that it is tested on.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldmnet.errors import InputError, missing_extra
from ldmnet.graph import knn, self_tuned_weights

TRANSDUCTIVE = ("laplace",)
Pair = tuple[Tensor, Tensor]
Scores = NDArray[np.float64]


class Row(NamedTuple):
    """What gives the scores of test inputs, the module that it imports, and the strengths that it can have."""

    scores: Callable[[Pair, Tensor, float, int], Scores]
    module: str
    strength: float
    low: float
    high: float


def _by(model: Any, train: Pair, test: Tensor) -> Scores:
    """The probabilities of every class by an estimator of scikit-learn; classes that it has not seen have none."""
    x, y = (part.numpy() for part in train)
    fitted = model.fit(x, y)
    found = np.zeros((len(test), int(y.max()) + 1))
    found[:, fitted.classes_] = fitted.predict_proba(test.numpy())
    return found


def _logistic(train: Pair, test: Tensor, strength: float, seed: int) -> Scores:
    from sklearn.linear_model import LogisticRegression

    return _by(LogisticRegression(C=strength, max_iter=1000), train, test)


def _svm(train: Pair, test: Tensor, strength: float, seed: int) -> Scores:
    from sklearn.svm import SVC

    x, y = (part.numpy() for part in train)
    model = SVC(C=strength, decision_function_shape="ovr").fit(x, y)
    found = np.full((len(test), int(y.max()) + 1), -np.inf)
    found[np.arange(len(test)), model.predict(test.numpy())] = 0.0  # SVMs vote: they have no probabilities
    scores: Scores = np.exp(found)
    return scores


def _forest(train: Pair, test: Tensor, strength: float, seed: int) -> Scores:
    from sklearn.ensemble import RandomForestClassifier

    leaf = max(1, round(strength))
    return _by(RandomForestClassifier(300, min_samples_leaf=leaf, random_state=seed, n_jobs=1), train, test)


def laplace_learning(train: Pair, test: Tensor, neighbors: float = 10, seed: int = 0) -> Scores:
    """Labels that are harmonic on the graph of all points (Zhu, Ghahramani and Lafferty, 2003), (n_test, n_classes).

    A part of the graph that no label reaches gets the classes' shares.
    """
    from scipy.sparse import coo_matrix, diags, identity
    from scipy.sparse.linalg import spsolve

    x, y = train
    points = torch.cat([x, test]).double()
    k = min(round(neighbors), len(points) - 1)
    weights = self_tuned_weights(knn(points, k), min(10, k)).to_sparse().coalesce()
    (rows, columns), values = weights.indices().numpy(), weights.values().numpy()
    off = rows != columns
    W = coo_matrix((values[off], (rows[off], columns[off])), shape=(len(points), len(points))).tocsr()
    n, prior = len(x), np.bincount(y.numpy(), minlength=int(y.max()) + 1) / len(y)
    L = (diags(np.asarray(W.sum(1)).ravel()) - W).tocsr()
    tiny = 1e-9 * max(1.0, float(L.diagonal().max()))  # holds what no label reaches
    known = np.eye(len(prior))[y.numpy()]
    right = W[n:, :n] @ known + tiny * prior
    found: Scores = spsolve((L[n:, n:] + tiny * identity(len(test))).tocsc(), right).reshape(len(test), -1)
    return found


CLASSICAL = {
    "logistic": Row(_logistic, "sklearn.linear_model", 1.0, 0.001, 100.0),
    "svm": Row(_svm, "sklearn.svm", 1.0, 0.1, 1000.0),
    "forest": Row(_forest, "sklearn.ensemble", 1.0, 1.0, 10.0),
    "laplace": Row(laplace_learning, "scipy.sparse.linalg", 10.0, 4.0, 40.0),
}


def classical(name: str) -> tuple[str, float] | None:
    """The row's word and strength in a name such as "svm" or "svm:10"; None where it is no such row."""
    word, colon, number = name.partition(":")
    if word not in CLASSICAL:
        return None
    try:
        value = float(number) if colon else CLASSICAL[word].strength
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"the strength of {word} must be a number above zero, got {number!r}.")
    return word, value


def measure_classical(name: str, train: Pair, test: Pair | None, seed: int) -> dict[str, Any]:
    """The fields of a record: the accuracy in percent and the seconds of fitting and answering."""
    found = classical(name)
    assert found is not None
    word, strength = found
    if test is None:
        raise InputError(f"{word} is a row of a comparison: it is tested on samples held out, and there are none.")
    try:
        importlib.import_module(CLASSICAL[word].module)  # a second or more, once per process: no part of the fit
    except ImportError as error:
        raise missing_extra("scikit-learn 1.6 or newer", "sklearn") from error
    started = time.perf_counter()
    scores = CLASSICAL[word].scores((train[0].flatten(1), train[1]), test[0].flatten(1), strength, seed)
    right = float((scores.argmax(1) == test[1].numpy()).mean())
    seconds = {"train": round(time.perf_counter() - started, 2)}
    more = {"transductive": True} if word in TRANSDUCTIVE else {}
    return {"accuracy": round(100 * right, 4), "seconds": seconds, **more}
