"""Strength and coupling chosen on validation data, by Optuna. Needs the extra `tune`.

The study is kept in a SQLite file and every run in `records.jsonl`, so a search that was cut resumes. The defaults are
tried first, so on the validation data the result is never worse than they are. The samples that a run with the same
test share and seed tests on take no part.
"""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ldmnet.data.userdata import Samples, share_split
from ldmnet.errors import DataError, StateError, missing_extra
from ldmnet.fingerprints import short_hash
from ldmnet.records.record import append
from ldmnet.runs.compare import RECORDS, RUNS
from ldmnet.runs.run import Run, execute
from ldmnet.runs.samples import SamplesTask, UserSettings
from ldmnet.seeds import derive_seed
from ldmnet.strength import COUPLING, STRENGTH
from ldmnet.training.features import layer_names, named_layer
from ldmnet.training.progress import OnEpoch

TABLE, STUDY = "search", "study.db"
DEFAULTS = {"strength": STRENGTH, "coupling": COUPLING}
RANGES = {"strength": (0.01, 3.0), "coupling": (0.02, 20.0)}


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        strength: weight of the pull, without a unit.
        coupling: the pull over the graph.
        accuracy: mean validation accuracy of the best trial, in percent.
        untuned: that of the trial with the defaults.
        trials: how many were run in all.
        held_out: samples that took no part.
    """

    strength: float
    coupling: float
    accuracy: float
    untuned: float
    trials: int
    held_out: int


def tune_strengths(
    samples: Samples,
    settings: UserSettings,
    folder: Path,
    *,
    trials: int,
    splits: int,
    test_share: float = 0.2,
    on_trial: Callable[[int, float], None] | None = None,
    on_run: Callable[[int], OnEpoch] | None = None,
) -> Tuned:
    """Search until the study has so many trials.

    Args:
        samples: the data.
        settings: all but strength and coupling; the method is LDMNet. Its `test_share` is the share of every class that
            validates, of what `test_share` below leaves.
        folder: keeps the study and the records.
        trials: in all, those of earlier calls counted.
        splits: over which a trial's accuracy is averaged.
        test_share: the share of every class that is held out altogether: the samples that a run with this test share
            and this seed tests on. Zero holds out none.
        on_trial: called with the number and the accuracy of each finished trial.
        on_run: called with the trial's number before each run; what it returns is called every epoch.
    """
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("optuna", "tune") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # a trial that fails would be told with its traceback
    settings = replace(settings, method="ldmnet", strength=None, coupling=None, mu=None, lambda_tilde=None)
    rest = _without_test(samples, test_share, settings.seed)
    # a seed of no split that anything is tested on
    task = SamplesTask(replace(settings, seed=derive_seed(settings.seed, "validation")), rest)
    task.load()  # what cannot be trained ends here, unwritten
    model = settings.network(tuple(rest.x.shape[1:]), len(rest.class_names))
    for name in layer_names(settings.layer):
        named_layer(model, name)
    folder.mkdir(parents=True, exist_ok=True)
    storage = folder / STUDY
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{storage}",
            study_name="ldmnet",
            direction="maximize",
            load_if_exists=True,
        )
    except Exception as error:  # Optuna's and SQLAlchemy's, of a damaged file or one of another version
        if _disk(error):
            raise _unwritten(storage, error) from error
        raise StateError(f"{storage} is not a search that can be resumed. Choose another folder.") from error
    key = short_hash([task.hash(), splits, test_share, len(samples.x)])
    if study.user_attrs.get("key", key) != key:
        raise StateError(f"{storage} holds a search with other data or settings. Choose another folder.")
    study.set_user_attr("key", key)
    study.sampler = optuna.samplers.TPESampler(seed=settings.seed + len(study.trials))  # no draw comes twice
    states = optuna.trial.TrialState
    if not _rule_trials(study, (states.COMPLETE, states.WAITING)):
        study.enqueue_trial(DEFAULTS, user_attrs={"rule": True})

    def accuracy(trial: Any) -> float:
        numbers = {name: trial.suggest_float(name, *ends, log=True) for name, ends in RANGES.items()}
        scores = []
        for i in range(splits):
            run = replace(task, settings=replace(task.settings, **numbers, seed=task.seed + i))
            score = _validated(run, folder, on_run(trial.number) if on_run else None)
            if score is None:  # it diverged
                return 0.0
            scores.append(score)
        return statistics.fmean(scores)

    def report(_: Any, trial: Any) -> None:
        if on_trial is not None and trial.value is not None:
            on_trial(trial.number, trial.value)

    missing = 0 if _rule_trials(study, (states.COMPLETE,)) else 1
    try:
        study.optimize(accuracy, n_trials=max(missing, trials - _finished(study)), callbacks=[report])
    except Exception as error:
        if not _disk(error):
            raise
        raise _unwritten(storage, error) from error
    best, (untuned, *_) = study.best_trial, _rule_trials(study, (states.COMPLETE,))
    return Tuned(
        strength=best.params["strength"],
        coupling=best.params["coupling"],
        accuracy=best.value,
        untuned=untuned.value,
        trials=_finished(study),
        held_out=len(samples.x) - len(rest.x),
    )


def _validated(task: SamplesTask, folder: Path, on_epoch: OnEpoch | None) -> float | None:
    """The validation accuracy of one run in percent, None if it diverged."""
    run = Run(TABLE, "ldmnet", task, "tried")
    record = execute(run, folder / RUNS / task.hash(), task.load, on_epoch=on_epoch, wait=True)
    append(folder / RECORDS, record)
    return record.score


def _without_test(samples: Samples, share: float, seed: int) -> Samples:
    """The samples that no run with this share and seed tests on."""
    if not share:
        return samples
    kept, _ = share_split(samples.labels, share, seed, samples.class_names)
    y = samples.labels[kept]
    for c, name in enumerate(samples.class_names):
        if (n := int((y == c).sum())) < 2:
            raise DataError(
                f"class {name!r} has {n} sample beside those held out to test on: one to train on and one to validate "
                "on are needed. Add samples, or hold out none."
            )
    names = [samples.names[i] for i in kept.tolist()]
    return replace(samples, x=samples.x[kept], y=y, names=names)


def _disk(error: BaseException | None) -> bool:
    """Whether an error of Optuna's comes from SQLite, as where the disk is full or may not be written."""
    return error is not None and (isinstance(error, sqlite3.OperationalError) or _disk(error.__cause__))


def _unwritten(storage: Path, error: BaseException) -> StateError:
    while error.__cause__ is not None:
        error = error.__cause__
    return StateError(f"{storage} cannot be written: {error}. The runs are kept, and the search can be resumed.")


def _finished(study: Any) -> int:
    return sum(trial.state.name == "COMPLETE" for trial in study.trials)


def _rule_trials(study: Any, states: Sequence[Any]) -> list[Any]:
    """The trials of the defaults in one of some states; one that was cut short is in none of them."""
    return [t for t in study.trials if t.user_attrs.get("rule") and t.state in states]
