"""How one update grows with the number of points: time and peak memory, each size in a process of its own.

python benchmarks/growth.py --n 10000,100000,1000000 --classes 1000
python benchmarks/growth.py --n 10000,30000,100000 --classes 10
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from functools import partial
from typing import Any

import torch
from measure import arguments, seconds, show
from points import class_points

from ldmnet import ManifoldRegularizer

D_IN, D_FEAT = 64, 64


def one_size(n: int, classes: int, class_size: int | None, rounds: int) -> dict[str, Any]:
    """Measure in this process: the first update and the median of the next ones."""
    classes = n // class_size if class_size else classes
    inputs, features, labels = class_points(n, classes, D_IN, D_FEAT, intrinsic=6)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    regularizer = ManifoldRegularizer(inputs, labels, mu=0.01, lambda_tilde=0.05)
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
        "first update, s": first,
        "update, s": spent,
        "graph, s": last["graph"],
        "solve, s": last["solve"],
        "microseconds a point": 1e6 * spent / n,
        "peak memory, GB": peak / 1e9,
        "bytes a point beyond the data": (peak - before * 1024) / n,
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], [10_000, 100_000], rounds=3)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--class-size", type=int, default=None, help="points a class, in place of --classes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(one_size(options.n[0], options.classes, options.class_size, options.rounds)))
        return
    rows = []
    for n in options.n:
        command = [sys.executable, __file__, "--child", "--n", str(n), "--classes", str(options.classes)]
        command += ["--rounds", str(options.rounds)]
        if options.class_size:
            command += ["--class-size", str(options.class_size)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    show("One update as the data grows (64 input and 64 feature coordinates)", rows, options.json)


if __name__ == "__main__":
    main()
