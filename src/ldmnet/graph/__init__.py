"""From points to the sparse symmetric weight matrix W."""

from ldmnet.graph.neighbors import Neighbors, knn
from ldmnet.graph.weights import heat_weights, self_tuned_weights

__all__ = ["Neighbors", "heat_weights", "knn", "self_tuned_weights"]
