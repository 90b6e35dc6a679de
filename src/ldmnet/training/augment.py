"""Augmentation: whole batches of images, changed anew every time they are trained on.

    fit(..., settings=TrainSettings(augment="shift,flip"))
    fit(..., augment=function)  # any function of a batch; what it draws with torch's own generator is reproducible

The graph and the sweeps see the images as they are; the loss and the penalty see the changed ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ldmnet.errors import InputError

Augment = Callable[[Tensor], Tensor]


def shift(x: Tensor, draw: torch.Generator) -> Tensor:
    """Move each image (b, c, h, w) by up to an eighth of its sides, with zeros where nothing was."""
    b, _, height, width = x.shape
    most = [max(1, side // 8) for side in (height, width)]
    down, right = (torch.randint(2 * m + 1, (b,), generator=draw).to(x.device) for m in most)
    padded = F.pad(x, (most[1], most[1], most[0], most[0])).permute(0, 2, 3, 1)
    rows = down[:, None] + torch.arange(height, device=x.device)  # (b, height)
    columns = right[:, None] + torch.arange(width, device=x.device)
    image = torch.arange(b, device=x.device)[:, None, None]
    moved = padded[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return torch.empty_like(x).copy_(moved)  # in the memory layout that x has


def flip(x: Tensor, draw: torch.Generator) -> Tensor:
    """Mirror each image (b, c, h, w) left to right, or not, by the toss of a coin."""
    heads = torch.rand(len(x), generator=draw).to(x.device) < 0.5
    return torch.where(heads[:, None, None, None], x.flip(-1), x)


AUGMENTATIONS = {"shift": shift, "flip": flip}


def augmentation_names(words: str) -> list[str]:
    """The names in a list with commas, each checked; an empty one has none."""
    names = [name.strip() for name in words.split(",")] if words else []
    for name in names:
        if name not in AUGMENTATIONS:
            known = ", ".join(AUGMENTATIONS)
            raise InputError(f"there is no augmentation {name!r}. Choose {known}, or several with commas, or none: ''.")
    return names


def augmentation(words: str, own: Augment | None, x: Tensor, draw: torch.Generator) -> Augment | None:
    """What changes a batch: a function of the caller's, or the settings' names; None changes nothing.

    Args:
        words: the names, with commas.
        own: the caller's function, in place of the names.
        x: the training set.
        draw: what the named ones draw from.
    """
    names = augmentation_names(words)
    if own is None and names and x.ndim != 4:
        raise InputError(
            f"the augmentation {words} takes images (n, channels, height, width), but the inputs have shape "
            f"{tuple(x.shape)}. Leave it out, or give a function of your own: fit(..., augment=function)."
        )

    def in_turn(batch: Tensor) -> Tensor:
        for name in names:
            batch = AUGMENTATIONS[name](batch, draw)
        return batch

    change = own or (in_turn if names else None)
    return None if change is None else partial(_applied, change)


@torch.no_grad()
def _applied(change: Augment, x: Tensor) -> Tensor:
    changed = change(x)
    if not isinstance(changed, Tensor) or len(changed) != len(x):
        given = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise InputError(f"augment was given a batch {tuple(x.shape)} and must return as many samples, got {given}.")
    return changed
