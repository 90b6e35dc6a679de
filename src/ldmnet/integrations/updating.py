"""The regulariser in somebody else's loop: when its step is due, and an update's numbers for a logger."""

from __future__ import annotations

from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.updates import Update

SCALARS = ("penalty", "strength", "mu", "lambda_tilde", "move", "dual", "energy", "residual")


def step_is_missing(regularizer: ManifoldRegularizer, epoch: int) -> bool:
    """Whether this epoch's step is due and not done: a run that resumes within an epoch has it behind it.

    The first step is due in any epoch: a second training may begin in one that is not.
    """
    return not regularizer.log or (
        regularizer.due(epoch) and len(regularizer.log) <= epoch // regularizer.epochs_per_update
    )


def update_scalars(update: Update) -> dict[str, float]:
    """An update's numbers by name, as `ldmnet/mu`; the first update has no penalty yet."""
    numbers = {name: getattr(update, name) for name in SCALARS} | {"seconds": sum(update.seconds.values())}
    return {f"ldmnet/{name}": float(value) for name, value in numbers.items() if value is not None}
