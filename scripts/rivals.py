"""The tables of docs/which-tool.md from the records in results/rivals/, written by benchmarks/rivals.py.

    python scripts/rivals.py        draw docs/images/which-tool.png, what each method gains where, and the ranks

A table takes the folds, or seeds, of a data set that every method shown has: a sweep that is not finished shows less,
and what has no records says so.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ldmnet.records import Record, read_records
from ldmnet.records.comparison import sees_test
from ldmnet.records.ranks import average_ranks, critical_difference, draw_ranks, friedman_p
from ldmnet.records.tables import markdown, words
from ldmnet.runs.classical import CLASSICAL

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results" / "rivals"
REGIMES = {  # the page's tables, and what measures them
    **{name: name for name in ("mnist", "tables", "images", "series", "spectra", "frozen", "text", "whole")},
    "tuned": "tables --trials 8",
    "residual": "wrn",
    "wrn": "wrn --trials 8",
}
KINDS = {"tuned": ("tables", True), "residual": ("wrn", False), "wrn": ("wrn", True)}  # files, and whether tuned
FILES = {"images": ("svhn", "cifar10"), "mnist": ("mnist",)}
TUNED = "_tuned"
FEWEST = 3  # data sets that ranks are worth showing of
IMAGES = ROOT / "docs" / "images"
REGIME_TITLES = {  # of the picture's columns
    "images": "SVHN, CIFAR-10\n50 per class",
    "residual": "CIFAR-10\nresidual",
    "tables": "tables\n20 per class",
    "whole": "tables\nall samples",
    "series": "time series",
    "spectra": "spectra\n10-30 per class",
    "frozen": "frozen features\n50 per class",
    "text": "texts, encoded\n20 per class",
}
MAPPED = (  # the picture's rows: the methods that people use, and three combinations
    *("ldmnet", "control", "weight_decay", "dropout", "label_smoothing", "mixup", "sam", "ema"),
    *("centre", "contrastive", "t_vmf", "ensemble", "ldmnet+label_smoothing", "ldmnet+centre", "ldmnet+ensemble"),
    *("logistic", "svm", "forest"),
)
SHADED = 5.0  # points of gain or loss that have the full colour
Scores = dict[str, dict[str, dict[int, Record]]]  # by data set, method, and fold or seed


def rivals_table(name: str) -> str:
    """One of the page's tables as Markdown; a sentence where nothing is measured yet."""
    if name == "regimes":
        return _regimes()
    scores, ranked = complete(by_data(name)), name in ("tables", "tuned", "whole", "series")
    if not scores or (ranked and len(scores) < FEWEST):
        return f"*Not yet measured: `python benchmarks/rivals.py {REGIMES[name]}`.*"
    return _ranked(scores) if ranked else _cells(scores)


def by_data(name: str, folder: Path = FOLDER) -> Scores:
    """The records of a regime, of its tuned rows or of the others."""
    regime, tuned = KINDS.get(name, (name, False))
    patterns = [f"{file}.jsonl" for file in FILES.get(regime, (f"{regime}-*",))]
    found: Scores = defaultdict(lambda: defaultdict(dict))
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            for record in read_records([path]):
                if record.chosen and record.method.endswith(TUNED) == tuned:
                    size = "" if not record.per_class else f", {record.per_class} per class"
                    data = path.stem.removeprefix(f"{regime}-") + size
                    found[data][record.method.removesuffix(TUNED)][record.seed] = record
    return found


def complete(scores: Scores) -> Scores:
    """Only the folds that every method of the regime has, and only data sets with such a fold."""
    methods = sorted({method for found in scores.values() for method in found})
    kept: Scores = {}
    for data, found in scores.items():
        seeds = set.intersection(*(set(found.get(method, {})) for method in methods)) if methods else set()
        if seeds:
            kept[data] = {method: {seed: found[method][seed] for seed in sorted(seeds)} for method in methods}
    return kept


