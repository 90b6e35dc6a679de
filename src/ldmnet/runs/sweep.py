"""Many runs: done ones are skipped, the rest run side by side, and each record is appended as it comes.

Several sweeps may share their folders: a run that another process is at is waited for, not done twice.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait as wait_for
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ldmnet.errors import StateError
from ldmnet.locks import BusyError
from ldmnet.records.record import Record, append, read_records
from ldmnet.records.snapshots import FILE as SNAPSHOTS
from ldmnet.runs.run import RECORD, WEIGHTS, Run, Task, execute, read_run
from ldmnet.training.history import Epoch

LOOK_AGAIN = 2.0  # seconds, for a run that another process is at
Key = tuple[str, str, str]
AnyRun = Run[Task]

_epochs_done: Synchronized[int] | None = None


@dataclass(frozen=True)
class Places:
    """Where things are, and how many runs are made at a time.

    Attributes:
        jobs: runs side by side; None takes all cores.
        data_dir: the folder of the data; None takes $LDMNET_DATA.
        runs_dir: one folder per run goes in here.
        results: the folder of the records.
    """

    jobs: int | None = None
    data_dir: str | Path | None = None
    runs_dir: Path = Path("runs")
    results: Path = Path("results")


@dataclass(frozen=True)
class Kept:
    """What a run's folder must hold once it is done.

    Attributes:
        weights: the trained network.
        snapshots: features at ten epochs, for a report.
    """

    weights: bool = False
    snapshots: bool = False

    @property
    def files(self) -> list[str]:
        """By name."""
        return [name for name, asked in ((WEIGHTS, self.weights), (SNAPSHOTS, self.snapshots)) if asked]


def load_task(settings: Task, data_dir: str | Path | None) -> Any:
    """A task's data."""
    return settings.load(data_dir)


def sweep_runs(
    runs: Sequence[AnyRun],
    name: str,
    places: Places,
    *,
    kept: Kept | None = None,
    load: Callable[[Any, str | Path | None], Any] = load_task,
    console: Console | None = None,
) -> list[Record]:
    """Run what is not yet recorded, and return the records of all, in the runs' order.

    Args:
        runs: what to run; the first ones first.
        name: of the JSON-lines file in `places.results` that finished runs are appended to.
        places: where things are.
        kept: what the folders must hold; a recorded run without it is run again, and its record stays.
        load: gives a task's data; a function of a module, since processes are spawned.
        console: where the progress goes.
    """
    console, kept = console or Console(stderr=True), kept or Kept()
    results, jobs = places.results / f"{name}.jsonl", places.jobs or cores()
    recorded = _recorded(results)
    found = {run.key: replace(recorded[run.key], **run.place()) for run in runs if run.key in recorded}
    todo = _unfinished(runs, found, places.runs_dir, kept)
    _tell_notes([*found.values(), *_in_folders([r for r in todo if r.key not in found], places.runs_dir)], console)
    work = partial(_work, places=places, kept=kept, load=load)
    progress = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    with (
        progress,
        ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(counter,)) as pool,
    ):
        title = f"{len(todo)} runs ({len(runs) - len(todo)} done before)"
        task = progress.add_task(title, total=sum(run.settings.epochs for run in todo))
        waiting: dict[Future[Record | str], AnyRun] = {}
        queue, elsewhere = list(todo), dict[Key, float]()
        try:
            while queue or waiting:
                while len(waiting) < jobs and (free := _free(queue, waiting.values(), elsewhere)):
                    queue.remove(free[0])
                    waiting[pool.submit(work, free[0])] = free[0]
                if not waiting:  # all that is left is done by others
                    time.sleep(0.5)
                    continue
                finished, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                progress.update(task, completed=counter.value)
                for future in finished:
                    run, record = waiting.pop(future), future.result()
                    if isinstance(record, str):
                        if run.key not in elsewhere:
                            console.print(
                                f"{run.row}, seed {run.settings.seed}: done by {record}", highlight=False, markup=False
                            )
                        elsewhere[run.key] = time.monotonic() + LOOK_AGAIN
                        queue.append(run)
                        continue
                    found.setdefault(run.key, record)
                    append(results, found[run.key])
                    done = len(runs) - len(queue) - len(waiting)
                    console.print(_line(record, done, len(runs)), highlight=False, markup=False)
        except BaseException as error:
            for process in (pool._processes or {}).values():  # a cut run resumes from its checkpoint
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise StateError(
                    "a process of the sweep was ended from outside, as the system does where memory is short. Run the "
                    "same command again, with fewer jobs: finished runs are kept, cut ones resume."
                ) from error
            raise
    for key, record in found.items():
        if record.chosen and key in recorded and not recorded[key].chosen:  # it is chosen again
            append(results, record)
    return [found[run.key] for run in runs]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def unfinished(runs: Sequence[AnyRun], name: str, places: Places, kept: Kept | None = None) -> list[AnyRun]:
    """The runs that a sweep would run: those without a record, or without a file that their folder must hold."""
    return _unfinished(runs, _recorded(places.results / f"{name}.jsonl"), places.runs_dir, kept or Kept())


