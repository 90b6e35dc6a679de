"""All methods on someone's own data, over repeated stratified splits, in one table with a paired test.

Splits of one data set overlap, so the plain paired t-test finds differences that are not there. The variance is
widened by n_test / n_train, as Nadeau and Bengio (Machine Learning 52, 2003) propose.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import nn

from ldmnet.data.userdata import Samples, share_split
from ldmnet.errors import DivergenceError, InputError
from ldmnet.fingerprints import fingerprint
from ldmnet.records.endings import bad_ends
from ldmnet.records.runs import Record, append_record, read_records
from ldmnet.records.userfits import UserSettings, build_net, fit_split, method_for, own_network
from ldmnet.training.loop import last_numbers
from ldmnet.training.methods import METHODS
from ldmnet.training.progress import OnEpoch

REFERENCE = "ldmnet"
ALIKE = 1e-3  # percent; accuracies are kept to four places


@dataclass(frozen=True)
class ComparedRow:
    """One method over its splits.

    Attributes:
        method: its name.
        mean: mean test accuracy in percent; None if it diverged on any split, since the others alone would flatter.
        std: its standard deviation over the splits (ddof = 1), None for one split.
        splits: how many.
        gain: by how much LDMNet is better, mean over the splits both have; None for LDMNet itself, and where one of
            the two diverged.
        p: two-sided p-value of that difference, None where there is nothing to test.
        ended_badly: on how many splits, see `ldmnet.errors.BadEndWarning`.
    """

    method: str
    mean: float | None
    std: float | None
    splits: int
    gain: float | None
    p: float | None
    ended_badly: int = 0


def without_dropout(methods: Sequence[str], settings: UserSettings, samples: Samples) -> tuple[str, ...]:
    """The methods but dropout, if others are asked for and the network has no nn.Dropout layer that it could set."""
    others = tuple(method for method in methods if method != "dropout")
    if not others or len(others) == len(methods):
        return tuple(methods)
    model = build_net(settings, tuple(samples.x.shape[1:]), len(samples.class_names))
    return tuple(methods) if any(isinstance(module, nn.Dropout) for module in model.modules()) else others


def compare_methods(
    samples: Samples,
    settings: UserSettings,
    *,
    methods: Sequence[str] = METHODS,
    splits: int = 5,
    records: Path,
    on_run: Callable[[str, int], OnEpoch | None] | None = None,
    traces: Path | None = None,
) -> list[Record]:
    """Train every method on every split and test on the part held out; runs that are in `records` are skipped.

    A run that diverges has a record without an accuracy, and the others go on.

    Args:
        samples: the data.
        settings: all but the method; its seed is the first split's, the others follow it.
        methods: which.
        splits: how many; every method sees the same ones.
        records: the JSON-lines file that finished runs are read from and appended to.
        on_run: called with the method and the split before each run; what it returns is called every epoch.
        traces: a folder for what a report shows of the first split's runs.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise InputError(f"there is no method {unknown[0]!r}. The methods: {', '.join(METHODS)}.")
    if not methods:
        raise InputError(f"a comparison needs one or more methods. The methods: {', '.join(METHODS)}.")
    if not settings.test_share:
        raise InputError("a comparison needs a test share above zero.")
    for method in methods:
        method_for(replace(settings, method=method))  # numbers that do not go together end here, before the first run
    what = {"data": fingerprint(samples.x, samples.labels), **own_network(settings, samples)}
    done = {r["key"]: r for r in read_records([records], ("key", "method", "split"))} if records.exists() else {}
    found = []
    for split in range(splits):
        for method in methods:
            run = replace(settings, method=method, seed=settings.seed + split)
            key = _key(run, what)
            if key not in done:
                on_epoch = on_run(method, split) if on_run else None
                trace = traces / key if traces is not None and split == 0 else None
                done[key] = _record(samples, run, split, {**what, "key": key}, on_epoch, trace)
                append_record(records, done[key])
            found.append({**done[key], "split": split})  # it may come from a comparison that began at another seed
    return found


def _record(
    samples: Samples,
    run: UserSettings,
    split: int,
    what: dict[str, str],
    on_epoch: OnEpoch | None,
    trace: Path | None,
) -> Record:
    place = {"method": run.method, "split": split}
    known = {"settings": run.recorded(), **what}
    try:
        with bad_ends() as badly:
            outcome = fit_split(samples, run, on_epoch=on_epoch, trace=trace)
    except DivergenceError as error:
        train, test = share_split(samples.labels, run.test_share, run.seed, samples.class_names)
        sizes = {"n_train": len(train), "n_test": len(test)}
        return {**place, "accuracy": None, "diverged": str(error), **sizes, **known}
    assert outcome.fit.test_accuracy is not None
    return {
        **place,
        "accuracy": round(100 * outcome.fit.test_accuracy, 4),
        "test_loss": outcome.fit.test_loss,
        "train_loss": outcome.fit.train_loss,
        "n_train": outcome.n_train,
        "n_test": outcome.n_test,
        **last_numbers(outcome.fit),
        **({"ended_badly": badly} if badly else {}),
        **known,
    }