def accuracy(records: Iterable[Record]) -> float:
    """The mean accuracy; a run that diverged counts as zero, since the others alone would flatter."""
    return statistics.fmean(record.score or 0.0 for record in records)


def means(scores: Scores) -> dict[str, dict[str, float]]:
    """The mean accuracy by data set and method."""
    return {data: {m: accuracy(runs.values()) for m, runs in found.items()} for data, found in scores.items()}


def _ranked(scores: Scores) -> str:
    """Methods by average rank, with the gain over none and the cost."""
    table = means(scores)
    ranks, n = average_ranks(table), len(table)
    folds = sorted(len(next(iter(found.values()))) for found in scores.values())
    lines = [["method", "average rank", "better than none by", "wins", "training time, none = 1"]]
    for method, rank in ranks.items():
        gains = [row[method] - row["none"] for row in table.values()] if "none" in ranks else []
        best = sum(row[method] == max(row.values()) for row in table.values())
        cost = statistics.median(_seconds(found, method) / _seconds(found, "none") for found in scores.values())
        mark = " †" if sees_test(method) else ""
        lines.append([words(method) + mark, f"{rank:.1f}", _gain(gains), str(best), f"{cost:.1f}"])
    several = f"{folds[0]} to {folds[-1]}" if folds[0] < folds[-1] else str(folds[0])
    said = f"{n} data sets, {several} {'fold or seed' if folds[-1] == 1 else 'folds or seeds'} of each"
    if n > 1 and len(ranks) > 2:
        said += (
            f"; ranks that are less than {critical_difference(len(ranks), n):.1f} apart are not told apart (Nemenyi, "
            f"0.05), and that all are alike has p = {friedman_p(table, list(ranks)):.2g} (Friedman)"
        )
    noted = " † transductive: it sees the inputs that it is tested on." if any(map(sees_test, ranks)) else ""
    return f"{markdown(lines)}\n\n{said}.{noted}"


def _seconds(found: dict[str, dict[int, Record]], method: str) -> float:
    runs = found.get(method, found["none"]).values()
    return max(1e-2, statistics.median(sum(r.seconds.values()) - r.seconds.get("tuning", 0.0) for r in runs))


def _gain(gains: Sequence[float]) -> str:
    if not gains:
        return ""
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
    return f"{statistics.fmean(gains):+.2f}" + ("" if error is None else f" ± {error:.2f}")


def _cells(scores: Scores) -> str:
    """Accuracies with their deviation over seeds, a column per data set, the best method first."""
    table = means(scores)
    order = sorted(next(iter(table.values())), key=lambda m: -statistics.fmean(row[m] for row in table.values()))
    lines = [["method", *scores]]
    for method in order:
        cells = []
        for found in scores.values():
            values = [record.score for record in found[method].values()]
            lost = sum(value is None for value in values)
            good = [value for value in values if value is not None]
            spread = f" ± {statistics.stdev(good):.2f}" if len(good) > 1 and not lost else ""
            cells.append(f"diverged on {lost} of {len(values)}" if lost else f"{statistics.fmean(good):.2f}{spread}")
        lines.append([words(method) + (" †" if sees_test(method) else ""), *cells])
    seeds = {data: len(next(iter(found.values()))) for data, found in scores.items()}
    return f"{markdown(lines)}\n\nSeeds: {', '.join(f'{data} {n}' for data, n in seeds.items())}."


def regimes(folder: Path = FOLDER) -> dict[str, Scores]:
    """The complete scores of each kind of data that has any with none beside them, by its title."""
    columns: dict[str, Scores] = {
        f"MNIST\n{size} per class": {
            data: found for data, found in by_data("mnist", folder).items() if f" {size} " in data
        }
        for size in (50, 100)
    }
    columns |= {title: by_data(regime, folder) for regime, title in REGIME_TITLES.items()}
    kept = {title: complete(scores) for title, scores in columns.items()}
    return {title: scores for title, scores in kept.items() if scores and all("none" in row for row in scores.values())}


