"""What `penalty` saw since the last step: how often each sample came, and with which features."""

from __future__ import annotations

import torch
from torch import Tensor

from ldmnet.errors import StateError
from ldmnet.graph.points import checked_points


class Seen:
    """One visit count per sample and, where asked for, the features it was last seen with.

    Rows are sorted by group.

    Args:
        visits: (m,) how often each sample was seen.
        features: (m, d_feat), NaN where a sample was not seen; None does without.
    """

    def __init__(self, visits: Tensor, features: Tensor | None) -> None:
        self.visits = visits
        self.features = features

    @classmethod
    def nothing(cls, like: Tensor, *, keep_features: bool) -> Seen:
        """Before the first batch; `like` is (m, d_feat)."""
        visits = torch.zeros(len(like), dtype=torch.int32, device=like.device)
        return cls(visits, torch.full_like(like, torch.nan) if keep_features else None)

    def add(self, rows: Tensor, features: Tensor) -> None:
        """A batch of features (b, d_feat) and the rows that they are."""
        self.visits.index_add_(0, rows, torch.ones_like(rows, dtype=torch.int32))
        if self.features is not None:
            self.features[rows] = features.detach().to(self.features)

    @property
    def complete(self) -> bool:
        """Whether the features of every sample are there."""
        return self.features is not None and not bool(self.features.isnan().any())

    def features_of_all(self) -> Tensor:
        """The features of every sample, or an error that counts those that are missing."""
        if self.features is None:
            raise StateError("step() was called without features: pass them (see ldmnet.sweep) at every step.")
        unseen = int(self.features.isnan().any(1).sum())
        if unseen:
            raise StateError(
                f"step() was called without features, but penalty() has not seen {unseen} of the {len(self.features)} "
                "samples since the last step. Pass the features, or run a whole epoch first."
            )
        return self.features

    def left_out(self, *, padded: bool = False) -> str:
        """What is wrong where some samples came more often than others, in words, or nothing.

        Args:
            padded: whether some may have come twice to give all processes as many.
        """
        low, high = (int(value) for value in torch.aminmax(self.visits))
        if low == high or (padded and low > 0):
            return ""
        return (
            f"since the last step penalty() saw some samples {high} times and others {low} times "
            f"({int((self.visits == 0).sum())} of {len(self.visits)} never). With drop_last=True or a weighted sampler "
            "that is harmless. Otherwise index may count another data set: write "
            "IndexedDataset(Subset(...)), not Subset(IndexedDataset(...)). Shown once."
        )


def remembered(seen: Seen | None) -> Tensor:
    """The features that `penalty` saw since the last step, if it saw them all."""
    if seen is None:
        raise StateError("step() was called without features: pass them (see ldmnet.sweep) at the first step.")
    return checked_points(seen.features_of_all(), "features")
