"""Which images train and which validate: a few of each class, drawn by seed, the two never overlapping."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from ldmnet.errors import DataError, InputError
from ldmnet.seeds import generator


def stratified(labels: Tensor, per_class: int | None, seed: int) -> Tensor:
    """Draw `per_class` samples of every class.

    Args:
        labels: (n,) whole numbers.
        per_class: how many of each class; None takes all, whatever the counts.
        seed: of the draw. With the same seed a smaller subset is part of a larger one.

    Returns:
        Indices into `labels`, sorted by class and then in the order drawn (by index if all are taken).
    """
    _check(labels, per_class)
    if per_class is None:
        return torch.argsort(labels.cpu(), stable=True)
    _check_counts(labels, per_class, 0)
    return _draw(labels.cpu(), per_class, generator(seed, "subset"))


def subset_and_validation(
    labels: Tensor, per_class: int | None, seed: int, val_per_class: int = 100, val_seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw a training subset, and validation samples outside it.

    The validation samples are drawn first, so they are the same for every `seed` and `per_class`.

    Args:
        labels: (n,) of the training set.
        per_class: how many of each class to train on. None, or so many that all n are asked for (6,000 a
            class of MNIST's 60,000, whose classes differ in size), takes all and leaves none to validate.
        seed: of the training subset.
        val_per_class: validation samples of each class.
        val_seed: of the validation samples.

    Returns:
        The indices of both, each as in `stratified`.
    """
    _check(labels, per_class)
    if val_per_class < 0:
        raise InputError(f"val_per_class must be 0 or above, got {val_per_class}.")
    if per_class is None or per_class * len(torch.unique(labels)) == len(labels):
        return stratified(labels, None, seed), torch.empty(0, dtype=torch.int64)
    _check_counts(labels, per_class, val_per_class)
    labels = labels.cpu()
    validation = _draw(labels, val_per_class, generator(val_seed, "validation"))
    free = torch.ones(len(labels), dtype=torch.bool)
    free[validation] = False
    rest = free.nonzero().squeeze(1)
    return rest[stratified(labels[rest], per_class, seed)], validation


def indices_hash(indices: Tensor) -> str:
    """Sixteen hex digits that tell one draw from another, order included."""
    return hashlib.sha256(indices.cpu().numpy().astype("<i8").tobytes()).hexdigest()[:16]


def _draw(labels: Tensor, per_class: int, draw: torch.Generator) -> Tensor:
    """The first `per_class` of a random order of each class."""
    drawn = [torch.empty(0, dtype=torch.int64)]
    for label in torch.unique(labels):
        members = (labels == label).nonzero().squeeze(1)
        drawn.append(members[torch.randperm(len(members), generator=draw)[:per_class]])
    return torch.cat(drawn)


def _check(labels: Tensor, per_class: int | None) -> None:
    if labels.ndim != 1 or labels.is_floating_point() or len(labels) == 0:
        raise InputError(f"labels must be whole numbers of shape (n,), got {labels.dtype} {tuple(labels.shape)}.")
    if per_class is not None and per_class < 1:
        raise InputError(f"per_class must be at least 1, or None for all, got {per_class}.")


def _check_counts(labels: Tensor, per_class: int, val_per_class: int) -> None:
    classes, counts = torch.unique(labels, return_counts=True)
    short = [
        f"class {c} has {n:,}"
        for c, n in zip(classes.tolist(), counts.tolist(), strict=True)
        if n < per_class + val_per_class
    ]
    if short:
        asked = f"{per_class:,} samples per class" + (f" and {val_per_class:,} to validate" if val_per_class else "")
        raise DataError(f"{asked} were asked for, but {', '.join(short)}. Ask for fewer, or None for all.")
