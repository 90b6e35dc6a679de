"""What `fit` is given to train and report on, checked before anything is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ldmnet.errors import InputError
from ldmnet.training.features import sweep

Data = tuple[Any, Any] | Dataset[tuple[Any, Any]]


def as_tensors(data: Data, name: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """`data` as floating inputs (n, ...) and int64 labels (n,) on the device, checked."""
    if isinstance(data, Dataset):
        pairs = [data[i] for i in range(len(data))]  # type: ignore[arg-type]
        data = (
            torch.stack([torch.as_tensor(x) for x, _ in pairs]),
            torch.as_tensor([y for _, y in pairs]),
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
    if int(y.min()) < 0:
        raise InputError(f"{name}: labels must be 0 or above, got {int(y.min())}.")
    return x.to(device), y.to(device=device, dtype=torch.int64)


def check_outputs(model: nn.Module, **parts: tuple[Tensor, Tensor] | None) -> None:
    """Find out before training, not after it, whether the model takes the samples and knows the labels."""
    for name, part in parts.items():
        if part is None:
            continue
        outputs, largest = sweep(model, part[0][:1]).shape[1], int(part[1].max())
        if outputs <= largest:
            raise InputError(f"{name}: the label {largest} does not fit a model of {outputs} outputs.")
