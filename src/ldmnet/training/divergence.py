"""When training has run away or ended badly: how that is told."""

from __future__ import annotations

import math
import warnings

from torch import Tensor

from ldmnet.errors import BadEndWarning, DivergenceError
from ldmnet.training.state import Run


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
    if run.checkpoint is not None and run.checkpoint.exists():
        words += f" The last good checkpoint is {run.checkpoint}."
    return DivergenceError(words)


def tell_bad_end(logits: Tensor, labels: Tensor, loss: float) -> None:
    """Warn if a network has learnt nothing of its own training set (n, n_classes), (n,)."""
    counts = labels.bincount().double()
    shares = counts[counts > 0] / counts.sum()
    chance, largest = float(-(shares * shares.log()).sum()), float(shares.max())
    predicted = logits.argmax(1)
    right = float((predicted == labels).double().mean())
    if len(shares) < 2:
        return
    if bool((logits == logits[:1]).all()):
        why = "the network gives every training sample the same scores"
    elif bool((predicted == predicted[0]).all()):
        why = f"the network predicts one class for all training samples ({100 * right:.1f} % right)"
    elif not math.isfinite(loss) or (loss > chance and right <= largest):
        why = (
            f"the training loss is {loss:.3g}, where guessing by the classes' shares has {chance:.3g}, and "
            f"{100 * right:.1f} % of the training samples are right"
        )
    else:
        return
    warnings.warn(
        f"training ended badly: {why}. Train longer, or with another learning rate; the result is of no use.",
        BadEndWarning,
        stacklevel=4,
    )
