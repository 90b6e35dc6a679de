"""Reads a layer's output in somebody else's forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from ldmnet.errors import InputError
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.training.features import named_layer


@contextmanager
def tapped(model: nn.Module, layer: str) -> Iterator[Callable[[], Tensor]]:
    """Gives a function that returns the named layer's last output, flattened to (b, d_feat)."""
    seen: list[object] = []
    hook = named_layer(model, layer).register_forward_hook(lambda module, args, output: seen.append(output))

    def features() -> Tensor:
        if not seen:
            raise InputError(f"the layer {layer!r} did not run in the model's forward pass.")
        output = seen[-1]
        if not isinstance(output, Tensor):
            raise InputError(f"the layer {layer!r} gives a {type(output).__name__}, not a tensor.")
        return output.flatten(1)

    try:
        yield features
    finally:
        hook.remove()


def step_is_missing(regularizer: ManifoldRegularizer, epoch: int) -> bool:
    """Whether this epoch's step is due and not done: a run that goes on within an epoch has it behind it.

    The first step is due in any epoch: a second training may begin in one that is not.
    """
    return not regularizer.log or (
        regularizer.due(epoch) and len(regularizer.log) <= epoch // regularizer.epochs_per_update
    )
