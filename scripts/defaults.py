"""The tables of docs/defaults.md from the records in results/defaults/, written by benchmarks/defaults_*.py."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "results" / "defaults"
TRAINED = math.log(10) / 2  # of ten classes: the loss at which training without a regulariser counts as trained
HARM = -0.3


def defaults_table(name: str) -> str:
    """One of the page's tables as Markdown."""
    path = FOLDER / f"{name}.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    kinds = {
        "grid": _grid,
        "grid-old": _old,
        "harm": _harm,
        "tables": _tables,
        "narrow": _narrow,
        "running": _running,
        "loops": _loops,
        "residual": _residual,
    }
    return kinds[name](records if name != "harm" else _read("grid"))


def _read(name: str) -> list[Record]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _cells(records: list[Record]) -> dict[tuple[Any, ...], dict[str, Record]]:
    """The grid's cells that have all three methods."""
    cells: dict[tuple[Any, ...], dict[str, Record]] = defaultdict(dict)
    for r in records:
        cells[r["net"], r["pixels"], r["start"], r["optimizer"], r["lr"]][r["method"]] = r
    return {cell: found for cell, found in cells.items() if len(found) == 3}


def _trains(found: dict[str, Record]) -> bool:
    return found["none"]["accuracy"] is not None and found["none"]["train_loss"] < TRAINED


def _gain(found: dict[str, Record], method: str) -> float:
    accuracy = found[method]["accuracy"]
    return (0.0 if accuracy is None else accuracy) - found["none"]["accuracy"]


def _grid(records: list[Record]) -> str:
    cells, rows = _cells(records), []
    kinds = [("paper", "sgd"), ("paper", "adamw"), ("batch norm", "sgd"), ("batch norm", "adamw"), (None, None)]
    for net, optimizer in kinds:
        some = [f for c, f in cells.items() if net is None or (c[0], c[3]) == (net, optimizer)]
        trained = [f for f in some if _trains(f)]
        if not trained:
            continue
        gains, control = ([_gain(f, m) for f in trained if f[m]["accuracy"] is not None] for m in ("ldmnet", "control"))
        lost = sum(f["ldmnet"]["accuracy"] is None for f in some if f["none"]["accuracy"] is not None)
        saved = sum(f["ldmnet"]["accuracy"] is not None for f in some if f["none"]["accuracy"] is None)
        rows.append(
            [
                "all" if net is None else f"{net}, {optimizer}",
                str(len(some)),
                str(len(trained)),
                f"{statistics.fmean(control):+.2f}",
                f"**{statistics.fmean(gains):+.2f}**",
                f"{min(gains):+.2f}",
                f"{100 * sum(g >= HARM for g in gains) / len(trained):.0f} %",
                str(lost),
                str(saved),
            ]
        )
    head = ["network and optimizer", "cells", "none trains", "control", "LDMNet", "worst", f"at {HARM} or above"]
    return _table([*head, "NaN by us", "NaN without us only"], rows)


def _harm(records: list[Record]) -> str:
    rows = []
    for cell, found in _cells(records).items():
        if _trains(found) and _gain(found, "ldmnet") < HARM:
            net, pixels, start, optimizer, lr = cell
            numbers = ("none", "control", "ldmnet")
            shown = ["NaN" if found[m]["accuracy"] is None else f"{found[m]['accuracy']:.2f}" for m in numbers]
            rows.append([f"{net}, {pixels}, {start}, {optimizer} {lr:g}", *shown])
    return _table(["cell", "none", "control", "LDMNet"], rows) if rows else "None."


def _old(records: list[Record]) -> str:
    """The rule before this one, in the cells with SGD where training without a regulariser trains."""
    cells, rows = _cells(_read("grid")), []
    for r in records:
        cells.get((r["net"], r["pixels"], r["start"], r["optimizer"], r["lr"]), {})["old rule"] = r
    for net in ("paper", "batch norm"):
        some = [f for c, f in cells.items() if c[0] == net and "old rule" in f and _trains(f)]
        for title, method in (("the rule before", "old rule"), ("now", "ldmnet")):
            gains = [_gain(f, method) for f in some if f[method]["accuracy"] is not None]
            good = sum(g >= HARM for g in gains) / len(some)
            numbers = [f"{statistics.median(gains):+.2f}", f"{min(gains):+.2f}", f"{100 * good:.0f} %"]
            rows.append([f"{net}, sgd", title, str(len(some)), *numbers, str(len(some) - len(gains))])
    return _table(["network and optimizer", "rule", "cells", "median", "worst", f"at {HARM} or above", "NaN"], rows)


