"""The optimizer, its learning rate over the epochs and the clipping of gradients: one object, made by `descent`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ldmnet.errors import InputError
from ldmnet.training.settings import TrainSettings

Factory = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
Schedule = Callable[[int], float]


class Descent:
    """Steps down the gradient of a loss.

    Args:
        model: the network that is trained.
        settings: the learning rate's schedule and the largest norm of the gradient.
        optimizer: with the learning rate of the start in each of its groups.
        schedule: a factor on that rate for each epoch, in place of the settings' schedule.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: TrainSettings,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule | None = None,
    ) -> None:
        self.optimizer = optimizer
        self._weights = [p for p in model.parameters() if p.requires_grad]
        self._settings = settings
        self._schedule = schedule
        self._first = [float(group["lr"]) for group in optimizer.param_groups]

    @property
    def lr(self) -> float:
        """The learning rate now, the first group's."""
        return float(self.optimizer.param_groups[0]["lr"])

    def begin(self, epoch: int) -> float:
        """Set the learning rate of an epoch, counted from zero, and return the first group's."""
        rates = [self._rate(epoch, first) for first in self._first]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        return rates[0]

    def step(self, loss: Tensor, change: Callable[[], None] | None = None) -> None:
        """One step, with the gradient first changed where that is asked for, then clipped where the settings say so."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if change is not None:
            change()
        if self._settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._weights, self._settings.clip_norm)
        self.optimizer.step()

    def _rate(self, epoch: int, first: float) -> float:
        if self._schedule is None:
            return self._settings.lr_at(epoch, first)
        return first * float(self._schedule(epoch))


def descent(
    model: nn.Module,
    settings: TrainSettings,
    weight_decay: float = 0.0,
    factory: Factory | None = None,
    schedule: Schedule | None = None,
) -> Descent:
    """The optimizer that the settings name, or the caller's.

    Args:
        model: the network to train.
        settings: the optimizer's name and numbers.
        weight_decay: the method's, in torch's units; the settings' own is added.
        factory: makes an optimizer from the weights, in place of the name. It brings its own learning rate, momentum
            and weight decay.
        schedule: a factor on the learning rate for each epoch, in place of the settings' schedule.
    """
    decay = weight_decay + settings.weight_decay
    if factory is None:
        return Descent(model, settings, _named(model, settings, decay), schedule)
    if decay:
        raise InputError(
            f"an optimizer of your own brings its own weight decay, but method and settings ask for {decay:g} in "
            "torch's units. Give it to the optimizer, or name one: TrainSettings(optimizer='sgd')."
        )
    made: Any = factory(model.parameters())
    if not isinstance(made, torch.optim.Optimizer) or isinstance(made, torch.optim.LBFGS):
        raise InputError(
            "optimizer must be a function that makes a torch.optim.Optimizer from the weights, as "
            f"functools.partial(torch.optim.AdamW, lr=0.001), and LBFGS does not fit mini-batches; got a "
            f"{type(made).__name__}."
        )
    return Descent(model, settings, made, schedule)


def _named(model: nn.Module, settings: TrainSettings, decay: float) -> torch.optim.Optimizer:
    weights, lr = model.parameters(), settings.lr
    if settings.optimizer == "adam":
        return torch.optim.Adam(weights, lr=lr, weight_decay=decay)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(weights, lr=lr, weight_decay=decay)
    return torch.optim.SGD(weights, lr=lr, momentum=settings.momentum, weight_decay=decay)