def gains(scores: Scores) -> dict[str, list[float]]:
    """By method: the gains over none in points, one per data set; of one data set alone, one per seed."""
    if len(scores) > 1:
        table = means(scores)
    else:
        (found,) = scores.values()
        runs = {seed: {method: found[method][seed].score or 0.0 for method in found} for seed in found["none"]}
        table = {str(seed): row for seed, row in runs.items()}
    return {m: [row[m] - row["none"] for row in table.values()] for m in next(iter(table.values()))}


def _regimes(folder: Path = FOLDER) -> str:
    """A line per kind of data: what LDMNet and its control gain, and the best of the others."""
    head = ["data", "data sets x seeds", "ldmnet", "place", "control", "best other network", "best with ldmnet"]
    lines = [[*head, "best without a network"]]
    for title, scores in regimes(folder).items():
        found = gains(scores)
        mean = {m: statistics.fmean(values) for m, values in found.items() if not sees_test(m)}
        place = 1 + sum(value > mean["ldmnet"] for value in mean.values())
        kinds: dict[str, list[str]] = {"other": [], "with": [], "without": []}
        for method in mean:
            kind = "without" if method in CLASSICAL else "with" if "ldmnet+" in method else "other"
            if method not in ("none", "control", "ldmnet"):
                kinds[kind].append(method)
        best = [max(names, key=lambda m: mean[m]) if names else "" for names in kinds.values()]
        seeds = min(len(next(iter(runs.values()))) for runs in scores.values())
        control = _gain(found["control"]) if "control" in found else ""
        cells = [_gain(found["ldmnet"]), f"{place} of {len(mean)}", control]
        cells += [f"{words(m)} {_gain(found[m])}" if m else "" for m in best]
        lines.append([title.replace("\n", " "), f"{len(scores)} x {seeds}", *cells])
    return markdown(lines)


def draw_map(path: Path) -> None:
    """What each method gains over no regulariser, by regime: one picture for README."""
    from ldmnet.records.figures import pyplot

    plt, scores = pyplot(), regimes()
    columns = {title: {m: statistics.fmean(v) for m, v in gains(of).items()} for title, of in scores.items()}
    names = [name for name in MAPPED if any(name in column for column in columns.values())]
    figure, axis = plt.subplots(figsize=(1.6 + 1.05 * len(columns), 0.9 + 0.3 * len(names)))
    values = [[column.get(name, math.nan) for column in columns.values()] for name in names]
    axis.imshow(values, cmap="RdBu", vmin=-SHADED, vmax=SHADED, aspect="auto")
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if not math.isnan(value):
                dark = abs(value) > 0.7 * SHADED
                axis.text(
                    j,
                    i,
                    f"{round(value, 1) + 0.0:+.1f}",
                    ha="center",
                    va="center",
                    color="white" if dark else "black",
                    fontsize=8,
                )
    titles = [f"{title}\n({len(of)} data sets)" if len(of) > 1 else title for title, of in scores.items()]
    axis.set_xticks(range(len(columns)), titles, fontsize=8)
    axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize=8)
    for label in axis.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == "ldmnet" else "normal")
    axis.tick_params(length=0)
    axis.xaxis.tick_top()
    for side in axis.spines.values():
        side.set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", dpi=150)
    plt.close(figure)


def main() -> None:
    """Draw what there is to draw."""
    draw_map(IMAGES / "which-tool.png")
    table = means(complete(by_data("tables")))
    if len(table) < FEWEST:
        raise SystemExit(f"results/rivals/ has fewer than {FEWEST} tables with a whole fold: no ranks to draw yet.")
    draw_ranks(average_ranks(table), len(table), IMAGES / "which-tool-ranks.png")


if __name__ == "__main__":
    main()
