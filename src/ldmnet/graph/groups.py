"""Groups of rows: sorted by label, so that a group is a slice and its block of a matrix is contiguous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor

from ldmnet.errors import InputError


class Groups:
    """A partition of n rows by integer label.

    Args:
        labels: (n,) integers.

    Attributes:
        order: (n,) the rows in sorted order, stable: `x[order]` has each group in one piece.
        rank: (n,) where each row is in that order.
        starts: where each group begins in that order.
        sizes: how many rows each group has.
    """

    def __init__(self, labels: Tensor) -> None:
        self.order = torch.argsort(labels, stable=True)
        self.rank = torch.empty_like(self.order)
        self.rank[self.order] = torch.arange(len(labels), device=labels.device)
        _, counts = torch.unique_consecutive(labels[self.order], return_counts=True)
        self.sizes: list[int] = counts.tolist()
        self.starts: list[int] = (counts.cumsum(0) - counts).tolist()

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

    def gather(self, values: Tensor) -> Tensor:
        """A copy of rows in the data set's order, in sorted order."""
        return values[self.order]

    def scatter(self, values: Tensor) -> Tensor:
        """A copy of rows in sorted order, in the data set's order."""
        return values[self.rank]


def checked_groups(groups: Tensor | None, n: int, device: torch.device, name: str = "groups") -> Tensor:
    """`groups` as n integers on `device`; None makes one group of all."""
    if groups is None:
        return torch.zeros(n, dtype=torch.int64, device=device)
    if not isinstance(groups, Tensor):
        groups = torch.as_tensor(groups)
    if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
        raise InputError(f"{name} must be integers, got {groups.dtype}. Pass labels as int64.")
    if groups.shape != (n,):
        raise InputError(f"{name} has shape {tuple(groups.shape)} but there are {n} points: one label a point.")
    return groups.to(device=device, dtype=torch.int64)
