"""The paper's networks, an MLP and a residual network, each with its feature layer named `features`.

`features` ends after the ReLU and before DropOut; `dropout` is there in every network and off (p = 0) until a
method turns it on; `head` is the linear softmax classifier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ldmnet.errors import InputError
from ldmnet.seeds import generator

Initialization = Literal["gaussian", "xavier", "he", "torch"]


class FeatureNet(nn.Module):
    """A classifier in three parts: features, DropOut, linear head.

    Args:
        features: maps a batch of inputs to (b, d_feat).
        d_feat: the number of features.
        n_classes: the number of classes.
    """

    def __init__(self, features: nn.Module, d_feat: int, n_classes: int) -> None:
        super().__init__()
        self.features = features
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(d_feat, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """The class scores (b, n_classes) of a batch of inputs."""
        out: Tensor = self.head(self.dropout(self.features(x)))
        return out


def mnist_net(n_classes: int = 10) -> FeatureNet:
    """Table 1, for 28x28 grey images. As printed, there is no ReLU after the first two convolutions."""
    features = nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * 4 * 4, 500),  # the printed 4x4 convolution sees a 4x4 map: the same map, as one product
        nn.ReLU(),
    )
    return FeatureNet(features, 500, n_classes)


def cifar_net(n_classes: int = 10) -> FeatureNet:
    """Table 4, for 32x32 colour images (SVHN and CIFAR-10): maps of 32, 15, 7, 4 and 1 a side.

    Each pool comes before its ReLU: the two commute, and the ReLU then has a quarter of the numbers to look at.
    """
    features = nn.Sequential(
        nn.Conv2d(3, 96, 5, padding=2),
        nn.MaxPool2d(3, 2),
        nn.ReLU(),
        nn.Conv2d(96, 128, 5, padding=2),
        nn.MaxPool2d(3, 2),
        nn.ReLU(),
        nn.Conv2d(128, 256, 4),
        nn.MaxPool2d(3, 2),
        nn.ReLU(),
        *_hidden(256, (2048, 2048)),
    )
    return FeatureNet(features, 2048, n_classes)


def mlp(d_in: int, n_classes: int, hidden: Sequence[int] = (256, 256)) -> FeatureNet:
    """Fully connected layers with ReLU, DropOut between them."""
    if not hidden:
        raise InputError("an MLP needs at least one hidden layer: the last one is its feature layer.")
    return FeatureNet(nn.Sequential(*_hidden(d_in, hidden)), hidden[-1], n_classes)


def _hidden(d_in: int, sizes: Sequence[int]) -> list[nn.Module]:
    """Flat inputs, then linear layers with ReLU, DropOut between them."""
    layers: list[nn.Module] = []
    for width, size in zip((d_in, *sizes), sizes, strict=False):
        layers += [nn.Dropout(0.0) if layers else nn.Flatten(), nn.Linear(width, size), nn.ReLU()]
    return layers


SMALLEST_SIDE, LARGE_AREA = 16, 64 * 64  # of images for the residual network, in pixels


def residual_net(shape: Sequence[int], n_classes: int, width: int = 2) -> FeatureNet:
    """A wide residual network of 16 layers (Zagoruyko and Komodakis, 2016) for images of any size.

    Three groups of two blocks with 16, 32 and 64 times `width` channels at whole, half and quarter resolution, then the
    mean over all pixels: 64 times `width` features. Images above 64 x 64 are first halved by strided convolutions until
    they are no larger, so that the cost stays bounded.

    Args:
        shape: (channels, height, width) of an image, 16 pixels or more per side.
        n_classes: the number of classes.
        width: the factor on the channels; 2 has 0.69 million weights.
    """
    if len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE:
        raise InputError(
            f"a residual network takes images (channels, height, width) of {SMALLEST_SIDE} pixels or more per side, "
            f"got samples of shape {tuple(shape)}. Take an MLP for them."
        )
    area, large = shape[1] * shape[2], shape[1] * shape[2] > LARGE_AREA
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 16, 3, stride=2 if large else 1, padding=1, bias=False)]
    while large and (area := area // 4) > LARGE_AREA:
        layers += [nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1, bias=False)]
    channels = 16
    for size, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
        layers += [ResidualBlock(channels, size, stride), ResidualBlock(size, size, 1)]
        channels = size
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = FeatureNet(nn.Sequential(*layers), channels, n_classes)
    initialize(net, "he", 0)
    return net


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; normalisation and ReLU come before each (He et al., 2016)."""

    def __init__(self, channels: int, size: int, stride: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.residual = nn.Sequential(
            nn.Conv2d(channels, size, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(size),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1, bias=False),
        )
        self.shortcut = None if channels == size else nn.Conv2d(channels, size, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (b, channels, h, w) to (b, size, h / stride, w / stride)."""
        ready = self.before(x)
        out: Tensor = self.residual(ready) + (x if self.shortcut is None else self.shortcut(ready))
        return out


def embedding_net(d_in: int, n_classes: int, width: int = 2000) -> FeatureNet:
    """Table 8: two fully connected layers of 2,000 on top of a descriptor."""
    return mlp(d_in, n_classes, (width, width))


def set_dropout(model: nn.Module, p: float) -> int:
    """Set the rate of every `nn.Dropout` in a model.

    Returns:
        How many there are.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.Dropout)]
    for layer in layers:
        layer.p = p
    return len(layers)


def initialize(model: nn.Module, scheme: Initialization, seed: int, *, std: float = 0.01) -> None:
    """Draw a model's weights anew, in the order of its layers, from the seed's "init" stream.

    Args:
        model: convolutions and linear layers are drawn; anything else stays.
        scheme: "gaussian" (N(0, std^2)), "xavier" or "he" (uniform, resp. normal), all with zero biases; or
            "torch", PyTorch's own default.
        seed: the run's seed.
        std: the standard deviation of "gaussian".
    """
    draw = generator(seed, "init")
    for layer in model.modules():
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        with torch.no_grad():
            if scheme == "gaussian":
                layer.weight.normal_(0, std, generator=draw)
            elif scheme == "xavier":
                nn.init.xavier_uniform_(layer.weight, generator=draw)
            elif scheme == "he":
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=draw)
            elif scheme == "torch":
                nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=draw)
            else:
                raise InputError(f"initialization must be gaussian, xavier, he or torch, got {scheme!r}.")
            if layer.bias is not None:
                if scheme == "torch":
                    bound = 1 / math.sqrt(layer.weight[0].numel())
                    layer.bias.uniform_(-bound, bound, generator=draw)
                else:
                    layer.bias.zero_()


VGG16_WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(n_classes: int = 10) -> FeatureNet:
    """VGG-16 for 32x32 colour images: thirteen 3x3 convolutions, five pools, two hidden layers of 512 with DropOut.

    DropOut comes after each hidden layer, as in VGG-16. Batch normalisation, which VGG-16 lacks, follows each
    convolution.
    """
    layers: list[nn.Module] = []
    channels = 3
    for block in VGG16_WIDTHS:
        for width in block:
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return FeatureNet(nn.Sequential(*layers, *_hidden(512, (512, 512))), 512, n_classes)
