"""A scikit-learn classifier: `make_pipeline(StandardScaler(), LDMClassifier())`. Needs the extra `sklearn`."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ldmnet.errors import InputError, missing_extra
from ldmnet.integrations.untuned import (
    HIDDEN,
    OWN,
    STARTS,
    augmentation_for,
    batch_for,
    net_for,
    untuned_net,
)
from ldmnet.seeds import derive_seed
from ldmnet.training.augment import Augment
from ldmnet.training.ensemble import feature_layer, fit_network, network_of
from ldmnet.training.features import sweep
from ldmnet.training.methods import METHODS, Method
from ldmnet.training.optimizers import Factory as OptimizerFactory
from ldmnet.training.optimizers import Schedule
from ldmnet.training.rivals import ENSEMBLE, parse
from ldmnet.training.samples import first_weight
from ldmnet.training.settings import OptimizerName, ScheduleName, TrainSettings
from ldmnet.training.standardize import Standardize

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise missing_extra("scikit-learn 1.6 or newer", "sklearn") from error

Factory = Callable[[int, int], nn.Module]
NUMBERS: dict[str, dict[str, Any]] = {"weight_decay": {"weight_decay_w": 0.005}, "dropout": {"dropout": 0.5}}


class LDMClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):
    """A neural network that LDMNet keeps from overfitting, as a scikit-learn classifier and transformer.

    Inputs are standardised inside, the strength has no unit, and no sample is held back: the defaults need neither a
    scaler nor tuning. Where labels are whole numbers of two or more classes and -1, the samples
    with -1 have no label, as in scikit-learn's semi-supervised estimators.

    Args:
        module: a network, of which a copy is trained from the weights it has; or a function that makes one from the
            number of inputs and the number of classes; or None: a residual network for images (n, height, width) or
            (n, channels, height, width) of 16 pixels or more per side, an MLP for anything else.
        layer: the name of the network's feature layer.
        hidden: the MLP's layers; the last one gives the features.
        method: the regularisation by name, as in `Method`: "ldmnet", "none", "mixup", "ldmnet+label_smoothing:0.2",
            "ensemble" and so on. The method weight_decay has w = 0.005 and dropout a rate of 0.5.
        strength: weight of the pull, without a unit; None takes the default, see `ManifoldSettings`.
        coupling: the pull over the graph; None takes the default, infinity switches the graph off.
        epochs: passes over the training set; None takes 60 for the residual network, else 40.
        lr: the learning rate; None takes 0.05 for the residual network, 0.02 for the MLP, else 0.01, but for "adam" and
            "adamw" 0.001.
        momentum: of SGD.
        batch_size: samples per step; None takes 50 for the residual network, less for fewer than 400 images, else 32.
        optimizer: "sgd", "adam", "adamw" or a function as in `fit`; None is SGD.
        schedule: of the learning rate: "step", "cosine", "constant" or a function as in `fit`; None takes cosine for
            the residual network, else step: divided by ten after two thirds of the epochs.
        weight_decay: torch's; None takes 0.005 for the residual network, else zero.
        clip_norm: the largest norm of the gradient; None does not clip.
        augment: "shift", "flip", "shift,flip", "" or a function as in `fit`; None takes, for the residual network,
            "shift" for grey images and "shift,flip" for others, else none.
        patience: stop after so many epochs without a better validation accuracy and keep the best weights; None trains
            on all samples to the end.
        validation_share: the share of every class, at least one sample, that is held back to validate on if there is
            patience.
        class_weight: weights of the classes in the softmax loss by label, "balanced", or None for equal ones.
        n_neighbors: neighbours per point in the graph, within its class.
        standardize: whether to give the inputs mean 0 and deviation 1, by the training set's statistics.
        random_state: of the initial weights and the batches.
        device: where to train.
        verbose: whether to show progress.

    Attributes:
        classes_: the labels.
        module_: the trained network.
        mu_: the weight of the penalty at the end, None without LDMNet.
        lambda_tilde_: the strength of the manifold term at the end, likewise.
        history_: one `Epoch` per epoch.
        best_epoch_: the epoch whose weights were kept, where there is patience, else None.
        regularizer_: with its targets and its log, None without LDMNet; it is as large as the training set and is not
            pickled.
        input_shape_: the shape of one sample.
        n_features_in_: the length of its first axis.
    """

    def __init__(
        self,
        module: nn.Module | Factory | None = None,
        *,
        layer: str = "features",
        hidden: tuple[int, ...] = HIDDEN,
        method: str = "ldmnet",
        strength: float | None = None,
        coupling: float | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        momentum: float = 0.9,
        batch_size: int | None = None,
        optimizer: OptimizerName | OptimizerFactory | None = None,
        schedule: ScheduleName | Schedule | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        augment: str | Augment | None = None,
        patience: int | None = None,
        validation_share: float = 0.1,
        class_weight: dict[Any, float] | str | None = None,
        n_neighbors: int = 20,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.module = module
        self.layer = layer
        self.hidden = hidden
        self.method = method
        self.strength = strength
        self.coupling = coupling
        self.epochs = epochs
        self.lr = lr
        self.momentum = momentum
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.augment = augment
        self.patience = patience
        self.validation_share = validation_share
        self.class_weight = class_weight
        self.n_neighbors = n_neighbors
        self.standardize = standardize
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> LDMClassifier:
        """Train on samples (n, ...) and their labels (n,); weights (n,) are the samples' in the softmax loss."""
        samples, targets = validate_data(self, X, y, dtype=np.float64, allow_nd=True)
        check_classification_targets(targets)
        self.classes_, labels = _classes(targets)
        weights = self._weights(samples, targets, labels, sample_weight)
        self.input_shape_: tuple[int, ...] = samples.shape[1:]
        seed = _seed(self.random_state)
        train, held = self._split(labels, seed)
        self._standardize = Standardize.fit(torch.from_numpy(samples[train])) if self.standardize else None
        method = self._method()
        self.module_ = network_of(method, self._build, seed, self.layer).to(self.device)
        inputs, codes = self._inputs(samples[train]), torch.from_numpy(labels)
        settings = self._settings(seed, len(train))
        own: dict[str, Any] = {"optimizer": self.optimizer, "schedule": self.schedule, "augment": self.augment}
        trained = fit_network(
            self.module_,
            (inputs, codes[train]),
            method=method,
            settings=settings,
            layer=self.layer,
            sample_weight=None if weights is None else torch.from_numpy(weights[train]),
            validation=(self._inputs(samples[held]), codes[held]) if len(held) else None,
            progress=self.verbose,
            **{name: value for name, value in own.items() if callable(value)},
        )
        self.history_, self.regularizer_ = trained.history, trained.regularizer
        self.mu_ = None if trained.regularizer is None else trained.regularizer.mu
        self.lambda_tilde_ = None if trained.regularizer is None else trained.regularizer.lambda_tilde
        self.best_epoch_ = trained.best_epoch
        layer = feature_layer(self.module_, self.layer)
        self._n_features_out = sweep(self.module_, inputs[:1], layer=layer, whole=True).shape[1]
        return self

    def _method(self) -> Method:
        """The method with its numbers; an infinite coupling switches LDMNet's graph off, which is the control."""
        base, _ = parse(self.method, METHODS)
        off = self.coupling == math.inf and base == "ldmnet"
        return Method(
            self.method.replace("ldmnet", "control") if off else self.method,
            strength=self.strength,
            coupling=None if off else self.coupling,
            n_neighbors=self.n_neighbors,
            sigma_neighbor=min(self.n_neighbors, Method.sigma_neighbor),
            **NUMBERS.get(base, {}),
        )

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of every class, (n, n_classes), in the order of `classes_`."""
        inputs = self._checked(X)
        scores: NDArray[np.float64] = sweep(self.module_, inputs, whole=True).double().softmax(1).cpu().numpy()
        return scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of every sample."""
        best = self.predict_proba(X).argmax(1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """The features of every sample, (n, d_feat)."""
        inputs = self._checked(X)
        layer = feature_layer(self.module_, self.layer)
        features: NDArray[np.float32] = sweep(self.module_, inputs, layer=layer, whole=True).cpu().numpy()
        return features

    def _checked(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, allow_nd=True, reset=False)
        if samples.shape[1:] != self.input_shape_:
            raise InputError(f"a sample has shape {samples.shape[1:]} but in training it had {self.input_shape_}.")
        return self._inputs(samples)

    def _inputs(self, samples: NDArray[np.float64]) -> Tensor:
        """Standardised, in the precision of the network and where it is; one grey image gets its channel."""
        x = torch.tensor(samples)  # a copy: the array may be read-only
        inputs = x.float() if self._standardize is None else self._standardize(x)
        weight = first_weight(self.module_)
        return inputs.to(weight.device, weight.dtype).reshape(len(inputs), *self._net_shape())

    def _net_shape(self) -> tuple[int, ...]:
        """A sample's shape as the network sees it: a grey image gets its channel."""
        grey = len(self.input_shape_) == 2 and self.module is None
        return (1, *self.input_shape_) if grey else self.input_shape_

    def _settings(self, seed: int, n: int) -> TrainSettings:
        """The network's own settings with what is given in their place; functions go to `fit` as they are."""
        shape = self._net_shape()
        name = net_for(shape) if self.module is None else ""
        augment = augmentation_for(name, shape) if self.augment is None else self.augment
        return STARTS.get(name, OWN).settings(
            epochs=self.epochs,
            lr=self.lr,
            momentum=self.momentum,
            batch_size=self.batch_size or batch_for(name, n),
            optimizer=None if callable(self.optimizer) else self.optimizer,
            schedule=None if callable(self.schedule) else self.schedule,
            weight_decay=0.0 if callable(self.optimizer) and self.weight_decay is None else self.weight_decay,
            clip_norm=self.clip_norm,
            augment="" if callable(augment) else augment,
            patience=self.patience,
            seed=seed,
        )

    def _split(self, labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which samples are trained on, and which of the labelled are held back to validate on."""
        everything = np.arange(len(labels))
        if self.patience is None:
            return everything, everything[:0]
        if not 0 < self.validation_share < 1:
            raise InputError(f"validation_share must be above 0 and below 1, got {self.validation_share}.")
        draw, held = np.random.default_rng(derive_seed(seed, "validation")), []
        for c in range(len(self.classes_)):
            members = draw.permutation(everything[labels == c])
            held.append(members[: min(max(1, round(self.validation_share * len(members))), len(members) - 1)])
        return np.setdiff1d(everything, np.concatenate(held)), np.sort(np.concatenate(held))

    def _weights(
        self, samples: NDArray[Any], targets: NDArray[Any], labels: NDArray[np.int64], given: ArrayLike | None
    ) -> NDArray[np.float64] | None:
        """The weight of each sample in the loss; None where all are alike."""
        if given is None and self.class_weight is None:
            return None
        weights = np.array(_check_sample_weight(given, samples, dtype=np.float64, ensure_non_negative=True))  # a copy
        labelled = labels >= 0
        weights[labelled] *= compute_sample_weight(self.class_weight, targets[labelled])
        return weights

    def _build(self, seed: int) -> nn.Module:
        if isinstance(self.module, nn.Module):
            if ENSEMBLE in self._method().rivals:
                raise InputError(
                    "the members of an ensemble start from different weights: give a function that makes the network, "
                    "not the network."
                )
            return copy.deepcopy(self.module)
        n_classes = len(self.classes_)
        if self.module is None:
            shape = self._net_shape()
            return untuned_net(net_for(shape), shape, n_classes, seed, hidden=self.hidden)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            return self.module(int(np.prod(self.input_shape_)), n_classes)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "regularizer_"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # the network computes in single precision
        tags.non_deterministic = self.random_state is None
        return tags


def _classes(targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes, and each label's place among them; -1 beside two or more whole numbers is no class but no label."""
    classes = np.unique(targets)
    whole = classes.dtype.kind == "i" or (classes.dtype.kind == "f" and bool((classes == classes.round()).all()))
    if whole and -1 in classes and len(classes) > 2:
        warnings.warn(
            f"{int((targets == -1).sum())} of {len(targets)} samples are labelled -1, which means that they have no "
            "label. If -1 is a class of yours, give it another number.",
            stacklevel=3,
        )
        classes = classes[classes != -1]
        return classes, np.where(targets == -1, -1, np.searchsorted(classes, targets))
    return classes, np.searchsorted(classes, targets)


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
