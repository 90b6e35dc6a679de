"""What `fit` is given to train and report on, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import Dataset

from ldmnet.errors import InputError
from ldmnet.training.features import evaluating, sweep

Data = tuple[Any, Any] | Dataset[tuple[Any, Any]]


def as_tensors(data: Data, name: str, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`data` as inputs (n, ...) of a weight's kind and int64 labels (n,), on its device, checked."""
    if isinstance(data, Dataset):
        samples = [data[i] for i in range(len(data))]  # type: ignore[arg-type]
        data = (
            torch.stack([torch.as_tensor(sample[0]) for sample in samples]),
            torch.as_tensor([sample[1] for sample in samples]),
        )
    x, y = (torch.as_tensor(part) for part in data)
    if x.ndim < 2 or len(x) == 0:
        raise InputError(f"{name}: inputs must have shape (n, ...) with n at least 1, got {tuple(x.shape)}.")
    if not x.is_floating_point():
        raise InputError(f"{name}: inputs must be floating point, got {x.dtype}. Convert with .float().")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise InputError(f"{name}: labels must be integers, got {y.dtype}.")
    if y.shape != (len(x),):
        raise InputError(f"{name}: there are {len(x)} inputs but labels has shape {tuple(y.shape)}.")
    if not torch.isfinite(x).all():
        raise InputError(f"{name}: inputs has NaN or infinite values.")
    y = y.to(weight.device, torch.int64)
    if int(y.min()) < 0:
        raise InputError(f"{name}: labels must be 0 or above, got {int(y.min())}.")
    return x.to(weight.device, weight.dtype), y


def first_weight(model: nn.Module) -> Tensor:
    """A floating-point parameter: the samples go where it is, in its precision."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    if weight is None:
        raise InputError("the model has no weights: there is nothing to train.")
    return weight


def shape_lazy_weights(model: nn.Module, x: Tensor) -> None:
    """Give weights that wait for a first sample (nn.LazyLinear) their shapes."""
    if any(is_lazy(p) for p in model.parameters()):
        with evaluating(model), torch.no_grad():  # not in inference mode: what is made there has no gradient
            model(x[:1])


@contextmanager
def channels_last(model: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Images (n, c, h, w) and network laid out as convolutions want them, for a while: the same numbers, sooner.

    A network that asks for the usual layout, as one that calls `view` does, keeps it.
    """
    if x.ndim != 4:
        yield x
        return
    laid_out = x.contiguous(memory_format=torch.channels_last)
    try:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        try:
            sweep(model, laid_out[:2])
        except RuntimeError:
            model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            laid_out = x
        yield laid_out
    finally:
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def check_outputs(model: nn.Module, **parts: tuple[Tensor, Tensor] | None) -> None:
    """Find out before training, not after it, whether the model takes the samples and knows the labels."""
    for name, part in parts.items():
        if part is None:
            continue
        outputs, largest = sweep(model, part[0][:1]).shape[1], int(part[1].max())
        if outputs <= largest:
            raise InputError(f"{name}: the label {largest} does not fit a model of {outputs} outputs.")