def _unfinished(runs: Sequence[AnyRun], recorded: Mapping[Key, Record], runs_dir: Path, kept: Kept) -> list[AnyRun]:
    def lacks(run: AnyRun) -> bool:
        if recorded[run.key].diverged:  # a run that diverged leaves no files
            return False
        return any(not (runs_dir / run.settings.hash() / file).exists() for file in kept.files)

    unique = {run.key: run for run in runs}
    return [run for key, run in unique.items() if key not in recorded or lacks(run)]


def _free(queue: Sequence[AnyRun], running: Iterable[AnyRun], elsewhere: Mapping[Key, float]) -> list[AnyRun]:
    """The runs that may start: two of the same settings share a folder, and the second waits for the first."""
    hashes, now = {run.settings.hash() for run in running}, time.monotonic()
    return [run for run in queue if run.settings.hash() not in hashes and elsewhere.get(run.key, 0.0) <= now]


def _in_folders(runs: Iterable[AnyRun], runs_dir: Path) -> list[Record]:
    """The records of runs that are done, though not recorded where the sweep writes to."""
    folders = [runs_dir / run.settings.hash() for run in runs]
    found = [read_run(folder) for folder in folders if (folder / RECORD).exists()]
    return [record for record in found if record.finished]


def _tell_notes(before: Sequence[Record], console: Console) -> None:
    """Say what was odd about the data of earlier runs: the settings do not say which files there were."""
    for note, count in Counter(record.data_note for record in before).items():
        if note:
            console.print(
                f"{count} of these runs were done before, and of their data it was noted: {note}. To run them on other "
                "data, choose other folders for the records and the runs.",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )


def _recorded(results: Path) -> dict[Key, Record]:
    records = read_records([results]) if results.exists() else []
    return {(record.table, record.method, record.hash): record for record in records}


def _start(counter: Synchronized[int]) -> None:
    global _epochs_done
    _epochs_done = counter
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process, idle or not, when the sweep itself is gone; a cut run resumes from its checkpoint."""
    wait_for([parent])
    os._exit(1)  # an exception would only end the run: its process would wait for another one for ever


def _count(epoch: Epoch) -> None:
    """After each epoch: move the bar."""
    assert _epochs_done is not None
    with _epochs_done.get_lock():
        _epochs_done.value += 1


def _work(run: AnyRun, *, places: Places, kept: Kept, load: Callable[..., Any]) -> Record | str:
    """One run in its own folder; the owner's name if another process is at it."""
    try:
        return execute(
            run,
            places.runs_dir / run.settings.hash(),
            partial(load, run.settings, places.data_dir),
            on_epoch=_count,
            keep_weights=kept.weights,
            snapshots=kept.snapshots,
        )
    except BusyError as error:
        return error.owner


def _line(record: Record, done: int, total: int) -> str:
    size = "" if record.per_class is None else f" {record.per_class} per class"
    where = f"{done}/{total}  {record.table}{size}, {record.method}, seed {record.seed}"
    if record.diverged:
        return f"{where}: {record.diverged}"
    badly = f"  ended badly: {' '.join(record.ended_badly)}" if record.ended_badly else ""
    return f"{where}: {record.accuracy:.2f} %  ({sum(record.seconds.values()):.0f} s){badly}"
