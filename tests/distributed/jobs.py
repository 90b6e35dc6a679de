"""What the processes of the pool do, and the data they do it with; every function gets the process group first."""

import os
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist

from ldmnet import ManifoldRegularizer
from ldmnet.data import load
from ldmnet.distributed import Sharing
from ldmnet.seeds import generator

SMALL = Sharing(timeout=30)
SHARDED = Sharing(timeout=30, shard_from=8)


def cloud(labels, d=12, seed=0):
    """Features around one centre per label, off the origin."""
    draw = generator(seed, "cloud")
    centres = 3 * torch.randn(int(labels.max()) + 2, d, generator=draw)
    return centres[labels] + torch.randn(len(labels), d, generator=draw) + 5


def cases():
    """By name: labels (or None), and whether classes may be sharded when small."""
    draw = generator(1, "labels")
    five = torch.randint(0, 5, (400,), generator=draw)
    return {
        "five classes": (five, SMALL),
        "fewer classes than processes": (torch.arange(200) % 2, SMALL),
        "classes of one": (torch.cat([torch.arange(40) % 2, torch.arange(2, 12)]), SMALL),
        "one class of everything": (torch.zeros(150, dtype=torch.int64), SMALL),
        "one class of everything, sharded": (torch.zeros(300, dtype=torch.int64), SHARDED),
        "no groups": (None, SHARDED),
        "a large class and small ones": (torch.cat([torch.zeros(250), torch.arange(60) % 3 + 1]).long(), SHARDED),
        "some without a label": (torch.where(torch.arange(400) % 7 == 0, -1, five), SMALL),
    }


def dealt(n, rank, size):
    """Which of n samples a process brings: shuffled, uneven, one of everybody's twice; the last may bring none."""
    order = torch.randperm(n, generator=generator(n, "dealt"))
    edges = [0] + [min(n, (n * (r + 1)) // size + 5 * (r + 1)) for r in range(size - 1)] + [n]
    mine = order[edges[rank] : edges[rank + 1]]
    return torch.cat([mine, order[:1]]) if size > 1 else order


def updates(group, name, mass, steps=2, inputs=False, options=None, learns=False):
    """Steps with features that move; the target, mu, the log's numbers and the bytes sent."""
    labels, sharing = cases()[name]
    n = 300 if labels is None else len(labels)
    f = cloud(torch.zeros(n, dtype=torch.int64) if labels is None else labels.clamp(min=0))
    x = cloud(torch.zeros(n, dtype=torch.int64), d=7, seed=3) if inputs else None
    paper = {"mu": 0.01, "lambda_tilde": 0.05} if options is None else options
    regularizer = ManifoldRegularizer(x, labels, mass=mass, process_group=group, sharing=sharing, **paper)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    draw = generator(2, "moves")
    apart = f
    if learns:  # from features that know no class
        f = torch.randn(f.shape, generator=draw)
    for _ in range(steps):
        index = dealt(n, rank, size)
        regularizer.step(f[index], index)
        for batch in torch.split(torch.arange(n)[rank::size], 50):
            regularizer.penalty(f[batch] + 0.1, batch)
        f = (apart if learns else f) + 0.2 * torch.randn(f.shape, generator=draw)
    log = [{k: v for k, v in vars(u).items() if k != "seconds"} for u in regularizer.log]
    return regularizer.target, regularizer.mu, log


@cache
def digits(per_class=400):
    """Images (n, 784) and labels: MNIST's first of each class where LDMNET_DATA has it, else blurred strokes."""
    folder = os.environ.get("LDMNET_DATA")
    if folder and Path(folder, "MNIST").exists():
        split = load("mnist", folder)
        x, y = split.x_train.flatten(1).float() / 255, split.y_train
        rows = torch.cat([torch.nonzero(y == c).flatten()[:per_class] for c in range(10)])
        return x[rows], y[rows]
    y = torch.arange(10 * per_class) % 10
    strokes = torch.rand(10, 28, 28, generator=generator(0, "strokes"))
    shift = torch.randint(-2, 3, (len(y), 2), generator=generator(1, "strokes"))
    x = torch.stack([strokes[c].roll((int(i), int(j)), (0, 1)) for c, (i, j) in zip(y.tolist(), shift, strict=True)])
    return (x + 0.1 * torch.rand(x.shape, generator=generator(2, "strokes"))).flatten(1), y


def digits_updates(group, mass, classes, sharing):
    """Two steps on features of the digits by a fixed layer that changes a little; each process brings its part."""
    x, y = digits()
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    layer = torch.randn(784, 64, generator=generator(0, "layer")) / 28
    regularizer = ManifoldRegularizer(x, y, mu=0.01, lambda_tilde=0.05, mass=mass, process_group=group, sharing=sharing)
    index = torch.arange(len(y))[rank::size]
    for step in range(2):
        f = torch.relu(x[index] @ (layer + 0.002 * step * torch.randn(784, 64, generator=generator(step, "layer"))))
        regularizer.step(f, index)
    return regularizer.target
