"""Training sets for the benchmarks: real images where they are at hand, made-up ones of the same shape elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from ldmnet.data import fit_preprocess, load, stratified
from ldmnet.errors import LDMNetError


def training_set(net: str, n: int) -> tuple[Tensor, Tensor, str]:
    """N images in ten classes as the network wants them, their labels, and where they are from."""
    name, scale = ("mnist", 1.0) if net == "mnist" else ("cifar10", 64.0)
    try:
        split = load(name)
        chosen = stratified(split.y_train, n // 10, 0) if n // 10 <= int(split.y_train.bincount().min()) else None
        if chosen is None:  # classes of unequal size: the first n of all
            chosen = torch.arange(min(n, len(split.y_train)))
        pixels, labels = split.x_train[chosen], split.y_train[chosen]
        return fit_preprocess(pixels, "mean_image", scale)(pixels), labels, name
    except LDMNetError:
        draw = torch.Generator().manual_seed(0)
        shape = (1, 28, 28) if net == "mnist" else (3, 32, 32)
        size = shape[0] * shape[1] * shape[2]
        labels = torch.arange(n) % 10
        centres = torch.randn(10, size, generator=draw)[labels]
        curves = torch.randn(n, 12, generator=draw) @ torch.randn(12, size, generator=draw) / 3
        return ((centres + curves) * 64 / scale).reshape(n, *shape), labels, "made up"
