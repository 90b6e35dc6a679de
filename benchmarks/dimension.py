"""How good the estimates of a dimension are on manifolds that are known, and what they say of trained features.

    python benchmarks/dimension.py choose            the neighbours and the kernel of "theorem1" and "mle"
    python benchmarks/dimension.py known             six manifolds, 50 to 5,000 points, with and without noise
    python benchmarks/dimension.py cost              the live estimate against training and an update
    python benchmarks/dimension.py claim             features over training, five methods (hours; LDMNET_DATA=...)
    python benchmarks/dimension.py tables --write    what docs/dimension.md shows
    python benchmarks/dimension.py figure            what `claim` recorded, in docs/images/dimension.png

Records are appended to results/dimension/*.jsonl as they come; what is recorded is skipped, and a training run that was
cut resumes from its checkpoint.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, medians
from numpy.typing import NDArray
from points import class_points
from torch import Tensor, nn

from ldmnet import ManifoldRegularizer, dimension, fit, knn, self_tuned_weights, sweep
from ldmnet.dimension import METHODS, DimensionMethod, Estimate, estimate, live, spread
from ldmnet.errors import DivergenceError, InputError
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch
from ldmnet.graph.weights import local_scale
from ldmnet.networks import mnist_net
from ldmnet.palette import METHOD_COLORS
from ldmnet.seeds import generator
from ldmnet.training.features import evaluate

Cloud = NDArray[np.float64]
Record = dict[str, Any]
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dimension.md"
SIZES = (50, 100, 200, 500, 1000, 2000, 5000)
NOISES = (0.0, 0.01, 0.1)
SCALES = (5, 10, 20, 50)  # neighbours
SEEDS = range(5)
CHOICES = (5, 10, 20, 40)  # neighbours, and the kernels of "theorem1", to choose among
SHARPNESSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


# ---- known manifolds


def segment(n: int, draw: np.random.Generator) -> Cloud:
    return np.outer(draw.uniform(size=n), [1.0, 2.0, 3.0])


def circle(n: int, draw: np.random.Generator) -> Cloud:
    angle = draw.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def crossing(n: int, draw: np.random.Generator) -> Cloud:
    """Two parabolas in space that cross each other twice."""
    t = draw.uniform(-1, 1, n)
    bend = np.where(np.arange(n) % 2 == 0, t**2 - 0.25, 0.25 - t**2 + 0.3 * t)
    return np.stack([t, bend, np.zeros(n)], 1)


def sphere(n: int, draw: np.random.Generator) -> Cloud:
    x = draw.normal(size=(n, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def swiss_roll(n: int, draw: np.random.Generator) -> Cloud:
    """A turn and a half of a spiral, 21 wide, even by area."""
    t = np.linspace(1.5 * np.pi, 4.5 * np.pi, 10_001)
    length = np.concatenate([[0], np.cumsum(np.hypot(1, (t[1:] + t[:-1]) / 2) * np.diff(t))])
    t = np.interp(draw.uniform(0, length[-1], n), length, t)
    return np.stack([t * np.cos(t), draw.uniform(0, 21, n), t * np.sin(t)], 1)


def torus5(n: int, draw: np.random.Generator) -> Cloud:
    """A product of five circles, turned at random in 100 dimensions."""
    angle = draw.uniform(0, 2 * np.pi, (n, 5))
    turn = np.linalg.qr(draw.normal(size=(100, 10)))[0]
    return np.concatenate([np.cos(angle), np.sin(angle)], 1) @ turn.T


def gaussian(n: int, draw: np.random.Generator) -> Cloud:
    """A normal cloud that fills its ten dimensions."""
    return draw.normal(size=(n, 10))


KNOWN: dict[str, tuple[int, Callable[[int, np.random.Generator], Cloud]]] = {
    "segment": (1, segment),
    "circle": (1, circle),
    "two crossing curves": (1, crossing),
    "sphere": (2, sphere),
    "Swiss roll": (2, swiss_roll),
    "5-torus in 100 dimensions": (5, torus5),
    "10-dimensional Gaussian": (10, gaussian),
}


def cloud(name: str, n: int, noise: float, seed: int) -> Cloud:
    """Points of a manifold; the noise's length is `noise` of the cloud's root mean square distance from its mean."""
    draw = np.random.default_rng([seed, n])
    points = KNOWN[name][1](n, draw)
    size = math.sqrt(points.var(0).sum() / points.shape[1])
    return points + noise * size * draw.normal(size=points.shape)


# ---- records


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, records: Iterable[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def key(record: Record, fields: Sequence[str]) -> tuple[Any, ...]:
    return tuple(record[name] for name in fields)


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


UNCORRECTED = "uncorrected"
CASE = ("manifold", "n", "noise", "seed")


def known(output: Path) -> None:
    """Every method on every manifold, and the sum as the paper's graph has it; at 2,000 points also by scale."""
    done = {key(record, CASE) for record in read(output)}
    for name, n, noise, seed in itertools.product(KNOWN, SIZES, NOISES, SEEDS):
        if (name, n, noise, seed) in done:
            continue
        points = cloud(name, n, noise, seed)
        case = {"manifold": name, "truth": KNOWN[name][0], "n": n, "noise": noise, "seed": seed}
        lines = [{**case, "method": UNCORRECTED, "n_neighbors": 20, "value": rounded(uncorrected(points))}]
        for method, k in itertools.product(METHODS, SCALES if n == 2000 else (dimension.NEIGHBORS,)):
            if method == "two_nn" and k != dimension.NEIGHBORS:
                continue
            found = estimate(points, method, n_neighbors=k)
            numbers = {"value": rounded(found.value), "error": rounded(found.error)}
            lines.append({**case, "method": method, "n_neighbors": 2 if method == "two_nn" else k, **numbers})
        append(output, lines)


