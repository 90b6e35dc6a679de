"""Everything that changes while training: what a checkpoint holds, and what is put back when training diverges."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldmnet.errors import StateError
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.training.augment import Augment
from ldmnet.training.checkpoint import check_settings, save_checkpoint
from ldmnet.training.features import Layer
from ldmnet.training.history import Epoch, best_epoch
from ldmnet.training.optimizers import Descent
from ldmnet.training.settings import TrainSettings


@dataclass
class Run:
    """Everything that changes while training, in one place: what a checkpoint holds."""

    model: nn.Module
    x: Tensor
    y: Tensor
    layer: Layer
    settings: TrainSettings
    regularizer: ManifoldRegularizer | None
    descent: Descent
    draw: torch.Generator
    augment: Augment | None
    augment_draw: torch.Generator
    weights: Tensor | None  # of the samples in the loss; None if all are alike
    settings_saved: dict[str, Any]
    checkpoint: Path | None
    epoch: int = 0
    history: list[Epoch] = field(default_factory=list)
    first_weights: dict[str, Tensor] = field(default_factory=dict)
    good_weights: dict[str, Tensor] = field(default_factory=dict)
    best_weights: dict[str, Tensor] = field(default_factory=dict)  # kept where the settings have patience
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "sweep": 0.0})

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """One epoch's batches (index, x, y), shuffled and augmented: the set is in memory, so it is indexed."""
        order = torch.randperm(len(self.x), generator=self.draw).to(self.x.device)
        pieces = list(torch.split(order, self.settings.batch_size))
        if len(pieces) > 1 and len(pieces[-1]) == 1:  # one sample has no spread, which BatchNorm asks for
            pieces[-2:] = [torch.cat(pieces[-2:])]
        for index in pieces:
            x = self.x[index]
            yield index, x if self.augment is None else self.augment(x), self.y[index]

    @property
    def labelled(self) -> Tensor:
        """(n,) which samples have a label."""
        return self.y >= 0

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or so many without a better validation accuracy that patience is over."""
        best, patience = best_epoch(self.history), self.settings.patience
        tired = patience is not None and best is not None and self.epoch - 1 - best >= patience
        return self.epoch >= self.settings.epochs or tired

    def keep_best_weights(self) -> None:
        """Remember the weights if the last epoch is the best so far and training may stop early."""
        if self.settings.patience is not None and best_epoch(self.history) == self.epoch - 1:
            self.best_weights = copy.deepcopy(self.model.state_dict())

    def put_best_back(self) -> None:
        """Give the model the best epoch's weights and statistics, where they were kept."""
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)

    def autocast(self) -> torch.autocast:
        """The arithmetic of the network's passes, as the settings ask for it."""
        return torch.autocast(self.x.device.type, dtype=torch.bfloat16, enabled=self.settings.precision == "bfloat16")

    def keep_weights(self) -> None:
        """Remember the weights, to put them back if the epoch diverges."""
        now = self.model.state_dict()
        if not self.good_weights:
            self.first_weights, self.good_weights = copy.deepcopy(now), copy.deepcopy(now)
            return
        for name, value in now.items():
            if isinstance(value, Tensor):
                self.good_weights[name].copy_(value)  # in place: no fresh memory every epoch
            else:  # a module's own extra state
                self.good_weights[name] = copy.deepcopy(value)

    def weights_are_finite(self) -> bool:
        """Whether no weight has run away."""
        sums = (p.detach().sum(dtype=torch.promote_types(p.dtype, torch.float32)) for p in self.model.parameters())
        return all(math.isfinite(float(total)) for total in sums)  # one NaN spoils the sum

    def save(self) -> None:
        """Write the checkpoint, where there is a place for it."""
        if self.checkpoint is None:
            return
        state = {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.descent.optimizer.state_dict(),
            "regularizer": None if self.regularizer is None else self.regularizer.state_dict(),
            "random": {
                "batches": self.draw.get_state(),
                "augment": self.augment_draw.get_state(),
                "torch": torch.get_rng_state(),
            },
            "best": self.best_weights,
            "history": [e.as_dict() for e in self.history],
            "settings": self.settings_saved,
            "seconds": self.seconds,
        }
        save_checkpoint(self.checkpoint, state)

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's content, if it belongs to this run."""
        assert self.checkpoint is not None
        known = {**asdict(TrainSettings()), **state["settings"]}  # a checkpoint of an earlier version lacks some
        check_settings({**state, "settings": known}, self.settings_saved, self.checkpoint)
        if self.regularizer is not None:
            self.regularizer.load_state_dict(state["regularizer"])  # first: it says so if the data is another
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise StateError(
                f"{self.checkpoint} was written for another network: {' '.join(str(error).split())} Delete it, or "
                "choose another checkpoint path."
            ) from error
        self.descent.optimizer.load_state_dict(state["optimizer"])
        self.best_weights = state.get("best", {})
        self.draw.set_state(state["random"]["batches"])
        self.augment_draw.set_state(state["random"].get("augment", self.augment_draw.get_state()))
        torch.set_rng_state(state["random"]["torch"])
        self.epoch = state["epoch"]
        self.history = [Epoch(**e) for e in state["history"]]
        self.seconds |= state.get("seconds", {})  # a checkpoint of an earlier version lacks them
