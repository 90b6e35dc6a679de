"""When training has run away or ended badly: how that is told."""

from __future__ import annotations

import warnings

from torch import Tensor

from ldmnet.errors import BadEndWarning, DivergenceError
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.training.state import Run

NEAR_CHANCE = 0.75  # of the loss by guessing: a rare class may be learnt and yet never be the most probable
OVERFITS_FROM = 0.8  # of the training samples right: below it LDMNet cost 8 points (docs/which-tool.md)


def divergence(run: Run) -> DivergenceError:
    """Put the last good weights back, and say what to lower."""
    if run.good_weights:
        run.model.load_state_dict(run.good_weights)
    words = f"the loss is not finite in epoch {min(run.epoch, run.settings.epochs - 1)} (counted from 0)."
    settings = None if run.regularizer is None else run.regularizer.settings
    if settings is not None and settings.mu is not None:
        words += (
            f" Lower mu, which is {settings.mu:g} and tied to the scale of the features, or leave mu and lambda_tilde "
            "out: the default strength has no unit. Or lower the learning rate."
        )
    else:
        words += f" Lower the learning rate: it is {run.descent.lr:g}."
    there = run.checkpoint is not None and run.checkpoint.exists()
    return DivergenceError(words, run.checkpoint if there else None)


def bad_end(logits: Tensor, labels: Tensor, loss: float) -> str:
    """A warning, given and returned, if a network has learnt nothing of its own training set (n, n_classes), (n,)."""
    counts = labels.bincount().double()
    shares = counts[counts > 0] / counts.sum()
    chance, largest = float(-(shares * shares.log()).sum()), float(shares.max())
    predicted = logits.argmax(1)
    right = float((predicted == labels).double().mean())
    if len(shares) < 2:
        return ""
    known = f"loss {loss:.4g}, where guessing by the classes' shares has {chance:.4g}; {100 * right:.1f} % right"
    if bool((logits == logits[:1]).all()):
        why = "the network gives every training sample the same scores"
    elif bool((predicted == predicted[0]).all()) and not loss < NEAR_CHANCE * chance:
        why = "the network predicts one class for all training samples"
    elif not loss <= chance and right <= largest:
        why = "on its own training samples the network is no better than guessing"
    else:
        return ""
    words = (
        f"training ended badly: {why} ({known}). Train longer, or with another learning rate; the result is of no use."
    )
    warnings.warn(words, BadEndWarning, stacklevel=4)
    return words


def tell_unused(regularizer: ManifoldRegularizer | None) -> None:
    """Warn if the pull had not begun when training ended, unless the regulariser did at an update."""
    if regularizer is not None and regularizer.waiting and "waiting" not in regularizer.warned:
        warnings.warn(regularizer.waiting, UserWarning, stacklevel=4)


def tell_underfit(regularizer: ManifoldRegularizer | None, logits: Tensor, labels: Tensor) -> None:
    """Warn if the default pull was in force and the network does not even fit its training samples."""
    right = float((logits.argmax(1) == labels).double().mean())
    if regularizer is not None and regularizer.log and regularizer.log[-1].strength and right < OVERFITS_FROM:
        words = (
            f"the network has {100 * right:.0f} % of its own training samples right: it does not overfit, and a "
            "regulariser may hold it back. Compare with method none; or train longer, or with less weight decay."
        )
        warnings.warn(words, UserWarning, stacklevel=4)
