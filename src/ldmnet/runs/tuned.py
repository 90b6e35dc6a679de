"""A task whose learning rate, weight decay and own strength are chosen on validation data first."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ldmnet.data.userdata import share_split
from ldmnet.errors import DivergenceError
from ldmnet.runs.care import Trial, choose, trials
from ldmnet.runs.classical import classical
from ldmnet.runs.run import Measured, Watch
from ldmnet.runs.samples import SamplesTask, Split, UserSettings
from ldmnet.seeds import derive_seed
from ldmnet.training.history import Epoch
from ldmnet.training.methods import METHODS
from ldmnet.training.rivals import parse

VALIDATES = 0.25  # the share of every class of the training part that trials are judged on
LENGTH = 0.5  # of a trial, in epochs of the training that it chooses for
HOPELESS = 2 / 3  # a trial half way with less than this share of the best one's accuracy at that epoch is stopped
OWN = {"weight_decay": "weight_decay", "dropout": "dropout"}  # where it is not the strength


class HopelessError(Exception):
    """A trial that has no hope of being chosen."""


@dataclass
class Halfway:
    """Stops a trial that is far behind the best one of its method half way.

    Attributes:
        epoch: where a trial is looked at.
        best: the accuracy there, of the best trial so far.
    """

    epoch: int
    best: float = 0.0

    def __call__(self, epoch: Epoch) -> None:
        """Compare a trial's accuracy with the best, at the one epoch."""
        if epoch.epoch != self.epoch or epoch.val_accuracy is None:
            return
        if epoch.val_accuracy < HOPELESS * self.best:
            raise HopelessError
        self.best = max(self.best, epoch.val_accuracy)


@dataclass(frozen=True, eq=False)
class TunedTask(SamplesTask):
    """Train and test on someone's own samples with numbers that `settings.trials` trials chose; none takes defaults."""

    def measure(self, data: Split, watch: Watch) -> Measured:
        """Try, choose on a part of the training part, and train on all of it with the numbers chosen."""
        if not self.settings.trials:
            return super().measure(data, watch)
        part, epochs = self._validated(data), max(1, round(LENGTH * self.settings.training().epochs))

        halfway = Halfway(epochs // 2)

        def accuracy(trial: Trial) -> float | str:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    short = replace(at(self.settings, trial), epochs=epochs)
                    tried = replace(self, settings=short).measure(part, Watch(Path(folder), on_epoch=halfway))
                except (DivergenceError, HopelessError) as error:
                    return "stopped" if isinstance(error, HopelessError) else "diverged"
            found: float = tried.fields["accuracy"]
            return found

        started = time.perf_counter()
        best, budget = choose(trials(self.settings.method, self.settings.trials), accuracy)
        tuning = {"tuning": round(time.perf_counter() - started, 2)}
        measured = replace(self, settings=at(self.settings, best)).measure(data, watch)
        seconds = {**measured.fields["seconds"], **tuning}
        return replace(measured, fields={**measured.fields, "seconds": seconds, "budget": budget})

    def _validated(self, data: Split) -> Split:
        """The training part with some of it to test on: what the split validates with, or a share of every class."""
        if len(data.valid) and self.settings.patience is None:
            kept = data.train[~torch.isin(data.train, data.valid)]
            return replace(data, train=kept, test=data.valid)  # which tells half way, too
        y, seed = self.samples.labels[data.train], derive_seed(self.settings.seed, "tuning")
        left, held = share_split(y, VALIDATES, seed, self.samples.class_names)
        held_out = data.train[held]
        valid = held_out if self.settings.patience is None else data.valid
        return replace(data, train=data.train[left], test=held_out, valid=valid)


def at(settings: UserSettings, trial: Trial) -> UserSettings:
    """Settings with the numbers of a trial, and no trials."""
    changed: dict[str, Any] = {"method": trial.method, "trials": 0}
    if classical(trial.method) is None:
        changed |= {"lr": trial.lr * settings.training().lr}
        if trial.decay is not None:
            changed["decay"] = trial.decay
        if trial.own is not None:
            base, _ = parse(trial.method, METHODS)
            changed[OWN.get(base, "strength")] = trial.own
    return replace(settings, **changed)
