"""LDMNet beside what people use, on the same loop, splits and budgets: the records behind docs/which-tool.md.

    python benchmarks/rivals.py mnist --jobs 2           # the paper's network, 50 and 100 per class, 5 seeds
    python benchmarks/rivals.py tables --trials 0        # ten tables, 20 per class, ten folds, untuned
    python benchmarks/rivals.py tables --trials 8        # the same, every method with 8 trials
    python benchmarks/rivals.py whole                    # the ten tables with all samples of the training part
    python benchmarks/rivals.py images --methods none,dropout,centre,ldmnet,ldmnet+centre,ldmnet+label_smoothing
                                                         # SVHN and CIFAR-10, 50 per class, the paper's network
    python benchmarks/rivals.py wrn --trials 8           # CIFAR-10, the public benchmark's split, WRN-16-1
    python benchmarks/rivals.py series                   # time series, the data set's own training and test part
    python benchmarks/rivals.py spectra                  # infrared spectra, 10 to 30 per class
    python benchmarks/rivals.py frozen                   # features of EfficientNet-Lite0, 50 per class
    python benchmarks/rivals.py text                     # features of all-MiniLM-L6-v2, 20 per class

Records go to results/rivals/, one file per data set; what is recorded is skipped, and a run that was cut resumes. For
images, what the paper's tables and studies have with the same settings is taken from there. `--methods`, `--only` and
`--folds` take a part. The data: scripts/rivals_data.py.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rivals_sources import load

from ldmnet.fingerprints import settings_hash
from ldmnet.paper.presets import SETUP
from ldmnet.records import append, read_records
from ldmnet.records.tables import records_in
from ldmnet.runs import Places, Run, RunSettings, UserSettings, sweep_runs
from ldmnet.runs.care import Trial
from ldmnet.runs.classical import CLASSICAL
from ldmnet.runs.run import RECORD, Measured, Watch, read_run
from ldmnet.runs.samples import Split
from ldmnet.runs.tuned import TunedTask, at
from ldmnet.training.methods import METHODS, Method
from ldmnet.training.rivals import RIVALS

TABLES = (
    *("penbased", "optdigits", "satimage", "texture", "segment"),
    *("vowel", "vehicle", "phoneme", "spambase", "wdbc"),
)
SERIES = ("mnist1d", "ACSF1", "OSULeaf", "ArrowHead", "ItalyPowerDemand", "JapaneseVowels")
SPECTRA = ("mayonnaise", "meat", "coffee")
FROZEN = ("cifar10", "mnist", "svhn")
TEXTS = ("spam", "grain", "corn")
NETWORKS = (*METHODS, *RIVALS, *(f"ldmnet+{name}" for name in RIVALS))
ALL = (*NETWORKS, *CLASSICAL)
WRN = (
    "none",
    "label_smoothing",
    "ema",
    "sam",
    "control",
    "ldmnet",
    "ldmnet+label_smoothing",
    "ldmnet+ema",
    "ldmnet+sam",
)
WHOLE = ("none", "dropout", "control", "ldmnet", "centre", "t_vmf", "contrastive", "logistic", "svm", "forest")
REGIMES = ("mnist", "tables", "wrn", "images", "series", "spectra", "frozen", "text", "whole")
FOLDS, SEEDS, FEW = 10, 5, 3
SPLITS = {"tables": FOLDS, "wrn": FEW, "images": FEW, "whole": FEW}  # SEEDS of the others


@dataclass(frozen=True)
class FoldTask:
    """One method on one fold of a data set, with an MLP where it is a network.

    Attributes:
        data: what `rivals_sources.load` knows.
        split: the number of the fold or seed.
        method: the method's name.
        per_class: training samples per class; None takes the whole training part.
        trials: for the learning rate, the weight decay and the own strength; zero takes the defaults.
    """

    data: str
    split: int
    method: str
    per_class: int | None = 20
    trials: int = 0

    @property
    def seed(self) -> int:
        """The fold's number."""
        return self.split

    @property
    def epochs(self) -> int:
        """Of the network, or of all in an ensemble."""
        return self._settings().all_epochs

    def _settings(self) -> UserSettings:
        if self.data.startswith("wrn:"):
            how = {"epochs": 100, "lr": 0.05, "batch_size": 50, "schedule": "cosine", "augment": "shift,flip"}
            net = "rivals_sources:wrn_16_1"
            return UserSettings(net=net, method=self.method, seed=self.split, trials=self.trials, decay=0.005, **how)
        batch = 128 if self.per_class is None and self.data.startswith("tables:") else 32
        how = {"epochs": 100, "lr": 0.001, "batch_size": batch, "optimizer": "adamw", "schedule": "cosine"}
        return UserSettings(net="mlp", method=self.method, seed=self.split, trials=self.trials, **how)

    def hash(self) -> str:
        """Twelve hex digits."""
        return settings_hash(self)

    def recorded(self) -> dict[str, Any]:
        """All of the settings."""
        return {**asdict(self), "training": asdict(self._settings().training())}

    def load(self, data_dir: str | Path | None = None) -> Split:
        """The fold, standardised by its training part."""
        return load(self.data, self.split, self.per_class, data_dir)

    def described(self, data: Split) -> dict[str, Any]:
        """The data's name and sizes."""
        sizes = {"n_train": len(data.train), "n_test": len(data.test)}
        return {"data": self.data, "classes": len(data.samples.class_names), "budget": {"trials": self.trials}, **sizes}

    def measure(self, data: Split, watch: Watch) -> Measured:
        """Train, tuned or not, and test."""
        torch.set_num_threads(1)
        measured = TunedTask(self._settings(), data.samples, name=self.data).measure(data, watch)
        short = {name: value for name, value in measured.fields.items() if name != "loss_curve"}
        return replace(measured, fields=short)


