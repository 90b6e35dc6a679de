"""Pixels to network inputs, with statistics of the training images only.

prepare = fit_preprocess(x_train, "mean_image")
model(prepare(x_test))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from ldmnet.errors import InputError

Kind = Literal["mean_image", "standard", "unit", "contrast", "local_contrast"]

CONTRAST_FLOOR = 10.0  # of 255; keeps flat images flat
LOCAL_SIGMA, LOCAL_RADIUS = 2.0, 4  # pixels: the window of local contrast, Gaussian
CHUNK = 2048  # images in float64 at a time


@dataclass(frozen=True)
class Preprocess:
    """How pixels 0..255 become inputs.

    Attributes:
        kind: "mean_image" subtracts the training images' mean image; "standard" gives every channel mean 0
            and deviation 1; "unit" divides by 255; "contrast" gives every image mean 0 and deviation about 1
            and then subtracts the mean image; "local_contrast" gives the neighbourhood of every pixel, in each
            channel, mean 0 and deviation about 1, and then subtracts the mean image.
        scale: what the result is divided by (1 for MNIST and 64 for CIFAR-10, with "mean_image").
    """

    kind: Kind = "mean_image"
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"there is no preprocessing {self.kind!r}. Choose one of {', '.join(get_args(Kind))}.")
        if not 0 < self.scale < math.inf:
            raise InputError(f"scale must be above zero and finite, got {self.scale}.")

    def fit(self, x_train: Tensor) -> Fitted:
        """Take the statistics of uint8 images (n, channels, height, width)."""
        _check(x_train)
        if len(x_train) == 0:
            raise InputError("x_train has no images to take statistics of.")
        zero, one = torch.zeros(()), torch.ones(())
        shape = tuple(x_train.shape[1:])
        if self.kind == "mean_image":
            return Fitted(shape, x_train.sum(0, dtype=torch.int64).double() / len(x_train), one * self.scale)
        if self.kind == "standard":
            mean, std = _channel_statistics(x_train)
            return Fitted(shape, mean, std * self.scale)
        if self.kind == "unit":
            return Fitted(shape, zero, one * (255 * self.scale))
        normalise = _local_contrast if self.kind == "local_contrast" else _contrast
        mean = sum((normalise(x.double()).sum(0) for x in torch.split(x_train, CHUNK)), zero) / len(x_train)
        return Fitted(shape, mean, one * self.scale, normalise=normalise)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A preprocessing with its statistics: call it on uint8 images, get float32 inputs."""

    shape: tuple[int, ...]
    mean: Tensor
    divisor: Tensor
    normalise: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The inputs that belong to some images of the training images' shape."""
        _check(x)
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"images have shape {tuple(x.shape[1:])} but the training images had {self.shape}.")
        out = x.float() if self.normalise is None else self.normalise(x.float())
        return (out - self.mean.to(out)) / self.divisor.to(out)


def fit_preprocess(x_train: Tensor, kind: str = "mean_image", scale: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The function from uint8 images to float32 inputs, fitted on the training images; see `Preprocess`."""
    return Preprocess(cast(Kind, kind), scale).fit(x_train)


def _check(x: Tensor) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4:
        raise InputError(f"images must be uint8 (n, channels, height, width), got {x.dtype} {tuple(x.shape)}.")


def _channel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel, exact from its histogram; the deviation of a constant one is 1."""
    level = torch.arange(256, dtype=torch.float64)
    share = torch.stack([torch.bincount(x[:, c].flatten().cpu(), minlength=256) for c in range(x.shape[1])])
    share = share.double() / share.sum(1, keepdim=True)
    mean = share @ level
    std = (share * (level - mean[:, None]) ** 2).sum(1).sqrt()
    return mean.reshape(-1, 1, 1), std.where(std > 0, torch.ones_like(std)).reshape(-1, 1, 1)


def _contrast(x: Tensor) -> Tensor:
    """Every image with mean 0, divided by its own deviation plus a floor."""
    centred = x - x.mean((1, 2, 3), keepdim=True)
    return centred / (centred.square().mean((1, 2, 3), keepdim=True).sqrt() + CONTRAST_FLOOR)


def _local_contrast(x: Tensor) -> Tensor:
    """Every pixel less the mean of its surroundings, divided by their deviation plus a floor; by channel."""
    centred = x - _blur(x)
    return centred / (_blur(centred.square()).clamp_min(0).sqrt() + CONTRAST_FLOOR)


def _blur(x: Tensor) -> Tensor:
    """A Gaussian mean over each pixel's surroundings, the edges repeated outwards."""
    offset = torch.arange(-LOCAL_RADIUS, LOCAL_RADIUS + 1, dtype=x.dtype, device=x.device)
    weight = torch.exp(-offset.square() / (2 * LOCAL_SIGMA**2))
    weight = (weight / weight.sum()).expand(x.shape[1], 1, 1, -1)
    padded = F.pad(x, [LOCAL_RADIUS] * 4, mode="replicate")
    across = F.conv2d(padded, weight, groups=x.shape[1])
    return F.conv2d(across, weight.mT, groups=x.shape[1])
