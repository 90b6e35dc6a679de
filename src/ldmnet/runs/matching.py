"""Matching across modalities: the task of one run, and the sweep that chooses settings on validation people first.

The record's accuracy is the rank-1 identification rate in percent, its seed the number of the split or fold.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from ldmnet.errors import DivergenceError
from ldmnet.fingerprints import file_hash, settings_hash
from ldmnet.matching.casia import read_casia
from ldmnet.matching.embeddings import EmbeddingSettings, learn, plane
from ldmnet.matching.identify import identify
from ldmnet.matching.protocols import TRAIN_SHARE, Fold, given_split, open_set, thinned, validation_fold
from ldmnet.matching.sources import load_match_table, read_match_npz
from ldmnet.matching.table import MatchTable
from ldmnet.records.record import Record
from ldmnet.runs.run import Measured, Run, Watch
from ldmnet.runs.sweep import Places, sweep_runs
from ldmnet.training.settings import Precision

SHARES = {"digits": 0.6}  # of the people who train, where it is not TRAIN_SHARE
RANKS = 20  # of the CMC curve that a record keeps
EVERYBODY = 10_000
DEVELOPMENT = 0  # the number of CASIA's view 1
TUNING_SPLITS, FINALISTS = 3, 2
Data = tuple[MatchTable, Fold]


@dataclass(frozen=True)
class MatchSettings:
    """Everything that decides the result of a run of matching.

    Attributes:
        data: "yaleb", "cufs", "digits", "npz" or "casia".
        split: the number of the split, or CASIA's fold, 0 for "dev".
        embedding: what is learnt.
        part: "test", or "validation": people held out of the training people (CASIA: its view 1).
        gallery: the gallery's modality in an .npz file.
        fingerprint: of a user's file.
        threads: torch's threads, since float32 sums depend on their order.
        fewer: train on so many people at most, and on so many images of each in a modality.
    """

    data: str
    split: int
    embedding: EmbeddingSettings
    part: Literal["test", "validation"] = "test"
    gallery: str | None = None
    fingerprint: str = ""
    threads: int = 1
    fewer: tuple[int, int] | None = None

    @property
    def seed(self) -> int:
        """The split's number."""
        return self.split

    @property
    def epochs(self) -> int:
        """Of SGD."""
        return self.embedding.train.epochs

    @property
    def per_class(self) -> None:
        """None: there are no sizes."""

    def hash(self) -> str:
        """Twelve hex digits, see `settings_hash`."""
        return settings_hash(self)

    def recorded(self) -> dict[str, Any]:
        """All of the settings."""
        return asdict(self)

    def load(self, data_dir: str | Path | None = None, features: str | Path | None = None) -> Data:
        """The run's table and fold.

        Args:
            data_dir: the data folder; for "npz" the file, for "casia" the data set's folder.
            features: descriptors in place of CASIA's pixels.
        """
        validates = self.part == "validation"
        if self.data == "casia":
            name = "dev" if validates or self.split == DEVELOPMENT else str(self.split)
            table, (fold,) = _casia(str(data_dir), name, features)
        else:
            table = _table(self.data, data_dir, self.gallery)
            if table.split is not None:
                fold = given_split(table)
            else:
                share = SHARES.get(self.data, TRAIN_SHARE)
                fold = open_set(table, self.split + 1, train_share=share)[self.split]
            fold = validation_fold(table, fold, self.split) if validates else fold
        return table, fold if self.fewer is None else thinned(table, fold, *self.fewer, self.split)

    def described(self, data: Data) -> dict[str, Any]:
        """The fold, the sizes, and what is odd about the data."""
        table, fold = data
        names = (self.data, fold.hash(), self.gallery or "", self.fingerprint)
        return {
            "data": ":".join(filter(None, names)),
            "n_train": len(fold.train),
            "n_train_people": len(torch.unique(table.identity[fold.train])),
            "n_gallery": len(fold.gallery),
            "modalities": table.modalities,
            "data_note": "; ".join(filter(None, (table.notes(), fold.note()))),
        }

    def measure(self, data: Data, watch: Watch) -> Measured:
        """Learn the embedding on the fold's training people and identify its probes."""
        torch.set_num_threads(self.threads)
        table, fold = data
        x, identity = table.prepared(fold.train), table.identity
        learned = learn(
            x[fold.train],
            identity[fold.train],
            self.embedding,
            seed=self.split,
            checkpoint=watch.checkpoint,
            on_epoch=watch,
        )
        result = identify(
            learned.embed(x[fold.probe]), identity[fold.probe], learned.embed(x[fold.gallery]), identity[fold.gallery]
        )
        found: dict[str, Any] = {
            "accuracy": round(100 * result.rank1, 4),
            "cmc": [round(100 * share, 4) for share in result.cmc[:RANKS].tolist()],
            "verification": {
                str(rate): None if share is None else round(100 * share, 4)
                for rate, share in result.verification.items()
            },
            "n_test": result.n_probes,
            "left_out": result.left_out,
            "loss_curve": [float(f"{loss:.4g}") for loss in learned.loss_curve],
            "seconds": {phase: round(spent, 2) for phase, spent in learned.seconds.items()},
            "diverged": learned.diverged,
        }
        if self.part == "test" and self.split == (1 if self.data == "casia" else 0):  # the first of all
            people = torch.unique(identity[fold.gallery])[:5]
            rows = torch.isin(identity, people)
            found["figure2"] = {
                **{name: [float(f"{v:.4g}") for v in column] for name, column in
                   zip("xy", plane(learned.embed(x[rows])).T.tolist(), strict=True)},
                "person": torch.searchsorted(people, identity[rows]).tolist(),
                "modality": table.modality[rows].tolist(),
            }  # fmt: skip
        return Measured(found)


