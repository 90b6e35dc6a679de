"""When training has run away: how that is told, and which of lr and mu was too large."""

from __future__ import annotations

import copy
import warnings

from torch import Tensor

from ldmnet.errors import DivergenceError, InputError, NumericalWarning
from ldmnet.training.stability import stable_mu
from ldmnet.training.state import Run


def some(rows: Tensor) -> Tensor:
    """About a hundred rows, evenly spaced."""
    return rows[:: max(1, len(rows) // 100)]


def check_alive(run: Run, features: Tensor) -> None:
    """Say so if the features no longer depend on the input: a step was too large, though nothing is infinite."""
    if run.epoch == 0 or len(features) < 2 or not bool((features == features[0]).all()):
        return
    words = "the features are the same for every sample, as when every ReLU is at zero, in epoch"
    limit = None if run.regularizer is None else _limit(run)
    if run.regularizer is not None and limit is not None and run.regularizer.mu > limit:
        raise divergence(run, words, limit)
    if run.epoch == run.settings.epochs:
        warnings.warn(
            f"the network has died: {words} {run.epoch - 1} (counted from 0). Lower lr and train again.",
            NumericalWarning,
            stacklevel=3,
        )


def _limit(run: Run) -> float | None:
    """About the largest mu that SGD can follow, by the first weights and the last good ones, if they tell."""
    settings, limits, now = run.settings, [], copy.deepcopy(run.model.state_dict())
    try:
        for weights in (run.first_weights or now, run.good_weights or now):
            run.model.load_state_dict(weights)
            limits.append(stable_mu(run.model, run.x, run.layer, settings.lr, settings.momentum, settings.batch_size))
    except (RuntimeError, InputError):  # a network without second derivatives, or with a layer that is not trained
        return None
    finally:
        run.model.load_state_dict(now)
    # the last weights count unless they have run away already; half, since the curvature grows in training
    return (min(limits) if min(limits) > limits[0] / 100 else limits[0]) / 2


def divergence(run: Run, words: str = "the loss is not finite in epoch", limit: float | None = None) -> DivergenceError:
    """Put the last good weights back, and say which of lr and mu to lower: mu, if SGD cannot follow the penalty."""
    words += f" {min(run.epoch, run.settings.epochs - 1)} (counted from 0)."
    if run.regularizer is not None and limit is None:
        limit = _limit(run)
    if run.good_weights:
        run.model.load_state_dict(run.good_weights)
    if run.regularizer is not None and limit is not None and run.regularizer.mu > limit:
        words += (
            f" Lower mu: it is {run.regularizer.mu:g}, and at lr {run.settings.lr:g} and momentum "
            f"{run.settings.momentum:g} this network follows the penalty only below about {limit:.2g}."
        )
    else:
        words += f" Lower lr: it is {run.settings.lr_at(run.epoch):g}."
    if run.checkpoint is not None and run.checkpoint.exists():
        words += f" The last good checkpoint is {run.checkpoint}."
    return DivergenceError(words)
