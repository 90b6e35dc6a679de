"""What one epoch of training showed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """One epoch's numbers, over its batches.

    Attributes:
        epoch: from zero.
        lr: the learning rate.
        loss: mean softmax loss.
        penalty: mean penalty of eq. (9).
        accuracy: training accuracy, 0 to 1, as the batches saw it.
        val_loss: softmax loss on the validation data, where given.
        val_accuracy: accuracy on the validation data, where given.
    """

    epoch: int
    lr: float
    loss: float
    penalty: float
    accuracy: float
    val_loss: float | None = None
    val_accuracy: float | None = None
