"""What the benchmarks share: sizes and rounds, medians of interleaved rounds, tables, records that resume."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import ldmnet


def arguments(description: str, sizes: Sequence[int], rounds: int = 5) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--n", type=lambda text: [int(part) for part in text.split(",")], default=list(sizes), help="sizes, by commas"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="each figure is the median of so many")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    return parser


def seconds(work: Callable[[], Any]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def medians(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each, taken in turns so that a slow minute slows all alike; the first round warms up."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            spent = seconds(work)
            if turn:
                taken[name].append(spent)
    return {name: statistics.median(values) for name, values in taken.items()}


def show(title: str, rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows as a table, or all as JSON on standard output with the machine's facts."""
    if as_json:
        json.dump({"title": title, "machine": machine(), "rows": list(rows)}, sys.stdout, indent=1)
        print()
        return
    table = Table(title=title)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*[_cell(row.get(column)) for column in columns])
    Console(width=200).print(table)


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.split("+")[0],
        "ldmnet": ldmnet.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
    }


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


def record_missing(
    runs: Iterable[tuple[dict[str, Any], Callable[[], dict[str, Any]]]], output: Path, part: str = "1/1"
) -> None:
    """Make the runs that are not in a file of JSON lines yet, and append each as it ends.

    Args:
        runs: what names a run, and the function that gives its result.
        output: the file.
        part: which of them, for processes side by side: 1/2 and 2/2. Each needs a file of its own.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    found = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    first, step = (int(number) for number in part.split("/"))
    for place, run in list(runs)[first - 1 :: step]:
        if any(place.items() <= record.items() for record in found):
            continue
        record = {**place, **run()}
        with output.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)