def uncorrected(points: Cloud) -> float:
    """Theorem 1's sum with W of eq. (23), as an update has it: 20 neighbours, sigma the distance to the tenth."""
    cloud = torch.tensor(points)
    nearest = knn(cloud, 20)
    W = self_tuned_weights(nearest).to_sparse_coo()
    (i, j), sigma = W.indices(), local_scale(nearest, 10)
    scaled = (cloud[i] - cloud[j]).square().sum(1) / (sigma[i] * sigma[j])  # |p - q|^2 / 4t
    mass = W.values() * (i != j)
    return float(2 * (mass * scaled).sum() / mass.sum())


def choose(output: Path) -> None:
    """The relative error by number of neighbours and by the kernel's sharpness, on clouds that `known` does not see."""
    done = {key(record, CASE) for record in read(output)}
    kept = dimension.SHARPNESS
    for name, n, seed in itertools.product(KNOWN, (50, 200, 500, 2000), range(100, 110)):
        if (name, n, 0.0, seed) in done:
            continue
        points = cloud(name, n, 0.0, seed)
        values: dict[str, list[float]] = {}
        for sharpness in (None, *SHARPNESSES):
            dimension.SHARPNESS = sharpness or kept
            method: DimensionMethod = "theorem1" if sharpness else "mle"
            found = [estimate(points, method, n_neighbors=k).value for k in CHOICES]
            values[f"c = {sharpness:g}" if sharpness else "mle"] = [rounded(value) for value in found]
        dimension.SHARPNESS = kept
        case = {"manifold": name, "truth": KNOWN[name][0], "n": n, "noise": 0.0, "seed": seed}
        append(output, [{**case, "n_neighbors": CHOICES, "values": values}])


# ---- the live estimate