def _loops(records: list[Record]) -> str:
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for r in records:
        found[r["cell"]][r["method"]][r["seed"]] = r["accuracy"]
    rows = []
    named = {f"{cell}, strength=0.3": by | {"ldmnet": by["asked"]} for cell, by in found.items() if "asked" in by}
    for cell, by_method in {**found, **named}.items():
        seeds = set.intersection(*(set(by_method[m]) for m in ("none", "control", "ldmnet")))
        if not seeds:
            continue
        means = [f"{statistics.fmean(by_method[m][s] for s in seeds):.2f}" for m in ("none", "control", "ldmnet")]
        gains = [by_method["ldmnet"][s] - by_method["none"][s] for s in sorted(seeds)]
        each = ", ".join(f"{gain:+.2f}" for gain in gains)
        rows.append([cell, *means, f"{statistics.fmean(gains):+.2f}", each])
    return _table(["loop", "none", "control", "LDMNet", "over none", "by seed"], rows)


def _residual(records: list[Record]) -> str:
    by_method: dict[str, dict[int, Record]] = defaultdict(dict)
    for r in records:
        by_method[r["method"]][r["seed"]] = r
    rows = []
    for method, title in (("none", "none"), ("control", "control"), ("ldmnet", "LDMNet")):
        found = by_method[method]
        gains = [found[s]["accuracy"] - by_method["none"][s]["accuracy"] for s in sorted(found)]
        mean, spread = statistics.fmean(gains), statistics.stdev(gains) / len(gains) ** 0.5
        accuracies = [statistics.fmean(r[key] for r in found.values()) for key in ("val_accuracy", "accuracy")]
        over = ["", ""] if method == "none" else [f"{mean:+.2f} ± {spread:.2f}", ", ".join(f"{g:+.2f}" for g in gains)]
        rows.append([title, *(f"{accuracy:.2f}" for accuracy in accuracies), *over])
    return _table(["method", "validation", "test", "over none, test", "by seed"], rows)


def _tables(records: list[Record]) -> str:
    found: dict[tuple[str, int], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for r in records:
        found[r["table"], r["per_class"]][r["method"]][r["seed"]] = r["accuracy"]
    methods, rows, gains = ("none", "dropout", "control", "ldmnet"), [], []
    for (name, per_class), by_method in found.items():
        if any(len(by_method[m]) < len(by_method["none"]) for m in methods):
            continue
        means = [statistics.fmean(by_method[m].values()) for m in methods]
        paired = [by_method["ldmnet"][s] - by_method["none"][s] for s in by_method["none"]]
        gains.append(statistics.fmean(paired))
        spread = f" ± {statistics.stdev(paired) / len(paired) ** 0.5:.2f}" if len(paired) > 1 else ""
        shown = [f"**{m:.2f}**" if m == max(means) else f"{m:.2f}" for m in means]
        rows.append([f"{name}, {per_class}", *shown, f"{gains[-1]:+.2f}{spread}"])
    if gains:
        rows.append(["mean", "", "", "", "", f"**{statistics.fmean(gains):+.2f}**"])
    return _table(["table, per class", "none", "DropOut", "control", "LDMNet", "over none"], rows)


def _narrow(records: list[Record]) -> str:
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for r in records:
        found[r["table"], r["net"]][r["method"]].append(r["accuracy"])
    nets = list(dict.fromkeys(net for _, net in found))
    rows = []
    for table in dict.fromkeys(table for table, _ in found):
        row = [table]
        for net in nets:
            both = found[table, net]
            whole = len(both["ldmnet"]) == len(both["control"]) > 0
            gain = statistics.fmean(both["ldmnet"]) - statistics.fmean(both["control"]) if whole else math.nan
            row.append(f"{gain:+.2f}" if whole else "")
        rows.append(row)
    return _table(["table", *nets], rows)


def _running(records: list[Record]) -> str:
    found: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for r in records:
        found[r["cell"]][r["method"]].append(r)
    rows = []
    for cell, by_method in found.items():
        means = [
            [statistics.fmean(r[key] for r in by_method[m]) for m in ("none", "sweep", "running")]
            for key in ("val_accuracy", "accuracy")
        ]
        rows.append([cell, *(f"{mean:.2f}" for mean in [*means[0], *means[1]])])
    head = [
        "training",
        "without, val.",
        "sweeps, val.",
        "no sweeps, val.",
        "without, test",
        "sweeps, test",
        "no sweeps, test",
    ]
    return _table(head, rows)
