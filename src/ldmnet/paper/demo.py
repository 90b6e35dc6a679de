"""Demos and Figure 1: the methods side by side on a data set by name, and on digits that two sensors see."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor

from ldmnet.errors import DataError, StateError
from ldmnet.matching.embeddings import METHODS
from ldmnet.palette import title_of
from ldmnet.paper.faces import default_embedding, starts
from ldmnet.paper.presets import PRINTED_ROWS, classification_runs
from ldmnet.records.figures import feature_figure
from ldmnet.records.matched import row_title
from ldmnet.records.record import Record, append, read_records
from ldmnet.runs.datasets import RunSettings
from ldmnet.runs.matching import MatchSettings
from ldmnet.runs.run import WEIGHTS, Run, execute
from ldmnet.training.features import sweep
from ldmnet.training.progress import EpochBar

TABLE, FACES = "digits5k", "digits"
QUICK: dict[str, Any] = {"epochs": 28, "batch_size": 50}  # fewer epochs of more steps
SPLITS, EPOCHS, WIDTH = 4, 80, 500  # of the digits that two sensors see
QUICK_FACES = 1, 20
MU, STRENGTH = 1.0, 5.0  # of LDMNet there, beside the printed ones


def run_demo(*, quick: bool, seed: int, output: Path, threads: int, console: Console) -> list[Record]:
    """Train every method on 50 images per class, test on all the others, draw the features; done runs are skipped.

    Raises:
        StateError: the folder has records of something else.
    """
    path, started = _records_of(output, TABLE), time.perf_counter()
    runs = classification_runs(TABLE, [50], PRINTED_ROWS, [seed], threads=threads)
    if quick:
        brief = replace(runs[0].settings.train, **QUICK)
        runs = [replace(run, settings=replace(run.settings, train=brief)) for run in runs]
    console.print(
        f"Training on 50 images of each digit for {runs[0].settings.epochs} epochs, seed {seed}, once with every "
        "method; testing on the 4,500 others."
    )
    title = "Features of 4,500 test digits after training on 50 per class (the paper's Figure 1: 100 per class)"
    picture = output / "figure1.png"
    records = draw_features(runs, picture, title, runs_dir=output / "runs", console=console, snapshots=True)
    for record in records:
        append(path, record)
    if not console.is_terminal:
        for record in records:
            console.print(f"{title_of(record.method)}: {record.accuracy:.2f} %", highlight=False)
    console.print(f"Features of each method, PCA to two dimensions: {picture.resolve()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - started:.0f} seconds in all.", highlight=False)
    return records


def draw_features(
    runs: Sequence[Run[RunSettings]],
    output: Path,
    title: str,
    *,
    runs_dir: Path,
    data_dir: str | Path | None = None,
    console: Console,
    snapshots: bool = False,
) -> list[Record]:
    """Figure 1: make the runs whose weights are not in `runs_dir`, draw the features of the test images by each.

    Returns:
        The runs' records.
    """
    data = runs[0].settings.load(data_dir)
    panels: dict[str, Tensor] = {"test images": data.test_pixels}
    records = []
    for run in runs:
        folder = runs_dir / run.settings.hash()
        with EpochBar(run.row, run.settings.epochs, console) as bar:
            record = execute(run, folder, lambda: data, on_epoch=bar, keep_weights=True, snapshots=snapshots)
        records.append(record)
        if record.diverged:
            console.print(f"{title_of(run.row)} is left out: {record.diverged}", soft_wrap=True, highlight=False)
            continue
        model = run.settings.network(folder / WEIGHTS)
        panels[f"{title_of(run.row)}: {record.accuracy:.1f} %"] = sweep(model, data.test[0], layer="features")
    feature_figure(panels, data.test[1], output, title=title)
    return records


def run_faces_demo(
    *, quick: bool, output: Path, threads: int, console: Console, rows: Sequence[str] = METHODS
) -> list[Record]:
    """Every method on digits seen by two simulated sensors; the tested digits are not among the training ones.

    Raises:
        StateError: the folder has records of something else.
    """
    path, started = _records_of(output, FACES), time.perf_counter()
    splits, epochs = QUICK_FACES if quick else (SPLITS, EPOCHS)
    console.print(
        f"Learning from six digits seen by two sensors, {epochs} epochs, and identifying the four others: "
        f"{splits} splits, {len(rows)} methods. An illustration: the digits are few enough for the graph to reach from "
        "one sensor to the other, and nothing was tuned on validation people.",
        highlight=False,
    )
    records = []
    for row, choice in starts(rows, epochs).items():
        embedding = replace(default_embedding(row, epochs), width=WIDTH)
        if row == "ldmnet_tuned":
            embedding = replace(embedding, method=replace(embedding.method, mu=MU, lambda_tilde=STRENGTH))
        found = []
        for split in range(splits):
            settings = MatchSettings(FACES, split, embedding, threads=threads)
            run = Run(FACES, row, settings, choice.selection, more={"val_accuracy": None})
            with EpochBar(f"{row} {split + 1}/{splits}", settings.epochs, console, after=30) as bar:
                found.append(execute(run, output / "runs" / settings.hash(), settings.load, on_epoch=bar))
            append(path, found[-1])
        if not console.is_terminal:
            mean = statistics.fmean(record.accuracy or 0.0 for record in found)
            console.print(f"{row_title(found[0])}: {mean:.1f} %", highlight=False)
        records += found
    console.print(f"{time.perf_counter() - started:.0f} seconds in all.", highlight=False)
    return records


def _records_of(output: Path, table: str) -> Path:
    """The file of a demo's records in a folder; one with records of anything else is refused."""
    path = output / "records.jsonl"
    try:
        strange = path.exists() and any(record.table != table for record in read_records([path]))
    except DataError:
        strange = True
    if strange:
        raise StateError(f"{path} holds records of something else than this demo. Choose another folder.")
    return path
