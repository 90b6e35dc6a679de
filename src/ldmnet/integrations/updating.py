"""The regulariser in somebody else's loop: when its step is due."""

from __future__ import annotations

from ldmnet.regularizer import ManifoldRegularizer


def step_is_missing(regularizer: ManifoldRegularizer, epoch: int) -> bool:
    """Whether this epoch's step is due and not done: a run that resumes within an epoch has it behind it.

    The first step is due in any epoch: a second training may begin in one that is not.
    """
    return not regularizer.log or (
        regularizer.due(epoch) and len(regularizer.log) <= epoch // regularizer.epochs_per_update
    )
