"""Groups of rows: sorted by label, so that a group is a slice and its block of a matrix is contiguous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ldmnet.errors import InputError

UNLABELLED = -1  # as in scikit-learn
KINDS = "whole numbers, booleans or strings"
MISSING = "Where samples have no label, number the classes from 0 and write -1 there."


class Groups:
    """A partition of n rows by integer label; rows labelled -1 belong to no group.

    Args:
        labels: (n,) integers.

    Attributes:
        order: (m,) the rows of all groups in sorted order, stable: `x[order]` has each group in one piece.
        rank: (n,) where each row is in that order; -1 for a row of no group.
        starts: where each group begins in that order.
        sizes: how many rows each group has.
        keys: a number of each group's own: where it begins, or began before it was taken from a larger partition.
    """

    def __init__(self, labels: Tensor) -> None:
        order = torch.argsort(labels, stable=True)
        self.order = order[labels[order] != UNLABELLED]
        self.rank = torch.full_like(order, -1)
        self.rank[self.order] = torch.arange(len(self.order), device=labels.device)
        _, counts = torch.unique_consecutive(labels[self.order], return_counts=True)
        self.sizes: list[int] = counts.tolist()
        self.starts: list[int] = (counts.cumsum(0) - counts).tolist()
        self.keys = self.starts

    def buckets(self, most_elements: int) -> Iterator[tuple[int, Tensor]]:
        """Groups of one size at a time, to be worked on as a batch.

        Args:
            most_elements: a batch of g groups of m rows has at most this many entries g m^2, or one group.

        Yields:
            m, and the sorted positions of g groups' rows, (g, m).
        """
        by_size: dict[int, list[int]] = defaultdict(list)
        for start, size in zip(self.starts, self.sizes, strict=True):
            by_size[size].append(start)
        device = self.order.device
        for size, starts in by_size.items():
            begins = torch.tensor(starts, device=device)[:, None]
            offsets = torch.arange(size, device=device)
            for some in torch.split(begins, max(1, most_elements // size**2)):
                yield size, some + offsets

    def means(self, values: Tensor) -> Tensor:
        """The mean of each row's group, (m, d), of rows in sorted order."""
        sizes = torch.tensor(self.sizes, device=values.device)
        which = torch.repeat_interleave(sizes)
        sums = values.new_zeros(len(sizes), values.shape[1]).index_add_(0, which, values)
        return (sums / sizes[:, None].to(values.dtype))[which]

    def rows(self, index: Tensor) -> Tensor:
        """The places in sorted order of some rows, (b,) whole numbers; -1 for a row of no group."""
        try:
            return self.rank.index_select(0, index.to(self.rank.device, torch.int64))
        except (IndexError, RuntimeError) as error:
            low, high, n = int(index.min()), int(index.max()), len(self.rank)
            wrong = low if low < 0 else high
            raise InputError(f"index holds {wrong} but the training set has samples 0 to {n - 1}.") from error

    def gather(self, values: Tensor) -> Tensor:
        """A copy of rows in the data set's order, in sorted order."""
        return values[self.order]

    def scatter(self, values: Tensor, missing: float = torch.nan) -> Tensor:
        """A copy of rows in sorted order, in the data set's order; rows of no group hold `missing`."""
        if len(self.order) == len(self.rank):
            return values[self.rank]
        out = values.new_full((len(self.rank), *values.shape[1:]), missing)
        out[self.order] = values
        return out


def checked_index(index: Any, features: Tensor, width: int | None = None) -> Tensor:
    """Which samples some features (b, d_feat) are of, (b,) whole numbers, checked; d_feat must be `width` if given."""
    index = index if isinstance(index, Tensor) else torch.as_tensor(index)
    if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise InputError(f"index must be whole numbers (b,), got {index.dtype} {tuple(index.shape)}.")
    width = features.shape[-1] if width is None else width
    if features.shape != (len(index), width):
        raise InputError(
            f"features has shape {tuple(features.shape)} but index names {len(index)} samples of "
            f"{width} features each: expected {(len(index), width)}."
        )
    whole: Tensor = index
    return whole


def checked_groups(groups: Tensor | ArrayLike | None, n: int, device: torch.device) -> Tensor:
    """Labels as n integers on `device`; None makes one group of all.

    Whole numbers stay what they are; -1 says that a sample has no label. Booleans become 0 and 1, and strings the
    place they have among the sorted strings.

    Args:
        groups: (n,) a tensor, a list, an array or a pandas column of whole numbers, booleans or strings.
        n: how many labels there must be.
        device: where the result is.
    """
    if groups is None:
        return torch.zeros(n, dtype=torch.int64, device=device)
    labels = groups if isinstance(groups, Tensor) else _numbered(groups)
    if labels.shape != (n,):
        raise InputError(f"groups has shape {tuple(labels.shape)} but there are {n} points: one label per point.")
    if labels.is_complex():
        raise InputError(f"groups must be {KINDS}, got {labels.dtype}.")
    if labels.is_floating_point():
        _refuse(labels.isnan(), labels, MISSING)
        _refuse((labels != labels.round()) | labels.isinf(), labels, f"Labels are {KINDS}.")
    whole = labels.to(device=device, dtype=torch.int64)
    _refuse(whole < -1, whole, "Labels are 0 and above, and -1 for samples that have none.")
    return whole


def _refuse(wrong: Tensor, labels: Tensor, remedy: str) -> None:
    if wrong.any():
        first = int(wrong.int().argmax())
        raise InputError(f"groups holds {labels[first].item()} at position {first}. {remedy}")


def _numbered(groups: ArrayLike) -> Tensor:
    """Labels that are no tensor as one: numbers as they are, strings by their sorted order."""
    try:
        values = np.asarray(groups)
    except (TypeError, ValueError) as error:  # lists of several lengths
        raise InputError(f"groups must be {KINDS}, one per sample, got {type(groups).__name__}: {error}") from error
    if values.dtype.kind in "OUT":  # NumPy makes strings of what stands beside strings
        kept = values if hasattr(groups, "dtype") else np.asarray(groups, dtype=object)
        kinds = sorted({type(value).__name__ for value in kept.flat})
        if all(isinstance(value, str) for value in kept.flat):
            values = np.unique(np.asarray(values.tolist(), str), return_inverse=True)[1].reshape(values.shape)
        elif values.dtype == object and values.ndim:  # a pandas column of numbers is one where some may be missing
            values = np.asarray(values.tolist())
        if values.dtype.kind in "OUT":
            raise InputError(f"groups must be {KINDS}, all of one kind, got {' and '.join(kinds)}. {MISSING}")
    elif values.dtype.kind == "S":
        values = np.unique(values, return_inverse=True)[1]
    if values.dtype.kind not in "biuf":
        raise InputError(f"groups must be {KINDS}, got {values.dtype}.")
    return torch.tensor(values.astype(values.dtype.newbyteorder("=")))
