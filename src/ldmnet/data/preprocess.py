"""Pixels to network inputs, with statistics of the training images only.

prepare = fit_preprocess(x_train, "mean_image")
model(prepare(x_test))
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ldmnet.errors import InputError

KINDS = ("mean_image", "standard", "contrast", "local_contrast")

CONTRAST_FLOOR = 10.0  # of 255; keeps flat images flat
LOCAL_SIGMA, LOCAL_RADIUS = 2.0, 4  # pixels: the window of local contrast, Gaussian
CHUNK = 2048  # images in float64 at a time


def fit_preprocess(x_train: Tensor, kind: str = "mean_image", scale: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The function from uint8 images to float32 inputs, with statistics of the training images.

    Args:
        x_train: uint8 images (n, channels, height, width), pixels 0..255.
        kind: "mean_image" subtracts the training images' mean image; "standard" gives every channel mean 0
            and deviation 1; "contrast" gives every image mean 0 and deviation about 1 and then subtracts the mean
            image; "local_contrast" gives the neighbourhood of every pixel, in each channel, mean 0 and deviation
            about 1, and then subtracts the mean image.
        scale: what the result is divided by (1 for MNIST and 64 for CIFAR-10, with "mean_image").
    """
    if kind not in KINDS:
        raise InputError(f"there is no preprocessing {kind!r}. Choose one of {', '.join(KINDS)}.")
    if not 0 < scale < math.inf:
        raise InputError(f"scale must be above zero and finite, got {scale}.")
    _check(x_train)
    if len(x_train) == 0:
        raise InputError("x_train has no images to take statistics of.")
    shape, divisor, normalise = x_train.shape[1:], torch.ones(()), NORMALISE.get(kind)
    if kind == "standard":
        mean, divisor = _channel_statistics(x_train)
    elif normalise is None:
        mean = x_train.sum(0, dtype=torch.int64).double() / len(x_train)
    else:
        sums = (normalise(x.double()).sum(0) for x in torch.split(x_train, CHUNK))
        mean = sum(sums, torch.zeros(())) / len(x_train)
    divisor = divisor * scale

    def prepare(x: Tensor) -> Tensor:
        _check(x)
        if x.shape[1:] != shape:
            raise InputError(f"images have shape {tuple(x.shape[1:])} but the training images had {tuple(shape)}.")
        out = x.float() if normalise is None else normalise(x.float())
        return (out - mean.to(out)) / divisor.to(out)

    return prepare


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


NORMALISE = {"contrast": _contrast, "local_contrast": _local_contrast}
