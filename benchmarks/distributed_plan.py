"""The plan of an update simulated at sizes that no machine here holds: rows and bytes of every process, and time.

    python benchmarks/distributed_plan.py           # results/benchmarks/distributed_plan.json

The plan is the one that a training makes, from the sizes of the classes; only the features are not there. Process r
brings the samples r, r + R, ... as a sampler gives them. Counted are the rows that each process then holds, the
features that go to another process, and the targets that come back where every process keeps them and where every
machine of eight does. Time is that of a real update of a few classes of ImageNet's size by one process with one thread,
per sample, times the rows of the fullest process: graph and solve, without messages.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ldmnet import ManifoldRegularizer
from ldmnet.distributed.plan import Plan
from ldmnet.graph.groups import Groups

ROOT = Path(__file__).parents[1]
IMAGENET, CLASSES, WIDTH = 1_281_167, 1000, 2048
PROCESSES, PER_MACHINE = (8, 64, 512), 8


def imagenet() -> Tensor:
    """1,000 classes of at most 1,300 samples, 764 the fewest, and 1,281,167 in all, about as ImageNet has; shuffled."""
    sizes = torch.full((CLASSES,), 1300)
    rest = torch.linspace(0, 1, 105).square() * 568  # how far the smaller classes are below
    sizes[:105] -= (rest * ((1300 * CLASSES - IMAGENET) / rest.sum())).round().clamp(max=568).long()
    sizes[200] += IMAGENET - int(sizes.sum())
    return torch.repeat_interleave(sizes)[torch.randperm(IMAGENET, generator=torch.Generator().manual_seed(0))]


def unequal() -> Tensor:
    """As many samples in 1,000 classes, the k-th with a share of 1 / k."""
    draw = torch.Generator().manual_seed(0)
    return torch.multinomial(1 / torch.arange(1, CLASSES + 1.0), IMAGENET, replacement=True, generator=draw)


DATA = {"ImageNet": imagenet, "the k-th class with a share of 1/k": unequal}


def simulated(y: Tensor, size: int, d: int) -> dict[str, Any]:
    """Rows and bytes of an update, counted sample by sample from the plan."""
    groups = Groups(y)
    plan = Plan(groups, size, rank=0)
    holder = plan.holder.long()
    brings = groups.order % size
    rows = torch.bincount(holder, minlength=size)
    sent = int((brings != holder).sum()) * (4 * d + 8)
    machines = max(1, size // PER_MACHINE)
    to_all = sum(int(len(y) - held) for held in rows) * 4 * d
    leads = torch.arange(machines) * PER_MACHINE  # one process of each machine writes
    to_machines = sum(int(len(y) - rows[lead]) for lead in leads) * 4 * d
    return {
        "processes": size,
        "fullest": int(rows.max()),
        "fullest_over_even": round(float(rows.max()) * size / len(y), 3),
        "sharded": len(plan.sharded),
        "features_gb": round(sent / 1e9, 2),
        "formula_features_gb": round(len(y) * (1 - 1 / size) * (4 * d + 8) / 1e9, 2),
        "targets_gb": round(to_all / 1e9, 2),
        "formula_targets_gb": round(len(y) * (size - 1) * 4 * d / 1e9, 2),
        "targets_per_machine_gb": round(to_machines / 1e9, 2),
        "formula_per_machine_gb": round(len(y) * machines * (1 - 1 / size) * 4 * d / 1e9, 2),
    }


def timed(classes: int, per_class: int, d: int) -> dict[str, float]:
    """Seconds per sample of the second update of a few classes, one process, one thread."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(classes).repeat_interleave(per_class)
    plane = torch.randn(16, d, generator=draw)
    f = 3 * torch.randn(classes, d, generator=draw)[y] + torch.randn(len(y), 16, generator=draw) @ plane
    f += 0.1 * torch.randn(f.shape, generator=draw)
    regularizer = ManifoldRegularizer(groups=y, mu=0.01, lambda_tilde=0.05)
    regularizer.step(f)
    started = time.perf_counter()
    regularizer.step(f + 0.05 * torch.randn(f.shape, generator=draw))
    return {"seconds_per_sample": (time.perf_counter() - started) / len(y), **regularizer.log[-1].seconds}


def main() -> None:
    """Simulate, time and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "benchmarks" / "distributed_plan.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed = timed(8, 1281, WIDTH)
    print(json.dumps(speed), flush=True)
    found = []
    for name, make in DATA.items():
        y = make()
        for size in PROCESSES:
            row = {"data": name, **simulated(y, size, WIDTH)}
            if name == "ImageNet":  # other classes have other sizes, on which the time of a sample depends
                row["seconds"] = round(row["fullest"] * speed["seconds_per_sample"], 1)
            found.append(row)
            print(json.dumps(row), flush=True)
    options.output.write_text(json.dumps({"speed": speed, "d": WIDTH, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