def cost(output: Path) -> None:
    """The live estimate at 7,000 samples against an update, and against two epochs of MNIST's network."""
    inputs, features, labels = class_points(7000)
    groups = Groups(labels)
    distance = NeighborSearch(groups, 20, once=True)(features[groups.order]).distance
    regularizer = ManifoldRegularizer(groups=labels, mu=0.01, lambda_tilde=0.05)
    draw, images = torch.Generator().manual_seed(0), inputs.view(-1, 1, 28, 28)
    model = mnist_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)

    def epochs() -> None:
        for index in [batch for _ in range(2) for batch in torch.randperm(len(images), generator=draw).split(100)]:
            loss = torch.nn.functional.cross_entropy(model(images[index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def update() -> None:
        regularizer.step(features + 0.01 * torch.randn(features.shape, generator=draw))

    taken = medians({"epochs": epochs, "update": update, "live": lambda: live(distance, groups.sizes)}, rounds=9)
    shares = {f"of_{name}": rounded(taken["live"] / taken[name]) for name in ("epochs", "update")}
    append(output, [{**{k: rounded(v) for k, v in taken.items()}, **shares, "machine": machine()}])
    print(f"{taken}: {100 * shares['of_epochs']:.2f} % of the epochs, {100 * shares['of_update']:.2f} % of an update")


# ---- the claim: what the features of trained networks fill

ROWS = ("none_tuned", "weight_decay_tuned", "dropout_tuned", "control_tuned", "ldmnet_tuned", "ldmnet")
TAKEN = (0, 1, 4, 12, 36, 72, 108, 156, 204, 252)  # epochs; no multiple of ten, where checkpoints are written
RUN = ("data", "per_class", "method", "seed", "epochs")
Sample = tuple[Tensor, Tensor]
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


def prepared(
    data: str, size: int, row: str, seed: int, epochs: int | None, precision: Any
) -> tuple[Any, Sample, Sample, nn.Module]:
    """The settings, training data, test data and network of a table's row; what the presets are is known here alone."""
    from ldmnet.paper.presets import classification_runs

    settings = classification_runs(data, [size], [row], [seed], precision=precision)[0].settings
    train = replace(settings.train, seed=seed, epochs=epochs or settings.train.epochs)
    settings = replace(settings, train=train)
    found = settings.load()
    return settings, found.train, found.test, settings.network()


def claim(output: Path, data: str, size: int, row: str, seed: int, epochs: int | None, precision: Any) -> None:
    """Train one row and append one record per epoch in `TAKEN`, and one at the end."""
    settings, train, test, model = prepared(data, size, row, seed, epochs, precision)
    torch.set_num_threads(settings.threads)
    last = settings.train.epochs
    run = dict(zip(RUN, (data, size, row, seed, last), strict=True))
    done = {record["epoch"] for record in read(output) if key(record, RUN) == tuple(run.values())}
    if last in done:
        return
    checkpoint = ROOT / "runs" / "dimension" / ("-".join(map(str, run.values())) + ".pt")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    print(checkpoint.stem, flush=True)

    def note(epoch: int) -> None:
        if epoch in (*TAKEN, last) and epoch not in done:
            append(output, [{**run, "epoch": epoch, **seen(train, test, model)}])
            done.add(epoch)

    if not checkpoint.exists():
        note(0)
    numbers = {"method": settings.method, "settings": settings.train, "checkpoint": checkpoint}
    try:
        fit(model, train, on_epoch=lambda epoch: note(epoch.epoch + 1), **numbers)
        note(last)  # where it was cut between its last checkpoint and its last record
    except DivergenceError as error:
        append(output, [{**run, "epoch": last, "diverged": str(error)}])
    checkpoint.unlink(missing_ok=True)


def seen(train: Sample, test: Sample, model: nn.Module) -> Record:
    """The features of both parts, as many test images per class as there are training images, and the gap."""
    most = int(torch.bincount(train[1]).max())
    drawn = torch.randperm(len(test[1]), generator=generator(0, "dimension"))
    few = torch.cat([drawn[test[1][drawn] == label][:most] for label in test[1].unique()])
    numbers: Record = {}
    for name, (x, y) in (("train", train), ("test", test)):
        loss, accuracy = evaluate(model, x, y)
        numbers |= {f"{name}_loss": rounded(loss), f"{name}_accuracy": rounded(100 * accuracy)}
        kept = slice(None) if name == "train" else few
        numbers[name] = filled(sweep(model, x[kept], layer="features"), y[kept])
    return {**numbers, "gap": rounded(numbers["train_accuracy"] - numbers["test_accuracy"])}


def filled(features: Tensor, labels: Tensor) -> Record:
    """What features fill within classes, by number of neighbours; "radius" is the median distance to the farthest.

    It is in units of the root of the features' whole variance.
    """
    try:
        variance = spread(features, groups=labels)
        per_class = int(torch.bincount(labels).min())
        scales = [k for k in (5, 10, 20, 40) if k < per_class]
        size = float(features.double().var(0, correction=0).sum().sqrt())
        distance = knn(features.double(), max(scales), labels).distance
        radius = {k: rounded(float(distance[:, k - 1].median()) / size) for k in scales}
        out: Record = {"n": len(features), "radius": radius}
        for method in ("mle", "theorem1"):
            found = {k: estimate(features, method, labels, n_neighbors=k) for k in scales}
            out[method] = {k: pair(each) for k, each in found.items()}
            out[f"{method}_by_class"] = [pair(each) for each in found[dimension.NEIGHBORS].by_group.values()]
        same_covariance = gaussians(features.double(), labels)
        for k in scales:
            out.setdefault("mle_gaussian", {})[k] = pair(estimate(same_covariance, "mle", labels, n_neighbors=k))
        out["two_nn"] = pair(estimate(features, "two_nn", labels))
        out["pairs"] = near_pairs(features.double() / size)
        return out | {name: pair(each) for name, each in vars(variance).items()}
    except InputError as error:  # features that are all the same, or nearly
        return {"n": len(features), "none": str(error)}


RADII = tuple(rounded(10 ** (step / 10)) for step in range(-25, 6))  # in units of the root of the whole variance


FEWEST_PAIRS = 1e-3  # the share below which the number of near pairs says nothing of a dimension


def near_pairs(points: Tensor, most: int = 2000) -> list[float]:
    """The share of all pairs, also of two classes, that are nearer than each of `RADII`."""
    if len(points) > most:
        points = points[torch.randperm(len(points), generator=generator(0, "pairs"))[:most]]
    distance = torch.pdist(points)
    return [rounded(float((distance < radius).double().mean())) for radius in RADII]


def gaussians(features: Tensor, labels: Tensor) -> Tensor:
    """Normal clouds with the covariance of each class and as many points: what features would fill by that alone."""
    draw = generator(0, "gaussian")
    out = torch.empty_like(features)
    for label in labels.unique():
        rows = (labels == label).nonzero().squeeze(1)
        centred = features[rows] - features[rows].mean(0)
        out[rows] = torch.randn(len(rows), len(rows), generator=draw, dtype=features.dtype) @ centred / len(rows) ** 0.5
    return out


def pair(found: Estimate) -> list[float]:
    return [rounded(found.value), rounded(found.error)]


# ---- what the page shows


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" + "|---:" * (len(head) - 1) + "|", *lines[1:]])


def spans(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def collected(records: Iterable[Record], fields: Sequence[str]) -> dict[tuple[Any, ...], list[float]]:
    out = defaultdict(list)
    for record in records:
        out[key(record, fields)].append(record["value"])
    return out


def known_table(records: list[Record]) -> str:
    """2,000 points without noise: mean and standard deviation over draws, and in brackets the error that is told."""
    here = [r for r in records if (r["n"], r["noise"]) == (2000, 0) and r["n_neighbors"] in (2, dimension.NEIGHBORS)]
    told = collected([{**r, "value": r["error"]} for r in here], ("manifold", "method"))
    values = collected(here, ("manifold", "method"))
    raw = collected([r for r in records if (r["n"], r["noise"]) == (2000, 0)], ("manifold", "method"))
    rows = []
    for name, (truth, _) in KNOWN.items():
        cells = [f"{spans(values[name, m])} ({statistics.mean(told[name, m]):.2f})" for m in METHODS]
        rows.append([name, str(truth), f"{statistics.mean(raw[name, UNCORRECTED]):.2f}", *cells])
    return markdown(["manifold", "dimension", "not corrected", *METHODS], rows)


def sizes_table(records: list[Record]) -> str:
    """The mean over draws by number of points, without noise."""
    here = [r for r in records if r["noise"] == 0 and r["n_neighbors"] in (2, dimension.NEIGHBORS)]
    values = collected(here, ("manifold", "n", "method"))
    rows = [
        [name, method, *(f"{statistics.mean(values[name, n, method]):.2f}" for n in SIZES)]
        for name, method in itertools.product(KNOWN, METHODS)
    ]
    return markdown(["manifold", "method", *(f"{n:,}" for n in SIZES)], rows)


def noise_table(records: list[Record]) -> str:
    """2,000 points with noise, by scale."""
    here = [r for r in records if r["n"] == 2000 and r["method"] != UNCORRECTED]
    values = collected(here, ("manifold", "noise", "method", "n_neighbors"))
    columns = [("two_nn", 2), *itertools.product(("mle", "theorem1"), SCALES)]
    rows = [
        [name, f"{100 * noise:g} %", *(f"{statistics.mean(values[(name, noise, *column)]):.2f}" for column in columns)]
        for name, noise in itertools.product(KNOWN, NOISES)
    ]
    return markdown(["manifold", "noise", *(f"{m} {k}" for m, k in columns)], rows)


def choose_table(records: list[Record]) -> str:
    """The root mean square of the relative error over all clouds."""
    rows = []
    for label in records[0]["values"]:
        cells = []
        for place in range(len(CHOICES)):
            squares = [(r["values"][label][place] / r["truth"] - 1) ** 2 for r in records]
            cells.append(f"{100 * math.sqrt(statistics.mean(squares)):.1f} %")
        rows.append([label if label == "mle" else f"theorem1, {label}", *cells])
    return markdown(["", *(f"{k} neighbours" for k in CHOICES)], rows)


def claim_table(records: list[Record]) -> str:
    """The end of every run: training features / test features."""
    ended = [r for r in records if r["epoch"] == r["epochs"] and "diverged" not in r]
    rows = []
    for r in (r for r in ended if "none" not in (*r["train"], *r["test"])):
        cells = [f"{r['test_accuracy']:.2f}", f"{r['gap']:.2f}"]
        for show in (
            lambda part: f"{part['within_share'][0]:.3f}",
            lambda part: f"{part['radius'][str(dimension.NEIGHBORS)]:.2f}",
            lambda part: f"{part['mle'][str(dimension.NEIGHBORS)][0]:.1f}",
            lambda part: f"{part['theorem1'][str(dimension.NEIGHBORS)][0]:.1f}",
            lambda part: f"{part['mle_gaussian'][str(dimension.NEIGHBORS)][0]:.1f}",
            lambda part: f"{lowest(part['pairs']):.1f}",
        ):
            cells.append(" / ".join(show(r[part]) for part in ("train", "test")))
        rows.append([f"{TITLES[r['data']]} {r['per_class']}", r["method"].replace("_", " "), *cells])
    head = ["data", "method", "test accuracy", "gap", "share within", "distance", "mle", "theorem1", "normal cloud"]
    return markdown([*head, "lowest"], rows)


def lowest(near: Sequence[float]) -> float:
    """The lowest dimension at any scale from that of the nearest pairs to that where half of all pairs are near."""
    return min(slope for slope, share in zip(slopes(near), near, strict=False) if FEWEST_PAIRS <= share <= 0.5)


def tables(folder: Path) -> dict[str, tuple[str, str]]:
    """What each table of the page says, and its text."""
    known, chosen, claimed = (read(folder / f"{name}.jsonl") for name in ("known", "choose", "claim"))
    made = {
        "choose": (choose_table, chosen),
        "known": (known_table, known),
        "sizes": (sizes_table, known),
        "noise": (noise_table, known),
        "claim": (claim_table, claimed),
    }
    none = "Nothing has been recorded yet."
    return {name: (make.__doc__ or "", make(records) if records else none) for name, (make, records) in made.items()}


def written(page: str, folder: Path) -> str:
    """A page with every table between its marks, <!-- dimension: known --> and <!-- end -->, made anew."""
    for name, (_, text) in tables(folder).items():
        opening = f"<!-- dimension: {name} -->\n"
        before, after = page.split(opening)
        page = before + opening + text + "\n" + after[after.index("<!-- end -->") :]
    return page


def slopes(near: Sequence[float]) -> list[float]:
    """The dimension at each scale, by the growth of the number of near pairs; nan where there are too few of them."""
    ratio = math.log(RADII[1] / RADII[0])
    return [math.log(b / a) / ratio if a >= FEWEST_PAIRS else math.nan for a, b in itertools.pairwise(near)]


def figure(records: list[Record], path: Path) -> None:
    """Draw the dimension by scale at the end, and the variance within classes over training; dashed: test images."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ended = {key(r, RUN) for r in records if r["epoch"] == r["epochs"] and "diverged" not in r}
    whole = [r for r in records if key(r, RUN) in ended and "none" not in (*r["train"], *r["test"])]
    columns = list(dict.fromkeys((r["data"], r["per_class"]) for r in whole))
    if not columns:
        sys.exit("there is no run to draw yet: see claim.")
    known = dict.fromkeys(row for name in ROWS for row in (name, name.removesuffix("_tuned")))  # printed ones, too
    methods = [row for row in known if any(r["method"] == row for r in whole)]
    drawn, axes = pyplot.subplots(3, len(columns), figsize=(3.6 * len(columns), 9), squeeze=False, layout="constrained")
    middles = [math.sqrt(a * b) for a, b in itertools.pairwise(RADII)]
    for column, method in itertools.product(columns, methods):
        by_scale, inside, shares = axes[:, columns.index(column)]
        lines = [r for r in whole if (r["data"], r["per_class"], r["method"], r["seed"]) == (*column, method, 0)]
        if not lines:
            continue
        lines.sort(key=lambda r: r["epoch"])
        name = method.removesuffix("_tuned")
        shade = METHOD_COLORS[name].light
        look = {"color": shade, "label": name.replace("_", " ") + (", tuned" if method == "ldmnet_tuned" else "")}
        look["linewidth"] = 1.0 if method == "ldmnet_tuned" else 1.8
        for part, style in (("train", "-"), ("test", "--")):
            for r in lines[-1:]:
                by_scale.plot(middles, slopes(r[part]["pairs"]), style, **look)
                inside.plot(
                    r[part]["radius"].values(), [v for v, _ in r[part]["mle"].values()], style, marker=".", **look
                )
            shares.plot([r["epoch"] for r in lines], [r[part]["within_share"][0] for r in lines], style, **look)
            look.pop("label", None)
        by_scale.set(title=f"{TITLES[column[0]]}, {column[1]} per class", xscale="log", ylim=(-0.3, 10), xlim=(0.05, 3))
        by_scale.set(xlabel="distance / cloud's size", ylabel="dimension of all features at that scale")
        inside.set(xlabel="distance to the neighbours / cloud's size", xscale="log", xlim=(0.05, 3), ylim=(0, 26))
        inside.set(ylabel="dimension within classes (mle)")
        shares.set(xlabel="epoch", xscale="symlog", yscale="log", ylabel="share of variance within classes")
        shares.set(ylim=(0.008, 1.2), xlim=(0, None))
    handles = {label: line for axis in axes[0] for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    drawn.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=len(handles),
        title="Training images; dashed: test images",
    )
    drawn.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["choose", "known", "cost", "claim", "tables", "figure"])
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "dimension", help="where the records are")
    parser.add_argument("--write", action="store_true", help="tables: into the page")
    parser.add_argument(
        "--data", default="mnist:50,mnist:100,mnist:1000,cifar10:50", help="claim: data set : per class"
    )
    parser.add_argument("--check", action="store_true", help="tables: exit 1 where the page differs from the records")
    parser.add_argument("--rows", default=",".join(ROWS), help="claim: rows of the tables, by commas")
    parser.add_argument("--seed", type=int, default=0, help="claim: of subset, weights and batches")
    parser.add_argument("--epochs", type=int, help="claim: fewer than the preset's, to try it")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="claim: other than the tables'")
    given = parser.parse_args()
    output = given.folder / f"{given.part}.jsonl"
    if given.part == "tables":
        page = PAGE.read_text(encoding="utf-8")
        if given.check:
            sys.exit(f"{PAGE.name} differs from the records." if written(page, given.folder) != page else 0)
        elif given.write:
            PAGE.write_text(written(page, given.folder), encoding="utf-8")
        else:
            print("\n\n".join(f"{says}\n\n{text}" for says, text in tables(given.folder).values()))
    elif given.part == "figure":
        figure(read(given.folder / "claim.jsonl"), PAGE.parent / "images" / "dimension.png")
    elif given.part == "claim":
        for part, row in itertools.product(given.data.split(","), given.rows.split(",")):
            data, size = part.split(":")
            claim(output, data, int(size), row, given.seed, given.epochs, given.precision)
    else:
        {"choose": choose, "known": known, "cost": cost}[given.part](output)


if __name__ == "__main__":
    main()
