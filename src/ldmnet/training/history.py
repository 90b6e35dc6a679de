"""What one epoch of training showed, and which epoch was the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Epoch:
    """One epoch's numbers, over its batches.

    Attributes:
        epoch: from zero.
        lr: the learning rate.
        loss: mean softmax loss of the labelled samples.
        penalty: mean penalty of eq. (9).
        accuracy: training accuracy, 0 to 1, as the batches saw it; of the labelled samples.
        val_loss: softmax loss on the validation data, where given.
        val_accuracy: accuracy on the validation data, where given.
        strength: the regulariser's strength in force, without a unit; None without one, and for the paper's numbers.
        update: the numbers of the regulariser's update before this epoch, see `Update.scalars`; None where there was
            none. Its seconds differ from run to run, so that it counts in no comparison of epochs.
    """

    epoch: int
    lr: float
    loss: float
    penalty: float
    accuracy: float
    val_loss: float | None = None
    val_accuracy: float | None = None
    strength: float | None = None
    update: dict[str, float] | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The epoch for a file: without the update, which has a log of its own."""
        return {name: value for name, value in vars(self).items() if name != "update"}


def best_epoch(history: Sequence[Epoch]) -> int | None:
    """The epoch of the best validation accuracy, by the lower loss among equals; None without validation data."""
    seen = [e for e in history if e.val_accuracy is not None and e.val_loss is not None]
    return max(seen, key=lambda e: (e.val_accuracy, -(e.val_loss or 0.0))).epoch if seen else None