@lru_cache(maxsize=1)
def _table(data: str, data_dir: str | Path | None, gallery: str | None) -> MatchTable:
    return read_match_npz(str(data_dir), gallery) if data == "npz" else load_match_table(data, data_dir)


@lru_cache(maxsize=1)
def _casia(root: str, fold: str, features: str | Path | None) -> tuple[MatchTable, list[Fold]]:
    return read_casia(root, [fold], features=features)


@lru_cache
def _file_hash(path: Path) -> str:
    return file_hash(path)


def _load(settings: MatchSettings, data_dir: str | Path | None, *, features: str | Path | None) -> Data:
    return settings.load(data_dir, features)


@dataclass(frozen=True)
class Choice:
    """A row's settings, how they were chosen, and their mean rank-1 on validation people if they were tuned."""

    embedding: EmbeddingSettings
    selection: str
    val_accuracy: float | None = None


@dataclass(frozen=True)
class Matching:
    """What is matched, and where its files are.

    Attributes:
        table: the name in the records.
        data: see `MatchSettings`.
        splits: the splits or folds to test on.
        gallery: the gallery's modality in an .npz file; None takes the first by name.
        images: train on so many images of each person in a modality, drawn by the split's number; None takes all.
        precision: of the networks' passes; bfloat16 is faster on processors that have it.
        features: an .npz of CASIA's descriptors x and their path, in place of pixels.
        places: where things are.
    """

    table: str
    data: str
    splits: Sequence[int]
    gallery: str | None = None
    images: int | None = None
    precision: Precision = "float32"
    features: Path | None = None
    places: Places = field(default_factory=Places)

    def settings(self, split: int, embedding: EmbeddingSettings, *, validates: bool = False) -> MatchSettings:
        """A run's settings."""
        user_file = self.features or self.places.data_dir if self.data in ("casia", "npz") else None
        return MatchSettings(
            self.data,
            split,
            replace(embedding, train=replace(embedding.train, precision=self.precision)),
            part="validation" if validates else "test",
            gallery=self.gallery,
            fingerprint="" if user_file is None else _file_hash(Path(user_file)),
            fewer=None if self.images is None else (EVERYBODY, self.images),
        )

    def sweep(self, runs: Sequence[Run[MatchSettings]], name: str, console: Console | None = None) -> list[Record]:
        """Run what is not yet recorded in results/<name>.jsonl."""
        return sweep_runs(runs, name, self.places, load=partial(_load, features=self.features), console=console)


def run_matching(
    what: Matching,
    starts: Mapping[str, Choice],
    grids: Mapping[str, Sequence[EmbeddingSettings]],
    *,
    printed: Callable[[str], float | None] = lambda row: None,
    console: Console | None = None,
) -> list[Record]:
    """Choose every row's settings, then run every split; done runs are skipped.

    Args:
        what: the data and its places.
        starts: by row, the settings before any tuning.
        grids: by row, the settings to choose from on validation people, for the rows that are tuned.
        printed: a row's accuracy in the paper, where there is one.
        console: where the progress goes.
    """
    choices = {**starts, **(tune(what, grids, console=console) if grids else {})}
    runs = [
        Run(
            what.table,
            row,
            what.settings(split, choice.embedding),
            choice.selection,
            printed(row),
            more={"val_accuracy": choice.val_accuracy},
        )
        for split in what.splits
        for row, choice in choices.items()
    ]
    return what.sweep(runs, what.table, console)


def tune(
    what: Matching, grids: Mapping[str, Sequence[EmbeddingSettings]], *, console: Console | None = None
) -> dict[str, Choice]:
    """Each row's settings by mean rank-1 on validation people; what diverges is out.

    The whole grid is tried on three splits, and the best two settings of a row on all of them: three are too few to
    tell settings apart that are near each other. Without a development set, as CASIA has it, a person who validates in
    one split is tested in others.
    """
    splits = [DEVELOPMENT] if what.data == "casia" else list(what.splits)
    whole = [(row, embedding, splits[:TUNING_SPLITS]) for row, grid in grids.items() for embedding in grid]
    found = _validated(what, whole, console)
    if len(splits) > TUNING_SPLITS:
        best_first = {row: sorted(means, key=means.__getitem__, reverse=True) for row, means in found.items()}
        found = {row: {} for row in grids}
        while final := [
            (row, best_first[row].pop(0), splits)
            for row in grids
            for _ in range(min(FINALISTS - len(found[row]), len(best_first[row])))
        ]:  # once, unless one of them diverges on a later split
            for row, means in _validated(what, final, console).items():
                found[row] |= means
    lost = [row for row in grids if not found[row]]
    if lost:
        raise DivergenceError(f"every setting tried for {', '.join(lost)} diverged. Leave them out.")
    best = {row: max(found[row], key=found[row].__getitem__) for row in grids}
    return {row: Choice(embedding, "validation", found[row][embedding]) for row, embedding in best.items()}


def _validated(
    what: Matching, tried: Sequence[tuple[str, EmbeddingSettings, Sequence[int]]], console: Console | None
) -> dict[str, dict[EmbeddingSettings, float]]:
    """By row, the mean rank-1 of its settings on validation people; settings that diverged are left out."""
    means: dict[str, dict[EmbeddingSettings, float]] = {row: {} for row, _, _ in tried}
    name = f"{what.table}_tuning"
    runs = [
        Run(name, row, what.settings(split, embedding, validates=True), "tried")
        for row, embedding, splits in tried
        for split in splits
    ]
    records = iter(what.sweep(runs, name, console) if runs else [])
    for row, embedding, splits in tried:
        found = list(islice(records, len(splits)))
        if not any(record.diverged for record in found):
            means[row][embedding] = round(statistics.fmean(record.accuracy or 0.0 for record in found), 4)
    return means
