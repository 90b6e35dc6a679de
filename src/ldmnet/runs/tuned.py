"""A task whose learning rate, weight decay and own strength are chosen on validation data first."""

from __future__ import annotations

import tempfile
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
from ldmnet.training.methods import METHODS
from ldmnet.training.rivals import parse

VALIDATES = 0.25  # the share of every class of the training part that trials are judged on
LENGTH = 0.5  # of a trial, in epochs of the training that it chooses for
OWN = {"weight_decay": "weight_decay", "dropout": "dropout"}  # where it is not the strength


@dataclass(frozen=True, eq=False)
class TunedTask(SamplesTask):
    """Train and test on someone's own samples with numbers that `settings.trials` trials chose; none takes defaults."""

    def measure(self, data: Split, watch: Watch) -> Measured:
        """Try, choose on a part of the training part, and train on all of it with the numbers chosen."""
        if not self.settings.trials:
            return super().measure(data, watch)
        part, epochs = self._validated(data), max(1, round(LENGTH * self.settings.training().epochs))

        def accuracy(trial: Trial) -> float | None:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    short = replace(at(self.settings, trial), epochs=epochs)
                    tried = replace(self, settings=short).measure(part, Watch(Path(folder)))
                except DivergenceError:
                    return None
            found: float = tried.fields["accuracy"]
            return found

        best, budget = choose(trials(self.settings.method, self.settings.trials), accuracy)
        measured = replace(self, settings=at(self.settings, best)).measure(data, watch)
        return replace(measured, fields={**measured.fields, "budget": budget})

    def _validated(self, data: Split) -> Split:
        """The training part with some of it to test on: what the split validates with, or a share of every class."""
        if len(data.valid) and self.settings.patience is None:
            kept = data.train[~torch.isin(data.train, data.valid)]
            return replace(data, train=kept, test=data.valid)
        y, seed = self.samples.labels[data.train], derive_seed(self.settings.seed, "tuning")
        left, held = share_split(y, VALIDATES, seed, self.samples.class_names)
        return replace(data, train=data.train[left], test=data.train[held])


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