@dataclass(frozen=True)
class ChosenTask(FoldTask):
    """One more seed with the numbers that the first one's trials chose, on the same samples.

    Attributes:
        numbers: the trial.
        budget: of the first seed, for the record.
    """

    numbers: Trial = field(default_factory=lambda: Trial("none"))
    budget: int = 0

    def _settings(self) -> UserSettings:
        return at(super()._settings(), self.numbers)

    def recorded(self) -> dict[str, Any]:
        """The first seed's settings and, beside them, what its trials chose: seeds of one row, in the records' eyes."""
        mine = super().recorded()
        trained = mine.pop("training")
        return {**mine, "trials": self.budget, "trained": trained}

    def described(self, data: Split) -> dict[str, Any]:
        """The data's name and sizes."""
        return {**super().described(data), "budget": {"trials": self.budget, "numbers": asdict(self.numbers)}}


def folds(
    regime: str, names: tuple[str, ...], split: int, options: argparse.Namespace
) -> Iterator[tuple[str, Run[Any]]]:
    """A fold's runs, so that a sweep that is cut has a bit of everything."""
    few, some = options.per_class or 20, options.per_class or 50
    sizes = {"tables": few, "text": few, "series": None, "spectra": None, "frozen": some, "wrn": None, "whole": None}
    kind = "tables" if regime == "whole" else regime
    listed = {"wrn": WRN, "whole": WHOLE}.get(regime, ALL)
    for name in names:
        per_class = 50 if name == "mnist1d" else sizes[regime]
        for method in options.methods or listed:
            task = FoldTask(f"{kind}:{name}", split, method, per_class, options.trials)
            row = f"{method}_tuned" if options.trials else method
            path = options.results / f"{regime}-{name}.jsonl"
            if options.numbers_of:
                task = of_first(task, f"{options.numbers_of}_tuned", path)
                task = replace(task, numbers=replace(task.numbers, method=method, own=None))
                row = f"{method}_as_{options.numbers_of}_tuned"
            elif regime == "wrn" and split and options.trials:  # the same samples: tuned once
                task = of_first(task, row, path)
            chosen = "validation" if options.trials else "default"
            yield (
                f"{regime}-{name}",
                Run(f"rivals-{regime}-{name}", row, task, chosen, size=50 if regime == "wrn" else per_class),
            )


def of_first(task: FoldTask, row: str, path: Path) -> ChosenTask:
    """A task with what the first seed's trials chose."""
    first = {"method": row, "seed": 0}.items()
    budgets = [record["budget"] for record in map(json.loads, path.read_text().splitlines()) if first <= record.items()]
    if not budgets or budgets[-1]["trials"] != task.trials:
        raise SystemExit(f"{path} has no seed 0 of {row} with {task.trials} trials: run it first.")
    budget = budgets[-1]
    chosen = budget["tried"][budget["chosen"]].items()
    numbers = {name: value for name, value in chosen if name not in ("val_accuracy", "ended")}
    return ChosenTask(task.data, task.split, task.method, task.per_class, 0, Trial(**numbers), budget["trials"])


def images(names: tuple[str, ...], sizes: tuple[int, ...], seed: int, options: argparse.Namespace) -> Any:
    """The paper's networks on images as they are, with the paper's training; LDMNet by its default."""
    known = {record.hash for record in records_in(options.results.parent)}
    for data in names:
        for size in sizes:
            for method in options.methods or NETWORKS:
                settings = image_run(data, size, seed, method)
                if options.precision and settings.hash() not in known:
                    settings = replace(settings, train=replace(settings.train, precision=options.precision))
                yield data, Run(f"rivals-{data}", method, settings, "default")


