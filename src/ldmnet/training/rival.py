"""A rival's part in the loop: where it may act, and those that act on batches, losses, gradients and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from ldmnet.errors import InputError

Rows = slice | Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of training samples.

    Attributes:
        index: (b,) which samples.
        x: their inputs.
        y: (b,) labels, -1 where there is none.
        partner: (b,) with whom in the batch each is mixed; None mixes none.
        share: of a sample itself in the mixture.
        hidden: whether the features are mixed and not the inputs.
    """

    index: Tensor
    x: Tensor
    y: Tensor
    partner: Tensor | None = None
    share: float = 1.0
    hidden: bool = False

    def mixed(self, values: Tensor) -> Tensor:
        """The mixture of each sample's values with its partner's."""
        return values if self.partner is None else self.share * values + (1 - self.share) * values[self.partner]

    @property
    def purity(self) -> float:
        """One where an input is a sample's own, zero where it is half another's."""
        return 1.0 if self.partner is None or self.hidden else (2 * self.share - 1) ** 2

    def weighed(self, loss: Callable[[Rows], Tensor]) -> Tensor:
        """A loss of rows of the batch, shared between the samples and their partners."""
        if self.partner is None:
            return loss(slice(None))
        return self.share * loss(slice(None)) + (1 - self.share) * loss(self.partner)


class Rival:
    """A rival that does nothing: one that does something says where.

    Args:
        strength: its one number.
        draw: what it draws from.
    """

    def __init__(self, strength: float, draw: torch.Generator) -> None:
        self.strength, self._draw = strength, draw

    smoothing = 0.0  # in the softmax loss

    def begin(self, model: nn.Module) -> None:
        """Look at the network before the first step."""

    def batch(self, batch: Batch) -> Batch:
        """Change a batch before the forward pass."""
        return batch

    def penalty(self, features: Tensor, y: Tensor) -> Tensor | None:
        """A term of the loss from the features (b, d_feat) of labelled samples (b,)."""

    def gradient(self, model: nn.Module, again: Callable[[], Tensor]) -> None:
        """Change the gradient; `again` computes the batch's loss anew."""

    def stepped(self, model: nn.Module) -> None:
        """Look at the network after a step."""

    def judged(self, model: nn.Module) -> nn.Module:
        """The network that is validated, and that training ends with."""
        return model

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take what `state` gave."""


class LabelSmoothing(Rival):
    """Targets with a share of every class (Szegedy et al., 2016)."""

    @property
    def smoothing(self) -> float:  # type: ignore[override]
        """The share."""
        return self.strength


class Mixup(Rival):
    """Mixtures of two inputs with those of their losses (Zhang et al., 2018); the share is Beta(strength, strength)."""

    def batch(self, batch: Batch) -> Batch:
        """Draw partners and the share of the whole batch."""
        partner = torch.randperm(len(batch.index), generator=self._draw).to(batch.x.device)
        a, b = torch._standard_gamma(torch.full((2,), float(self.strength)), generator=self._draw).tolist()
        share = a / (a + b) if a + b > 0 else 0.5  # a tiny strength may round both to zero
        changed = replace(batch, partner=partner, share=share, hidden=self._hidden())
        return changed if changed.hidden else replace(changed, x=changed.mixed(batch.x))

    def _hidden(self) -> bool:
        return False


class ManifoldMixup(Mixup):
    """Mixup of the inputs or, by the toss of a coin, of the features (Verma et al., 2019)."""

    def _hidden(self) -> bool:
        return bool(torch.rand((), generator=self._draw) < 0.5)


class SAM(Rival):
    """The gradient at the worst weights within a distance, the strength (Foret et al., 2021)."""

    def gradient(self, model: nn.Module, again: Callable[[], Tensor]) -> None:
        """Go up the gradient, take the gradient there, and come back."""
        weights = [p for p in model.parameters() if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in weights]))
        if not (float(norm) > 0 and math.isfinite(float(norm))):
            return
        kept = [p.detach().clone() for p in weights]
        with torch.no_grad():
            for p in weights:
                p.add_(p.grad, alpha=self.strength / float(norm))  # type: ignore[arg-type]
                p.grad = None
        with _still_statistics(model):
            again().backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for p, before in zip(weights, kept, strict=True):
                p.copy_(before)


@contextmanager
def _still_statistics(model: nn.Module) -> Iterator[None]:
    """Keep the running statistics of normalisation as they are."""
    layers = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    kept = [{name: value.clone() for name, value in m.named_buffers()} for m in layers]
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, before in zip(layers, kept, strict=True):
                for name, value in layer.named_buffers():
                    value.copy_(before[name])


class EMA(Rival):
    """An exponential moving average of weights and statistics; the strength is the decay, less in the first steps."""

    _average: AveragedModel

    def begin(self, model: nn.Module) -> None:
        """Start from the network."""
        self._average = AveragedModel(model, avg_fn=self._mean, use_buffers=True)

    def _mean(self, old: Tensor, new: Tensor, steps: Tensor | int) -> Tensor:
        decay = min(self.strength, (1 + int(steps)) / (10 + int(steps)))
        return torch.lerp(new, old, decay) if old.is_floating_point() else new

    def stepped(self, model: nn.Module) -> None:
        """Take the new weights in."""
        self._average.update_parameters(model)

    def judged(self, model: nn.Module) -> nn.Module:
        """The network with the average weights."""
        averaged: nn.Module = self._average.module
        return averaged

    def state(self) -> dict[str, Any]:
        """The average, and how many steps are in it."""
        return dict(self._average.state_dict())

    def load(self, state: Mapping[str, Any]) -> None:
        """Take an average."""
        self._average.load_state_dict(dict(state))


class TvMFHead(nn.Module):
    """Class scores by the t-vMF similarity of features and class directions (Kobayashi, 2021).

    Args:
        weight: (n_classes, d_feat) the directions to begin with.
        kappa: how narrow a class is: zero gives the cosine.
    """

    def __init__(self, weight: Tensor, kappa: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.scale = nn.Parameter(torch.tensor(16.0, dtype=weight.dtype, device=weight.device))
        self.kappa = kappa

    def forward(self, features: Tensor) -> Tensor:
        """Scores (b, n_classes) of features (b, d_feat): (1 + cos) / (1 + kappa (1 - cos)) - 1, scaled."""
        cos = F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))
        out: Tensor = self.scale * ((1 + cos) / (1 + self.kappa * (1 - cos)) - 1)
        return out


class TvMF(Rival):
    """A t-vMF head in place of the network's last linear layer; the strength is kappa."""

    def begin(self, model: nn.Module) -> None:
        """Refuse a network without such a head: `put_t_vmf_head` puts it there."""
        if not any(isinstance(m, TvMFHead) for m in model.modules()):
            raise InputError("the method t_vmf needs a network with its head: make it with Method.on(network).")


def put_t_vmf_head(model: nn.Module, kappa: float) -> None:
    """Replace the last linear layer of a network, in place, unless that is done."""
    if any(isinstance(m, TvMFHead) for m in model.modules()):
        return
    names = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if not names:
        raise InputError("the method t_vmf replaces the network's last linear layer, but the network has none.")
    where, _, last = names[-1].rpartition(".")
    parent = model.get_submodule(where)
    setattr(parent, last, TvMFHead(getattr(parent, last).weight, kappa))
