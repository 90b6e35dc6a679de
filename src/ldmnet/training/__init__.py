"""Training: sweeps of features, the methods, and Algorithm 1."""

from ldmnet.training.batches import IndexedDataset
from ldmnet.training.features import FeatureTap, evaluate, sweep
from ldmnet.training.loop import Fit, fit
from ldmnet.training.methods import METHODS, Method
from ldmnet.training.settings import TrainSettings

__all__ = [
    "METHODS",
    "FeatureTap",
    "Fit",
    "IndexedDataset",
    "Method",
    "TrainSettings",
    "evaluate",
    "fit",
    "sweep",
]
