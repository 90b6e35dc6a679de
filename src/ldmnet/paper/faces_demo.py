"""The demo of matching: digits that two simulated sensors see, tested on digits that nobody trained on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ldmnet.matching.embeddings import METHODS
from ldmnet.paper.demo import earlier_records, replace_records
from ldmnet.paper.face_runs import MatchRun, MatchSettings, load_fold, match_once
from ldmnet.paper.faces import default_embedding, row_title, untuned_selection
from ldmnet.records.runs import Record
from ldmnet.training.progress import EpochBar

TABLE = "digits"
SPLITS, EPOCHS, WIDTH = 4, 80, 500
MU, STRENGTH = 1.0, 5.0  # of LDMNet, beside the printed ones


def run_faces_demo(
    *,
    output: Path,
    console: Console,
    threads: int,
    rows: Sequence[str] = METHODS,
    splits: int = SPLITS,
    epochs: int = EPOCHS,
) -> list[Record]:
    """Every method on digits seen by two simulated sensors; the tested digits are not among the training ones.

    Raises:
        StateError: the folder has records of something else.
    """
    earlier = earlier_records(output, TABLE)
    started = time.perf_counter()
    console.print(
        f"Learning from six digits seen by two sensors, {epochs} epochs, and identifying the four others: "
        f"{splits} splits, {len(rows)} methods. An illustration: the digits are few enough for the graph to reach from "
        "one sensor to the other, and nothing was tuned on validation people.",
        highlight=False,
    )
    records = []
    for row in rows:
        embedding = replace(default_embedding(row, epochs), width=WIDTH)
        if row == "ldmnet_tuned":
            embedding = replace(embedding, method=replace(embedding.method, mu=MU, lambda_tilde=STRENGTH))
        found = []
        for split in range(splits):
            settings = MatchSettings(TABLE, split, embedding, threads=threads)
            table, fold = load_fold(settings)
            with EpochBar(f"{row} {split + 1}/{splits}", settings.train.epochs, console, after=30) as bar:
                found.append(
                    match_once(MatchRun(TABLE, row, settings, untuned_selection(row)), table, fold, on_epoch=bar)
                )
        if not console.is_terminal:
            mean = statistics.fmean(record["accuracy"] for record in found)
            console.print(f"{row_title(found[0])}: {mean:.1f} %", highlight=False)
        records += found
    replace_records(output, earlier, records)
    console.print(f"{time.perf_counter() - started:.0f} seconds in all.", highlight=False)
    return records
