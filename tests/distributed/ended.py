"""Run by torchrun: trains, and tells which threads of gloo are left when the interpreter ends, with the result kept."""

import atexit
import sys
from pathlib import Path

import victims

from ldmnet import Method, TrainSettings, fit
from ldmnet.errors import DistributedError
from ldmnet.networks import mlp

KEPT = []


def threads_left():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


def tell():
    threads = threads_left()
    try:
        KEPT[0].step(KEPT[1])
    except DistributedError as error:
        sys.stdout.write(f"left {threads}, then: {error}\n")


if __name__ == "__main__":
    atexit.register(tell)  # before ours, so that it is called after it
    x, y = victims.samples()
    settings = TrainSettings(epochs=4, lr=0.05, batch_size=30)
    result = fit(mlp(5, 3, (16,)), (x, y), method=Method(name="ldmnet"), settings=settings, progress=False)
    KEPT[:] = [result.regularizer, result.regularizer.target]
