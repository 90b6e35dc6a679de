"""A scikit-learn classifier: `make_pipeline(StandardScaler(), LDMClassifier())`. Needs the extra `sklearn`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ldmnet.errors import InputError, missing_extra
from ldmnet.integrations.untuned import HIDDEN, OWN, STARTS, Start, Strength, net_for, untuned_method, untuned_net
from ldmnet.seeds import derive_seed
from ldmnet.training.features import sweep
from ldmnet.training.loop import fit
from ldmnet.training.settings import TrainSettings

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise missing_extra("scikit-learn 1.6 or newer", "sklearn") from error

Factory = Callable[[int, int], nn.Module]


class LDMClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):
    """A neural network that LDMNet keeps from overfitting, as a scikit-learn classifier and transformer.

    Inputs are standardised inside, `mu` and `lambda_tilde` are set by a rule, and no sample is held back: the
    defaults need neither a scaler nor tuning.

    Args:
        module: a network, of which a copy is trained from the weights it has; or a function that makes one from the
            number of inputs and the number of classes; or None: the paper's networks for images of 28 x 28 (grey)
            and 3 x 32 x 32, an MLP for anything else.
        layer: the name of the network's feature layer.
        hidden: the MLP's layers; the last one gives the features.
        mu: weight of the penalty; "auto" takes a fifteenth of the largest that SGD can follow.
        lambda_tilde: strength of the manifold term; "auto" is five times mu, zero switches the graph off.
        epochs: passes over the training set; the learning rate is divided by ten after two thirds of them. None
            takes 100 for the network of colour images, else 40.
        lr: the learning rate; None takes 0.02 for the MLP, else 0.01.
        momentum: of SGD.
        batch_size: samples a step.
        n_neighbors: neighbours a point in the graph, within its class.
        standardize: whether to give the inputs mean 0 and deviation 1, by the training set's statistics.
        random_state: of the initial weights and the batches.
        device: where to train.
        verbose: whether to show progress.

    Attributes:
        classes_: the labels.
        module_: the trained network.
        mu_: the weight that was used.
        lambda_tilde_: the strength that was used.
        history_: one `Epoch` an epoch.
        regularizer_: with its targets and its log; it is as large as the training set and is not pickled.
        input_shape_: the shape of one sample.
        n_features_in_: the length of its first axis.
    """

    def __init__(
        self,
        module: nn.Module | Factory | None = None,
        *,
        layer: str = "features",
        hidden: tuple[int, ...] = HIDDEN,
        mu: Strength = "auto",
        lambda_tilde: Strength = "auto",
        epochs: int | None = None,
        lr: float | None = None,
        momentum: float = 0.9,
        batch_size: int = 32,
        n_neighbors: int = 20,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.module = module
        self.layer = layer
        self.hidden = hidden
        self.mu = mu
        self.lambda_tilde = lambda_tilde
        self.epochs = epochs
        self.lr = lr
        self.momentum = momentum
        self.batch_size = batch_size
        self.n_neighbors = n_neighbors
        self.standardize = standardize
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> LDMClassifier:
        """Train on samples (n, ...) and their labels (n,)."""
        samples, targets = validate_data(self, X, y, dtype=np.float64, allow_nd=True)
        check_classification_targets(targets)
        self.classes_, labels = np.unique(targets, return_inverse=True)
        self.input_shape_: tuple[int, ...] = samples.shape[1:]
        self._statistics = _statistics(samples) if self.standardize else (np.zeros(()), np.ones(()))
        seed = _seed(self.random_state)
        self.module_ = self._build(seed).to(self.device)
        inputs = self._inputs(samples)
        start = self._start()
        settings = TrainSettings(
            epochs=start.epochs if self.epochs is None else self.epochs,
            lr=start.lr if self.lr is None else self.lr,
            momentum=self.momentum,
            batch_size=self.batch_size,
            seed=seed,
        )
        method = untuned_method(
            self.module_,
            inputs,
            settings,
            name="control" if self.lambda_tilde == 0 else "ldmnet",
            mu=self.mu,
            lambda_tilde=self.lambda_tilde,
            layer=self.layer,
            n_neighbors=self.n_neighbors,
        )
        data = inputs, torch.from_numpy(labels)
        trained = fit(self.module_, data, method=method, settings=settings, layer=self.layer, progress=self.verbose)
        assert trained.regularizer is not None
        self.mu_, self.lambda_tilde_ = trained.regularizer.mu, trained.regularizer.lambda_tilde
        self.history_, self.regularizer_ = trained.history, trained.regularizer
        self._n_features_out = trained.regularizer.target.shape[1]
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of every class, (n, n_classes), in the order of `classes_`."""
        inputs = self._checked(X)
        scores: NDArray[np.float64] = sweep(self.module_, inputs).double().softmax(1).cpu().numpy()
        return scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of every sample."""
        best = self.predict_proba(X).argmax(1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """The features of every sample, (n, d_feat)."""
        inputs = self._checked(X)
        features: NDArray[np.float32] = sweep(self.module_, inputs, layer=self.layer).cpu().numpy()
        return features

    def _checked(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, allow_nd=True, reset=False)
        if samples.shape[1:] != self.input_shape_:
            raise InputError(f"a sample has shape {samples.shape[1:]} but in training it had {self.input_shape_}.")
        return self._inputs(samples)

    def _inputs(self, samples: NDArray[np.float64]) -> Tensor:
        """Standardised, in single precision, where the network is; one grey image gets its channel."""
        mean, deviation = self._statistics
        inputs = torch.as_tensor((samples - mean) / deviation, dtype=torch.float32, device=self.device)
        return inputs.reshape(len(inputs), *self._net_shape())

    def _net_shape(self) -> tuple[int, ...]:
        """A sample's shape as the network sees it: a grey image gets its channel."""
        grey = len(self.input_shape_) == 2 and self.module is None
        return (1, *self.input_shape_) if grey else self.input_shape_

    def _start(self) -> Start:
        return OWN if self.module is not None else STARTS[net_for(self._net_shape())]

    def _build(self, seed: int) -> nn.Module:
        if isinstance(self.module, nn.Module):
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


def _statistics(samples: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean of every entry; the deviation of each column of a table, but one for all pixels of images."""
    mean = samples.mean(0)
    deviation = np.sqrt(np.square(samples - mean).mean(axis=0 if samples.ndim == 2 else None))
    constant = deviation <= 1e-12 * (np.abs(mean) if samples.ndim == 2 else np.abs(mean).max())  # but for rounding
    return mean, np.where(constant, 1.0, deviation)


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