def take_over(runs: Sequence[Run[Any]], path: Path) -> None:
    """Append the records that the paper's tables and studies have of the same settings."""
    known = {record.hash: record for record in records_in(path.parents[1])}
    here = {record.hash for record in read_records([path])} if path.exists() else set()
    for run in runs:
        found = known.get(run.settings.hash())
        if found is not None and found.hash not in here:
            append(path, replace(found, settings=run.settings.recorded(), **run.place()))  # as they are written now


def refuse_others(runs: Sequence[Run[Any]], results: Path, folders: Path) -> None:
    """Stop where a run is done with other training numbers than this script has now: its name does not hold them."""
    done = {record.hash: record for record in (read_records([results]) if results.exists() else [])}
    for run in runs:
        folder, wanted = folders / run.settings.hash(), trained(run.settings.recorded())
        kept = read_run(folder) if (folder / RECORD).exists() else None
        for found, where in ((done.get(run.settings.hash()), results), (kept, folder)):
            had = trained(found.settings) if found else {}
            other = [f"{name} {had[name]}, now {new}" for name, new in wanted.items() if had.get(name, new) != new]
            if other:
                raise SystemExit(f"{where} has {run.row} with {'; '.join(other)}. Move it away to run it anew.")


def trained(recorded: dict[str, Any]) -> dict[str, Any]:
    """The training numbers of a task's settings; `ChosenTask` keeps them beside its row's."""
    return recorded.get("training") or recorded.get("trained") or {}


def image_run(data: str, size: int, seed: int, method: str) -> RunSettings:
    """One run on images; weight decay and DropOut with the numbers of the paper's MNIST table."""
    own = {"weight_decay": {"weight_decay_w": 0.1}, "dropout": {"dropout": 0.5}}.get(method, {})
    setup = SETUP[data]
    rate = 5 if data == "cifar10" else 1  # validation images choose it there for all rows of the paper
    train = replace(setup.train, lr=rate * setup.train.lr)
    return replace(setup, per_class=size, seed=seed, method=Method(method, **own), train=train)


def planned(regime: str, split: int, options: argparse.Namespace) -> list[tuple[str, Run[Any]]]:
    """A regime's runs of one fold or seed in their order, each with the name of its file."""
    known = {"tables": TABLES, "series": SERIES, "spectra": SPECTRA, "frozen": FROZEN, "mnist": ("mnist",),
             "images": ("svhn", "cifar10"), "wrn": ("cifar10",), "text": TEXTS, "whole": TABLES}  # fmt: skip
    names = tuple(options.only or known[regime])
    if regime not in ("mnist", "images"):
        return list(folds(regime, names, split, options))
    sizes = (50, 100) if regime == "mnist" else (50,)
    return list(images(names, (options.per_class,) if options.per_class else sizes, split, options))


def words(text: str) -> tuple[str, ...]:
    """Names with commas."""
    return tuple(word for word in text.split(",") if word)


def main() -> None:
    """Run what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trials", type=int, default=0, help="of every method, on a quarter of the training part")
    parser.add_argument("--methods", type=words, default=())
    parser.add_argument("--only", type=words, default=(), help="some of the data sets")
    parser.add_argument("--folds", type=int, help="the first so many folds or seeds")
    parser.add_argument("--per-class", type=int)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="images: of runs not recorded yet")
    parser.add_argument("--numbers-of", help="wrn: with the rate and decay that this method's trials chose")
    parser.add_argument("--data", help="the folder of the data  [default: $LDMNET_DATA]")
    parser.add_argument("--results", type=Path, default=Path("results/rivals"))
    parser.add_argument("--runs", type=Path, default=Path("runs/rivals"))
    options = parser.parse_args()
    if options.numbers_of and (options.regime != "wrn" or not options.trials):
        parser.error("--numbers-of goes with wrn --trials N.")
    warnings.simplefilter("ignore")
    places = Places(options.jobs, options.data, options.runs, options.results)
    for split in range(options.folds or SPLITS.get(options.regime, SEEDS)):
        plan = planned(options.regime, split, options)
        for name in dict.fromkeys(name for name, _ in plan):
            runs = [run for file, run in plan if file == name]
            if options.regime in ("mnist", "images"):
                take_over(runs, options.results / f"{name}.jsonl")
            refuse_others(runs, options.results / f"{name}.jsonl", options.runs)
            sweep_runs(runs, name, places)


if __name__ == "__main__":
    main()