def _key(run: UserSettings, what: dict[str, str]) -> str:
    text = json.dumps({**run.recorded(), **what}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compared_rows(records: Sequence[Record]) -> list[ComparedRow]:
    """The table of a comparison, one row a method in the order they came."""
    by_method: dict[str, dict[int, Record]] = {}
    for record in records:
        by_method.setdefault(record["method"], {})[record["split"]] = record
    reference = by_method.get(REFERENCE, {})
    lost = {method for method, found in by_method.items() if any(r["accuracy"] is None for r in found.values())}
    rows = []
    for method, found in by_method.items():
        if method in lost:
            rows.append(ComparedRow(method, mean=None, std=None, splits=len(found), gain=None, p=None))
            continue
        accuracy = [r["accuracy"] for r in found.values()]
        paired = method != REFERENCE and REFERENCE not in lost
        shared = [split for split in found if split in reference] if paired else []
        gains = [reference[split]["accuracy"] - found[split]["accuracy"] for split in shared]
        overlap = found[shared[0]]["n_test"] / found[shared[0]]["n_train"] if shared else 0.0
        rows.append(
            ComparedRow(
                method,
                mean=round(statistics.fmean(accuracy), 4),
                std=round(statistics.stdev(accuracy), 4) if len(accuracy) > 1 else None,
                splits=len(accuracy),
                gain=round(statistics.fmean(gains), 4) if gains else None,
                p=paired_p(gains, overlap),
                ended_badly=sum("ended_badly" in r for r in found.values()),
            )
        )
    return rows


def paired_p(differences: Sequence[float], overlap: float = 0.0) -> float | None:
    """The two-sided p-value of a mean difference over splits; None for fewer than two of them, or all alike.

    Args:
        differences: one a split, in percent.
        overlap: n_test / n_train of the splits; zero gives the plain paired t-test.
    """
    from scipy.stats import t as students_t

    n = len(differences)
    if n < 2:
        return None
    mean, variance = statistics.fmean(differences), statistics.variance(differences)
    if math.sqrt(variance) < ALIKE:  # no spread to judge the mean by
        return None
    return float(2 * students_t.sf(abs(mean) / math.sqrt((1 / n + overlap) * variance), n - 1))


def accuracy_words(row: ComparedRow) -> str:
    """A row's accuracy and its spread, or that it diverged."""
    if row.mean is None:
        return "diverged"
    return f"{row.mean:.2f}" + ("" if row.std is None else f" ± {row.std:.2f}")


def in_vain(rows: Sequence[ComparedRow]) -> bool:
    """Whether a comparison says nothing: LDMNet's row ended badly, or every row did."""
    return any(row.ended_badly for row in rows if row.method == REFERENCE) or all(row.ended_badly for row in rows)


def format_comparison(rows: Sequence[ComparedRow], style: str = "md") -> str:
    """Rows as Markdown, CSV or JSON."""
    if style == "json":
        return json.dumps([asdict(row) for row in rows], indent=1)
    lines = [["method", "accuracy, %", "splits", "LDMNet is better by", "p"]]
    best = max((row.mean for row in rows if row.mean is not None), default=None)
    for row in rows:
        number = accuracy_words(row)
        stressed = style == "md" and row.mean is not None and row.mean == best
        lines.append(
            [
                row.method.replace("_", " ") + (" *" if row.ended_badly and style == "md" else ""),
                f"**{number}**" if stressed else number,
                str(row.splits),
                "" if row.gain is None else f"{row.gain:+.2f}",
                "" if row.p is None else ("< 0.001" if row.p < 0.001 else f"{row.p:.3f}"),
            ]
        )
    badly = [f"{row.method} on {row.ended_badly} of {row.splits} splits" for row in rows if row.ended_badly]
    if style == "csv":
        if badly:  # a column, which a program reads, in place of a mark
            counts = ["ended badly", *(str(row.ended_badly) for row in rows)]
            lines = [[*line, count] for line, count in zip(lines, counts, strict=True)]
        return "\n".join(",".join(f'"{c}"' if "," in c else c for c in line) for line in lines)
    table = ["| " + " | ".join(line) + " |" for line in lines]
    footnote = ["", f"* ended badly: {', '.join(badly)}"] if badly else []
    return "\n".join([table[0], "|---|---:|---:|---:|---:|", *table[1:], *footnote])
