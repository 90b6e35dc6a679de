"""Rivals that are a penalty on the features of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ldmnet.training.rival import Rival


class CentreLoss(Rival):
    """strength / 2 |f - c|^2, c the centre of the class, which follows its features (Wen et al., 2016)."""

    RATE = 0.5  # of the centres, as published
    _centres: Tensor | None = None

    def penalty(self, features: Tensor, y: Tensor) -> Tensor:
        """The mean over the batch; the centres move afterwards."""
        n = int(y.max()) + 1
        old = features.new_zeros(0, features.shape[1]) if self._centres is None else self._centres.to(features)
        old = torch.cat([old, old.new_zeros(max(0, n - len(old)), old.shape[1])])
        away = features - old[y]
        counts = torch.bincount(y, minlength=len(old)).to(features)
        move = torch.zeros_like(old).index_add_(0, y, away.detach()) / (1 + counts[:, None])
        self._centres = old + self.RATE * move
        return self.strength / 2 * away.square().sum(1).mean()

    def state(self) -> dict[str, Any]:
        """The centres."""
        return {} if self._centres is None else {"centres": self._centres}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take centres."""
        self._centres = state.get("centres")


class SupervisedContrastive(Rival):
    """Features of one class nearer than others, on the sphere at temperature 0.1 (Khosla et al., 2020)."""

    TEMPERATURE = 0.1

    def penalty(self, features: Tensor, y: Tensor) -> Tensor:
        """The mean over the samples that have another of their class in the batch."""
        f = F.normalize(features, dim=1)
        itself = torch.eye(len(f), dtype=torch.bool, device=f.device)
        likeness = (f @ f.T / self.TEMPERATURE).masked_fill(itself, -math.inf)
        positive = (y[:, None] == y) & ~itself
        log_share = (likeness - likeness.logsumexp(1, keepdim=True)).masked_fill(~positive, 0.0)
        counts = positive.sum(1)
        having = counts > 0
        if not bool(having.any()):
            return features.sum() * 0
        return -self.strength * (log_share.sum(1)[having] / counts[having]).mean()


class OLE(Rival):
    """Low rank within a class, high rank across: nuclear norms (Lezama et al., 2018), over the batch's size."""

    SMALLEST = 1.0  # a class is not pressed below this norm

    def penalty(self, features: Tensor, y: Tensor) -> Tensor:
        """The sum of the classes' norms less that of all."""
        within = [torch.linalg.svdvals(features[y == c]).sum().clamp(min=self.SMALLEST) for c in torch.unique(y)]
        across: Tensor = torch.linalg.svdvals(features).sum()
        return self.strength * (torch.stack(within).sum() - across) / len(features)


class Laplacian(Rival):
    """tr(F'LF) / b of the batch's own graph within each class, with heat weights and no ADMM."""

    def penalty(self, features: Tensor, y: Tensor) -> Tensor:
        """Half the weighted sum of squared distances; the scale is the mean of those within a class."""
        d2 = (features[:, None] - features).square().sum(2)
        pairs = (y[:, None] == y) & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
        if not bool(pairs.any()):
            return features.sum() * 0
        scale = d2.detach()[pairs].mean().clamp(min=1e-12)
        W = torch.exp(-d2.detach() / scale) * pairs
        return self.strength / 2 * (W * d2).sum() / len(features)


class Shrink(Rival):
    """strength / 2 |f|^2: a pull to zero, which a graph has no part in."""

    def penalty(self, features: Tensor, y: Tensor) -> Tensor:
        """The mean over the batch."""
        return self.strength / 2 * features.square().sum(1).mean()
