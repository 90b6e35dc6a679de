"""The demo: the methods side by side on 500 embedded digits, a table and a picture like the paper's Figure 1."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ldmnet.errors import DataError, StateError
from ldmnet.files import write_atomically
from ldmnet.paper.presets import PRINTED_ROWS, classification_runs
from ldmnet.records.figures import TITLES, feature_figure
from ldmnet.records.runs import Record, describe, read_records, train_once, training_data
from ldmnet.training.features import sweep
from ldmnet.training.progress import EpochBar

TABLE = "digits5k"
QUICK: dict[str, Any] = {"epochs": 28, "batch_size": 50}  # fewer epochs of more steps


def run_demo(*, quick: bool, seed: int, output: Path, threads: int, console: Console) -> list[Record]:
    """Train every method on 50 images a class, test on all the others, print the table, draw the features.

    Raises:
        StateError: the folder has records of something else.
    """
    earlier = earlier_records(output, TABLE)
    started = time.perf_counter()
    runs = classification_runs(TABLE, [50], PRINTED_ROWS, [seed], threads=threads)
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
    for run in runs:
        with EpochBar(run.row, epochs, console) as bar:
            result = train_once(run.settings, data, on_epoch=bar, trace=traces / run.settings.hash())
        record = describe(run, data, result)
        records.append(record)
        panels[f"{TITLES[run.row]}: {record['accuracy']:.1f} %"] = sweep(result.model, data.test[0], layer="features")
        if not console.is_terminal:
            console.print(f"{TITLES[run.row]}: {record['accuracy']:.2f} %", highlight=False)
    console.print(_table(records))
    replace_records(output, earlier, records)
    picture = feature_figure(
        panels,
        data.test[1],
        output / "figure1.png",
        title="Features of 4,500 test digits after training on 50 a class (the paper's Figure 1: 100 a class)",
    )
    console.print(f"Features of each method, PCA to two dimensions: {picture.resolve()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - started:.0f} seconds in all.", highlight=False)
    return records


def earlier_records(output: Path, table: str) -> list[Record]:
    """The records that an earlier demo left in a folder; those of anything else are refused."""
    path = output / "records.jsonl"
    if not path.exists():
        return []
    try:
        records = read_records([path])
    except DataError:
        records = [{}]
    if any(record.get("table") != table for record in records):
        raise StateError(f"{path} holds records of something else than this demo. Choose another --output.")
    return records


def replace_records(output: Path, earlier: Sequence[Record], records: Sequence[Record]) -> None:
    """Put a demo's records in the place of an earlier one's, whose traces go; nothing else in the folder does."""
    kept = {str(record.get("hash", "")) for record in records}
    for name in {str(record.get("hash", "")) for record in earlier} - kept:
        if name.isalnum():  # a folder in traces, not a way out of it
            shutil.rmtree(output / "traces" / name, ignore_errors=True)
    write_atomically(output / "records.jsonl", "".join(json.dumps(record) + "\n" for record in records))


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
