"""Low-dimensional-manifold regularisation of neural networks (LDMNet, CVPR 2018), on PyTorch.

The pipeline, once every M = 2 epochs: `sweep` the features of the training set; `knn` on the points (input,
feature) within each class; `self_tuned_weights` make the sparse matrix W; `PointIntegralSystem` and `pcg` solve
for all features at once; `ManifoldRegularizer` keeps the result and pulls the features toward it through
`penalty`, with one dual variable per sample. `fit` runs the whole of it.
"""

from ldmnet.graph import heat_weights, knn, self_tuned_weights
from ldmnet.pim import PointIntegralSystem, Solution, Status, pcg
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.settings import ManifoldSettings
from ldmnet.training import Fit, IndexedDataset, Method, TrainSettings, fit, sweep
from ldmnet.updates import Update

__version__ = "0.1.0"

__all__ = [
    "Fit",
    "IndexedDataset",
    "ManifoldRegularizer",
    "ManifoldSettings",
    "Method",
    "PointIntegralSystem",
    "Solution",
    "Status",
    "TrainSettings",
    "Update",
    "fit",
    "heat_weights",
    "knn",
    "pcg",
    "self_tuned_weights",
    "sweep",
]
