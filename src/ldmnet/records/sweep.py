"""Many runs: done ones are skipped, the rest run side by side, and each record is appended as it comes."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ldmnet.records.runs import RECORD, Record, append_record, execute, read_records
from ldmnet.training.history import Epoch

_epochs_done: Synchronized[int] | None = None


class Job(Protocol):
    """What a sweep asks of a run: its place in a table, and settings with a `hash()` and the epochs in `train`."""

    @property
    def table(self) -> str: ...  # noqa: D102
    @property
    def row(self) -> str: ...  # noqa: D102
    @property
    def settings(self) -> Any: ...  # noqa: D102


JobT = TypeVar("JobT", bound=Job)


def sweep_runs(
    runs: Sequence[JobT],
    *,
    runs_dir: Path,
    results: Path,
    data_dir: str | Path | None = None,
    jobs: int = 1,
    console: Console | None = None,
    work: Callable[..., Record] = execute,
    files: Sequence[str] = (),
) -> list[Record]:
    """Run what is not yet recorded, and return the records of all, in the runs' order.

    Args:
        runs: what to run; the first ones first.
        runs_dir: one folder a run, for checkpoints and finished records.
        results: the JSON-lines file that finished runs are appended to.
        data_dir: where the data is.
        jobs: processes side by side.
        console: where the progress goes.
        work: what runs one of them, called as `execute` is; a function of a module, since processes are spawned.
        files: what a run's folder must hold; a recorded run without it is run again, and its record stays.
    """
    console = console or Console(stderr=True)
    recorded = _recorded(results)
    todo = _unfinished(runs, recorded, runs_dir, files)
    found = {key: recorded[key] for key in map(_run_key, runs) if key in recorded}
    before = [*found.values(), *_in_folders([run for run in todo if _run_key(run) not in found], runs_dir)]
    for note, count in Counter(record.get("data_note") for record in before).items():
        if note:  # the settings do not say which files there were
            console.print(
                f"{count} of these runs were done before, and of their data it was noted: {note}. To run them on other "
                "data, name another --results and --runs-dir.",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
    total = sum(run.settings.train.epochs for run in todo)
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
        task = progress.add_task(f"{len(todo)} runs ({len(runs) - len(todo)} done before)", total=total)
        waiting: dict[Future[Record], JobT] = {}
        queue = list(todo)
        try:
            while queue or waiting:
                while len(waiting) < jobs and (free := _free(queue, waiting.values())):
                    run = free[0]
                    queue.remove(run)
                    waiting[pool.submit(_work, work, run, runs_dir, data_dir)] = run
                finished, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                progress.update(task, completed=counter.value)
                for future in finished:
                    run = waiting.pop(future)
                    record = future.result()
                    if _run_key(run) not in found:
                        append_record(results, record)
                        found[_run_key(run)] = record
                    done = len(runs) - len(queue) - len(waiting)
                    console.print(_line(record, done, len(runs)), highlight=False)
        except BaseException:
            for process in (pool._processes or {}).values():  # a cut run goes on from its checkpoint
                process.terminate()
            raise
    return [found[_run_key(run)] for run in runs]


def unfinished(runs: Sequence[JobT], *, runs_dir: Path, results: Path, files: Sequence[str] = ()) -> list[JobT]:
    """The runs that a sweep would run: those without a record, or without a file that their folder must hold."""
    return _unfinished(runs, _recorded(results), runs_dir, files)


def _unfinished(
    runs: Sequence[JobT], recorded: Mapping[tuple[str, str, str], Record], runs_dir: Path, files: Sequence[str]
) -> list[JobT]:
    def lacks(run: JobT) -> bool:
        if "diverged" in recorded[_run_key(run)]:  # a run that diverged leaves no files
            return False
        return any(not (runs_dir / run.settings.hash() / file).exists() for file in files)

    unique = {_run_key(run): run for run in runs}
    return [run for key, run in unique.items() if key not in recorded or lacks(run)]


def _free(queue: Sequence[JobT], running: Iterable[JobT]) -> list[JobT]:
    """The runs that may start: two of the same settings share a folder, and the second waits for the first."""
    hashes = {run.settings.hash() for run in running}
    return [run for run in queue if run.settings.hash() not in hashes]


def _in_folders(runs: Iterable[JobT], runs_dir: Path) -> list[Record]:
    """The records of runs that are done, though not recorded where the sweep writes to."""
    files = [runs_dir / run.settings.hash() / RECORD for run in runs]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _recorded(results: Path) -> dict[tuple[str, str, str], Record]:
    if not results.exists():
        return {}
    return {_key(record): record for record in read_records([results], ("table", "method", "hash"))}


def _start(counter: Synchronized[int]) -> None:
    global _epochs_done
    _epochs_done = counter


def _count(epoch: Epoch) -> None:
    """After each epoch: move the bar, and stop if the sweep itself is gone (a cut run goes on from its checkpoint)."""
    assert _epochs_done is not None
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # an exception would only end the run: its process would wait for another one for ever
    with _epochs_done.get_lock():
        _epochs_done.value += 1


def _work(work: Callable[..., Record], run: Job, runs_dir: Path, data_dir: str | Path | None) -> Record:
    return work(run, runs_dir=runs_dir, data_dir=data_dir, on_epoch=_count)


def _run_key(run: Job) -> tuple[str, str, str]:
    return run.table, run.row, run.settings.hash()


def _key(record: Record) -> tuple[str, str, str]:
    return record["table"], record["method"], record["hash"]


def _line(record: Record, done: int, total: int) -> str:
    seconds = sum(record["seconds"].values())
    size = "" if record["per_class"] is None else f" {record['per_class']} a class"
    where = f"{record['table']}{size}, {record['method']}, seed {record['seed']}"
    if "diverged" in record:
        return f"{done}/{total}  {where}: {record['diverged']}"
    return f"{done}/{total}  {where}: {record['accuracy']:.2f} %  ({seconds:.0f} s)"
