"""What the processes of the pool do, and the data they do it with; every function gets the process group first."""

import os
import shutil
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ldmnet import IndexedDataset, ManifoldRegularizer, Method, TrainSettings, fit, sweep
from ldmnet.data import load
from ldmnet.distributed import Share, Sharing
from ldmnet.errors import InputError
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


# ---- sweeps


def network(d=6, width=4):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(d, width), torch.nn.ReLU())


def samples(n=23, d=6):
    return torch.randn(n, d, generator=generator(5, "samples"))


def swept(group, kind, n=23):
    """This process's share of a sweep over a tensor, a loader or a wrapped model."""
    model, x = network(), samples(n)
    data = x
    if kind == "loader":
        pairs = IndexedDataset(TensorDataset(x, torch.zeros(n)))
        data = DataLoader(pairs, batch_size=4, sampler=DistributedSampler(pairs, 2, 0))
    if kind == "wrapped":
        model = DistributedDataParallel(model, process_group=group)
    share = sweep(model, data, layer="1", batch_size=4, process_group=group)
    return (share.features, share.index, share.n) if isinstance(share, Share) else share


def swept_step(group, doctored):
    """A step on a sweep's share, which the last process may have spoilt."""
    share = sweep(network(), samples(), process_group=group)
    regularizer = ManifoldRegularizer(process_group=group, sharing=SMALL)
    if dist.get_rank(group) == dist.get_world_size(group) - 1:
        f, index = share.features, share.index
        if doctored == "a sample twice":
            share = Share(torch.cat([f, f[:1]]), torch.cat([index, index[:1]]), share.n)
        if doctored == "a sample of another":
            share = Share(f, index - 1, share.n)
        if doctored == "NaN":
            share = Share(f * torch.nan, index, share.n)
        if doctored == "narrow":
            share = Share(f[:, :2], index, share.n)
    return regularizer.step(share).status


# ---- state


def regularizer_of(group, sharing=SMALL, **options):
    labels, _ = cases()["five classes"]
    return ManifoldRegularizer(None, labels, process_group=group, sharing=sharing, **{"strength": 0.3, **options})


def trained(group, regularizer, first, last):
    """Steps `first` to `last` with features that learn, and a penalty after each; the last penalty's gradient."""
    labels, _ = cases()["five classes"]
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for step in range(first, last):
        f = cloud(labels) * min(step, 1) + torch.randn(len(labels), 12, generator=generator(step, "noise"))
        mine = torch.arange(len(labels))[rank::size]
        regularizer.step(f[mine], mine)
        for batch in torch.split(mine, 50):
            features = (f[batch] + 0.1).requires_grad_()
            penalty = regularizer.penalty(features, batch)
            penalty.backward()
    return features.grad


def saved(group, sharing=SMALL):
    """The state after three steps, by every process, without a word to the others."""
    regularizer = regularizer_of(group, sharing)
    trained(group, regularizer, 0, 3)
    regularizer.pool()
    with silence():
        state = regularizer.state_dict()
        index = torch.arange(3 + dist.get_rank(group))  # not as many everywhere
        regularizer.penalty(regularizer.target[index], index)
    return state, regularizer.target


def resumed(group, state, sharing=SMALL):
    """The targets of a state that was loaded, and after one more step."""
    regularizer = regularizer_of(group, sharing)
    with silence():
        regularizer.load_state_dict(state)
        before = regularizer.target
    trained(group, regularizer, 3, 4)
    return before, regularizer.target, regularizer.mu


@contextmanager
def silence():
    """Within it whoever talks to another process fails."""
    names = ("all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "all_to_all_single")
    kept = {name: getattr(dist, name) for name in (*names, "barrier", "new_group")}

    def refused(*args, **options):
        raise AssertionError("a collective call")

    for name in kept:
        setattr(dist, name, refused)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(dist, name, function)


def uneven(group, what):
    """A step to which the processes bring what does not fit together."""
    rank = dist.get_rank(group)
    regularizer = regularizer_of(group)
    n = 400
    f, index = torch.randn(n // 2, 3, generator=generator(rank, "uneven")), torch.arange(n)[rank::2]
    if rank == 1:
        if what == "NaN":
            f[3, 1] = torch.nan
        if what == "missing":
            f, index = f[:-1], index[:-1]
        if what == "beyond":
            index = index + 400
        if what == "other settings":
            regularizer = regularizer_of(group, strength=0.4)
        if what == "no features":
            f = None
    regularizer.step(f, index)


# ---- fit: by all four processes of the pool, or alone


def two_moons(n=240):
    """Two interleaved half circles in the plane, and their labels."""
    t = torch.rand(n, generator=generator(0, "moons")) * torch.pi
    y = torch.arange(n) % 2
    x = torch.stack([t.cos() + y, (1 - 2 * y) * t.sin() + 0.3 * y], 1)
    return x + 0.1 * torch.randn(n, 2, generator=generator(1, "moons")), y


def moons_net(batchnorm=False):
    middle = [torch.nn.BatchNorm1d(16)] if batchnorm else []
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), *middle, torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.ReLU())
    net.add_module("head", torch.nn.Linear(8, 2))
    return net


def fitted(group, folder, batchnorm=False, epochs=6, cut=None, n=240, seed=None):
    """Train; the history, the weights, the targets, and what was told of epochs in this process."""
    torch.manual_seed(dist.get_rank() if seed is None and dist.is_initialized() else seed or 0)
    model, told = moons_net(batchnorm), []
    settings = TrainSettings(epochs=epochs, lr=0.05, batch_size=50, checkpoint_every=1, lr_drop_after=1.0)
    method = Method(name="ldmnet", features="sweep")
    x, y = two_moons(n)

    def on_epoch(epoch):
        told.append(epoch.epoch)
        if cut is not None and epoch.epoch == 3:  # told before it is saved: as a process that ends here leaves it
            shutil.copy(Path(folder) / "checkpoint.pt", cut)

    layer = "4" if batchnorm else "3"
    result = fit(
        model,
        (x, y),
        method=method,
        settings=settings,
        layer=layer,
        validation=(x[:50], y[:50]),
        checkpoint=None if folder is None else Path(folder) / "checkpoint.pt",
        on_epoch=on_epoch,
        sharing=SMALL,
    )
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    history = [(e.loss, e.penalty, e.accuracy, e.val_loss, e.val_accuracy) for e in result.history]
    return history, weights, result.regularizer.target, told


def unmapped(group):
    """Targets once per machine, where all but the first process cannot map the file; what each says."""
    real = torch.from_file

    def another_machine(*args, **options):
        raise RuntimeError("unable to open file")

    try:
        if dist.get_rank(group):
            torch.from_file = another_machine
        saved(group, Sharing(timeout=30, store="machine"))
    except InputError as error:
        return str(error)
    finally:
        torch.from_file = real
    return ""
