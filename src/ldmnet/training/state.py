"""Everything that changes while training: what a checkpoint holds, and what is put back when training diverges."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldmnet.errors import StateError
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.saved import check_mapping, check_number, entries_of, refuse
from ldmnet.training.augment import Augment
from ldmnet.training.checkpoint import REMEDY, check_settings, put_weights, save_checkpoint
from ldmnet.training.features import Layer
from ldmnet.training.history import Epoch, best_epoch
from ldmnet.training.optimizers import Descent
from ldmnet.training.rivals import Rivals
from ldmnet.training.settings import TrainSettings

BUFFERS = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")  # one number for each of a weight


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
    rivals: Rivals
    settings_saved: dict[str, Any]
    checkpoint: Path | None
    epoch: int = 0
    history: list[Epoch] = field(default_factory=list)
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

    @cached_property
    def all_labelled(self) -> bool:
        """Whether every sample has one."""
        return bool(self.labelled.all())

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or so many without a better validation accuracy that patience is over."""
        best, patience = best_epoch(self.history), self.settings.patience
        tired = patience is not None and best is not None and self.epoch - 1 - best >= patience
        return self.epoch >= self.settings.epochs or tired

    def keep_best_weights(self) -> None:
        """Remember the weights if the last epoch is the best so far and training may stop early."""
        if self.settings.patience is not None and best_epoch(self.history) == self.epoch - 1:
            self.best_weights = copy.deepcopy(self.judged.state_dict())

    @property
    def judged(self) -> nn.Module:
        """The network that is validated and that training ends with: the model, or its average."""
        return self.rivals.judged(self.model)

    def put_best_back(self) -> None:
        """Give the model the best epoch's weights and statistics, where they were kept, or their average."""
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        elif self.judged is not self.model:
            self.model.load_state_dict(self.judged.state_dict())

    def autocast(self) -> torch.autocast:
        """The arithmetic of the network's passes, as the settings ask for it."""
        return torch.autocast(self.x.device.type, dtype=torch.bfloat16, enabled=self.settings.precision == "bfloat16")

    def keep_weights(self) -> None:
        """Remember the weights, to put them back if the epoch diverges."""
        now = self.model.state_dict()
        if not self.good_weights:
            self.good_weights = copy.deepcopy(now)
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
            "rivals": self.rivals.state(),
        }
        save_checkpoint(self.checkpoint, state)

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's content, if it belongs to this run; the model is left alone if it does not."""
        assert self.checkpoint is not None
        settings = state["settings"]
        if isinstance(settings, dict):
            settings = {**asdict(TrainSettings()), **settings}  # a checkpoint of an earlier version lacks some
        check_settings({**state, "settings": settings}, self.settings_saved, self.checkpoint)
        before = copy.deepcopy(self.model.state_dict())
        try:
            self._take(state)
        except Exception as error:
            self.model.load_state_dict(before)
            if isinstance(error, StateError):
                raise
            words = " ".join(str(error).split())  # parts that cannot be what they were saved as
            raise StateError(f"{self.checkpoint} is damaged: {type(error).__name__}: {words}. {REMEDY}") from error

    def _take(self, state: dict[str, Any]) -> None:
        """Take a checkpoint's content, each part checked."""
        assert self.checkpoint is not None
        put_weights(self.model, state["model"], self.checkpoint)
        check_number("epoch", state["epoch"], 0, self.settings.epochs, whole=True)
        history = entries_of("history", Epoch, state["history"])
        if len(history) != state["epoch"]:
            raise refuse("history", f"{len(history)} epochs of {state['epoch']}")
        best, seconds = state["best"], state["seconds"]
        check_mapping("seconds", seconds)
        for phase, value in seconds.items():
            check_number(f"seconds of {phase}", value, 0)
        own = self.model.state_dict()
        check_mapping("best", best, list(own) if best else ())
        for name, value in best.items():
            if isinstance(own.get(name), Tensor) and getattr(value, "shape", None) != own[name].shape:
                raise refuse(f"best {name}", value)
        if self.regularizer is not None:
            self.regularizer.load_state_dict(state["regularizer"])  # it says so if the data is another
        self.rivals.load(state.get("rivals"))
        self.draw.set_state(state["random"]["batches"])
        self.augment_draw.set_state(state["random"]["augment"])
        torch.set_rng_state(state["random"]["torch"])
        _check_optimizer(state["optimizer"], self.descent.optimizer.param_groups)
        self.descent.optimizer.load_state_dict(state["optimizer"])
        self.best_weights, self.epoch, self.history = best, state["epoch"], history
        self.seconds |= seconds


def _check_optimizer(saved: Any, groups: list[dict[str, Any]]) -> None:
    """Refuse an optimizer's state whose numbers are none, or whose buffers are not of their weights' shapes."""
    check_mapping("optimizer", saved, ("state", "param_groups"))
    check_mapping("optimizer's state", saved["state"])
    if not isinstance(saved["param_groups"], list) or len(saved["param_groups"]) != len(groups):
        raise refuse("optimizer's groups", saved["param_groups"])
    for ours, theirs in zip(groups, saved["param_groups"], strict=True):
        check_mapping("optimizer's group", theirs, ("params",))
        if not isinstance(theirs["params"], list) or len(theirs["params"]) != len(ours["params"]):
            raise refuse("optimizer's weights", theirs["params"])
        for name, value in ours.items():
            if isinstance(value, float):
                check_number(f"{name} of the optimizer", theirs.get(name))
        for place, weight in zip(theirs["params"], ours["params"], strict=True):
            for name in BUFFERS:
                buffer = saved["state"].get(place, {}).get(name)
                if buffer is not None and getattr(buffer, "shape", None) != weight.shape:
                    raise refuse(f"{name} of the optimizer", buffer)
