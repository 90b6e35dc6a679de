"""Points for the benchmarks of the update: inputs and features near low-dimensional manifolds, one per class."""

from __future__ import annotations

import torch
from torch import Tensor


def class_points(
    n: int, n_classes: int = 10, d_in: int = 784, d_feat: int = 500, intrinsic: int = 12, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """(n, d_in) inputs, (n, d_feat) features after a ReLU, and labels; each class is a curved sheet of its own."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % n_classes
    place = torch.randn(n, intrinsic, generator=draw)
    bent = torch.cat([place, torch.sin(2 * place)], 1)
    inputs = bent @ torch.randn(2 * intrinsic, d_in, generator=draw) * 20
    features = bent @ torch.randn(2 * intrinsic, d_feat, generator=draw)
    features += torch.randn(n_classes, d_feat, generator=draw)[labels] * 3
    inputs += torch.randn(n, d_in, generator=draw)
    return inputs, torch.relu(features), labels
