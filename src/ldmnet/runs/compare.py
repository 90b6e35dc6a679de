"""All methods on someone's own data, over repeated stratified splits: one record per method and split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from ldmnet.data.userdata import Samples
from ldmnet.errors import InputError
from ldmnet.records.record import Record, append, read_records
from ldmnet.runs.classical import CLASSICAL, classical
from ldmnet.runs.run import Run, execute
from ldmnet.runs.samples import UserSettings
from ldmnet.runs.tuned import TunedTask
from ldmnet.training.methods import METHODS
from ldmnet.training.progress import OnEpoch
from ldmnet.training.rivals import RIVALS

TABLE, RECORDS, RUNS = "comparison", "records.jsonl", "runs"


def without_dropout(methods: Sequence[str], settings: UserSettings, samples: Samples) -> tuple[str, ...]:
    """The methods but dropout, if others are asked for and the network has no nn.Dropout layer that it could set."""
    others = tuple(method for method in methods if method != "dropout")
    if not others or len(others) == len(methods):
        return tuple(methods)
    model = settings.network(tuple(samples.x.shape[1:]), len(samples.class_names))
    return tuple(methods) if any(isinstance(module, nn.Dropout) for module in model.modules()) else others


def compare_methods(
    samples: Samples,
    settings: UserSettings,
    folder: Path,
    *,
    methods: Sequence[str] = METHODS,
    splits: int = 5,
    name: str = "",
    on_run: Callable[[str, int], OnEpoch | None] | None = None,
    snapshots: bool = True,
) -> list[Record]:
    """Train every method on every split and test on the part held out; runs that are recorded are skipped.

    A run that diverges has a record without an accuracy, and the others are made.

    Args:
        samples: the data.
        settings: all but the method; its seed is the first split's, the others follow it.
        folder: keeps `records.jsonl` and one folder per run.
        methods: which.
        splits: how many; every method sees the same ones.
        name: the data's name for people.
        on_run: called with the method and the split before each run; what it returns is called every epoch.
        snapshots: keep what a report shows of the first split's runs.
    """
    if not methods:
        known = ", ".join((*METHODS, *RIVALS, *CLASSICAL))
        raise InputError(f"a comparison needs one or more methods. The methods: {known}.")
    if not settings.test_share:
        raise InputError("a comparison needs a test share above zero.")
    for method in methods:
        if classical(method) is None:
            replace(settings, method=method).regularisation()  # numbers that do not fit end here, before the first run
    path, first = folder / RECORDS, TunedTask(settings, samples, name=name)
    done = {record.hash: record for record in read_records([path])} if path.exists() else {}
    found = []
    for split in range(splits):
        for method in methods:
            task = replace(first, settings=replace(settings, method=method, seed=settings.seed + split))
            key = task.hash()
            if key not in done:
                done[key] = execute(
                    Run(TABLE, method, task, "given"),
                    folder / RUNS / key,
                    task.load,
                    on_epoch=on_run(method, split) if on_run else None,
                    snapshots=snapshots and split == 0,
                    wait=True,
                )
                append(path, done[key])
            found.append(done[key])
    return found
