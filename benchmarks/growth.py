"""How one update grows with the number of points: time and peak memory, each size in a process of its own.

    python benchmarks/growth.py --n 10000,100000,1000000 --class-size 1000
    python benchmarks/growth.py --n 100000,300000,1000000 --classes 10 --neighbors auto --plot growth.png

The points lie near curved sheets of six dimensions, 64 input and 64 feature coordinates; before each later update every
feature moves by 0.01 of a standard normal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import resource
import subprocess
import sys
from functools import partial
from typing import Any

import torch
from measure import arguments, seconds, show
from points import class_points

from ldmnet import ManifoldRegularizer
from ldmnet.graph.neighbors import SearchKind
from ldmnet.records.figures import pyplot

D_IN, D_FEAT = 64, 64


def one_size(n: int, classes: int, neighbors: SearchKind, rounds: int) -> dict[str, Any]:
    """Measure in this process: the first update and the median of the next ones."""
    inputs, features, labels = class_points(n, classes, D_IN, D_FEAT, intrinsic=6)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    regularizer = ManifoldRegularizer(inputs, labels, mu=0.01, lambda_tilde=0.05, neighbors=neighbors)
    first = seconds(partial(regularizer.step, features))
    draw = torch.Generator().manual_seed(1)
    later = []
    for _ in range(rounds):
        features = features + 0.01 * torch.randn(features.shape, generator=draw)
        later.append(seconds(partial(regularizer.step, features)))
    spent = sorted(later)[len(later) // 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    last = regularizer.log[-1].seconds
    return {
        "n": n,
        "classes": classes,
        "neighbours": neighbors,
        "first update, s": first,
        "update, s": spent,
        "graph, s": last["graph"],
        "solve, s": last["solve"],
        "recall": min(update.recall for update in regularizer.log),
        "microseconds a point": 1e6 * spent / n,
        "peak memory, GB": peak / 1e9,
        "bytes a point beyond the data": (peak - before * 1024) / n,
    }


def exponents(rows: list[dict[str, Any]]) -> None:
    """Add to each row the power of n by which time grew since the row before it."""
    for before, after in itertools.pairwise(rows):
        for what in ("first update, s", "update, s"):
            power = math.log(after[what] / before[what]) / math.log(after["n"] / before["n"])
            after[f"{what.removesuffix(', s')}: power of n"] = power


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Seconds and memory against n, with the slope of proportional growth."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.4), layout="constrained")
    n = [row["n"] for row in rows]
    for what, marker in (("first update, s", "s"), ("update, s", "o")):
        left.loglog(n, [row[what] for row in rows], marker=marker, label=what.removesuffix(", s"))
    left.loglog(n, [rows[0]["update, s"] * m / n[0] for m in n], ":", color="grey", label="proportional to n")
    left.set(xlabel="points", ylabel="seconds")
    left.legend(frameon=False)
    right.loglog(n, [row["peak memory, GB"] for row in rows], marker="o")
    right.set(xlabel="points", ylabel="peak memory, GB")
    first = rows[0]
    classes = (
        f"{first['classes']} classes"
        if first["classes"] == rows[-1]["classes"]
        else f"{n[0] // first['classes']} a class"
    )
    figure.suptitle(f"One update, {classes}, neighbours {first['neighbours']}", fontsize=11)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], [10_000, 100_000], rounds=5)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--class-size", type=int, default=None, help="points per class, in place of --classes")
    parser.add_argument("--neighbors", choices=["exact", "auto"], default="exact")
    parser.add_argument("--plot", default=None, help="a picture to write")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(one_size(options.n[0], options.classes, options.neighbors, options.rounds)))
        return
    rows = []
    for n in options.n:
        classes = n // options.class_size if options.class_size else options.classes
        command = [sys.executable, __file__, "--child", "--n", str(n), "--classes", str(classes)]
        command += ["--rounds", str(options.rounds), "--neighbors", options.neighbors]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
        print(f"{n:,} points: {rows[-1]['update, s']:.2f} s", file=sys.stderr)
    exponents(rows)
    if options.plot:
        draw(rows, options.plot)
    show("One update as the data grows (64 input and 64 feature coordinates)", rows, options.json)


if __name__ == "__main__":
    main()
