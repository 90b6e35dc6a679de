"""What a step of SGD gains where the process keeps the memory that its tensors free (`keep_freed_memory`).

python benchmarks/memory.py

The setting is for a whole process and for good, so that every measurement has a process of its own; they take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

import torch
from measure import arguments, show
from torch.nn import functional as F

from ldmnet.networks import cifar_net, embedding_net, initialize, mnist_net, vgg16
from ldmnet.training.memory import keep_freed_memory

NETS = {  # the network, a sample's shape, steps to time
    "mnist": (mnist_net, (1, 28, 28), 60),
    "cifar": (cifar_net, (3, 32, 32), 8),
    "vgg16": (vgg16, (3, 32, 32), 4),
    "faces": (lambda: embedding_net(2016, 25), (2016,), 40),
}
BATCH = 100


def step_seconds(net: str, precision: str) -> float:
    """Median seconds of a step of SGD on one batch, after three that warm up."""
    make, shape, steps = NETS[net]
    model = make()
    initialize(model, "xavier", 0)
    x, y = torch.randn(BATCH, *shape), torch.arange(BATCH) % 10
    if len(shape) == 3:
        model, x = (thing.to(memory_format=torch.channels_last) for thing in (model, x))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    taken = []
    for _ in range(steps + 3):
        started = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            scores = model(x)
        loss = F.cross_entropy(scores.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[3:])


def apart(net: str, precision: str, kept: bool, threads: int) -> float:
    """The same in a process of its own."""
    words = [sys.executable, __file__, "--one", net, precision, "kept" if kept else "left", str(threads)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    return float(subprocess.run(words, capture_output=True, text=True, check=True, env=plain).stdout)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__ or "", [], rounds=3)
    parser.add_argument("--threads", type=int, default=1, help="torch's threads")
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(NETS))
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = parsed()
    if options.one:
        net, precision, kept, threads = options.one
        torch.set_num_threads(int(threads))
        if kept == "kept" and not keep_freed_memory():
            raise SystemExit("the C library is not glibc: there is nothing to keep.")
        print(step_seconds(net, precision))
        return
    rows = []
    for net in options.nets:
        for precision in ("float32", "bfloat16"):
            taken: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(options.rounds):
                for kept, found in taken.items():
                    found.append(apart(net, precision, kept, options.threads))
            before, after = (statistics.median(found) for found in taken.values())
            times = {"left, ms": 1e3 * before, "kept, ms": 1e3 * after, "left / kept": before / after}
            rows.append({"network": net, "precision": precision, **times})
    show("A step of SGD on 100 samples", rows, options.json)


if __name__ == "__main__":
    main()
