"""Runs: one `Run`, one `execute` that loads, trains, resumes, keeps snapshots and records; many of them in a sweep."""

from ldmnet.runs.datasets import RunSettings
from ldmnet.runs.run import Run, execute
from ldmnet.runs.samples import SamplesTask, UserSettings
from ldmnet.runs.sweep import Kept, Places, sweep_runs, unfinished

__all__ = [
    "Kept",
    "Places",
    "Run",
    "RunSettings",
    "SamplesTask",
    "UserSettings",
    "execute",
    "sweep_runs",
    "unfinished",
]
