"""The demo: the methods side by side on 500 embedded digits, a table and a picture like the paper's Figure 1."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ldmnet.paper.presets import PRINTED_ROWS, classification_runs
from ldmnet.records.figures import TITLES, feature_figure
from ldmnet.records.runs import Record, append_record, describe, train_once, training_data
from ldmnet.training.features import sweep
from ldmnet.training.progress import EpochBar

QUICK: dict[str, Any] = {"epochs": 28, "batch_size": 50}  # fewer epochs of more steps


def run_demo(*, quick: bool, seed: int, output: Path, threads: int, console: Console) -> list[Record]:
    """Train every method on 50 images a class, test on all the others, print the table, draw the features."""
    started = time.perf_counter()
    runs = classification_runs("digits5k", [50], PRINTED_ROWS, [seed], threads=threads)
    if quick:
        runs = [
            replace(run, settings=replace(run.settings, train=replace(run.settings.train, **QUICK))) for run in runs
        ]
    epochs = runs[0].settings.train.epochs
    console.print(
        f"Training on 50 images of each digit for {epochs} epochs, seed {seed}, once with every method; "
        "testing on the 4,500 others."
    )
    data = training_data(runs[0].settings)
    panels = {"test images": data.test_pixels}
    records = []
    traces = output / "traces"
    shutil.rmtree(traces, ignore_errors=True)  # of an earlier demo
    for run in runs:
        with EpochBar(run.row, epochs, console) as bar:
            result = train_once(run.settings, data, on_epoch=bar, trace=traces / run.settings.hash())
        record = describe(run, data, result)
        records.append(record)
        panels[f"{TITLES[run.row]}: {record['accuracy']:.1f} %"] = sweep(result.model, data.test[0], layer="features")
        if not console.is_terminal:
            console.print(f"{TITLES[run.row]}: {record['accuracy']:.2f} %", highlight=False)
    console.print(_table(records))
    output.mkdir(parents=True, exist_ok=True)
    (output / "records.jsonl").unlink(missing_ok=True)
    for record in records:
        append_record(output / "records.jsonl", record)
    picture = feature_figure(
        panels,
        data.test[1],
        output / "figure1.png",
        title="Features of 4,500 test digits after training on 50 a class (the paper's Figure 1: 100 a class)",
    )
    console.print(f"Features of each method, PCA to two dimensions: {picture.resolve()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - started:.0f} seconds in all.", highlight=False)
    return records


def _table(records: list[Record]) -> Table:
    table = Table(title="Test accuracy, 50 images a class")
    table.add_column("method")
    table.add_column("here", justify="right")
    table.add_column("paper (MNIST's 10,000)", justify="right")
    best = max(record["accuracy"] for record in records)
    for record in records:
        here = f"{record['accuracy']:.2f} %"
        printed = "" if record["paper"] is None else f"{record['paper']:.2f} %"
        table.add_row(TITLES[record["method"]], f"[bold]{here}[/]" if record["accuracy"] == best else here, printed)
    return table
