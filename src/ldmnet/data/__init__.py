"""Data: readers of files, data sets by name, subsets by seed, and pixels to inputs.

split = load("mnist")
train, validation = subset_and_validation(split.y_train, per_class=50, seed=0)
prepare = fit_preprocess(split.x_train[train], "mean_image")
x, y = prepare(split.x_train[train]), split.y_train[train]
"""

from ldmnet.data.preprocess import fit_preprocess
from ldmnet.data.readers import read_cifar_batch, read_idx, read_svhn_mat
from ldmnet.data.samples import Samples
from ldmnet.data.sources import NAMES, Split, class_names, load
from ldmnet.data.subsets import indices_hash, stratified, subset_and_validation
from ldmnet.data.userdata import read_samples

__all__ = [
    "NAMES",
    "Samples",
    "Split",
    "class_names",
    "fit_preprocess",
    "indices_hash",
    "load",
    "read_cifar_batch",
    "read_idx",
    "read_samples",
    "read_svhn_mat",
    "stratified",
    "subset_and_validation",
]
