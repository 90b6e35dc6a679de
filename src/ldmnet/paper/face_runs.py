"""One run of matching: settings in, one record out, as `ldmnet.records` reads them.

The record's accuracy is the rank-1 identification rate in percent, its seed the number of the split or fold.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch

from ldmnet.data.faces import load_match_table, read_match_npz
from ldmnet.data.modalities import MatchTable
from ldmnet.files import write_atomically
from ldmnet.matching.casia import read_casia
from ldmnet.matching.embeddings import EmbeddingSettings, learn
from ldmnet.matching.figures import scatter_points
from ldmnet.matching.identify import identify
from ldmnet.matching.protocols import TRAIN_SHARE, Fold, given_split, open_set, thinned, validation_fold
from ldmnet.records.runs import RECORD, Record, settings_hash, versions, why_diverged
from ldmnet.training.progress import OnEpoch
from ldmnet.training.settings import TrainSettings

SHARES = {"digits": 0.6}  # of the people who train, where it is not TRAIN_SHARE
RANKS = 20  # of the CMC curve that a record keeps


@dataclass(frozen=True)
class MatchSettings:
    """Everything that decides a run's result.

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
    def train(self) -> TrainSettings:
        """SGD's numbers."""
        return self.embedding.train

    def hash(self) -> str:
        """Twelve hex digits, see `settings_hash`."""
        return settings_hash(self)


def first_split(data: str) -> int:
    """Splits count from 0, CASIA's folds from 1."""
    return 1 if data == "casia" else 0


@dataclass(frozen=True)
class MatchRun:
    """A run with its place in a table.

    Attributes:
        table: which table it belongs to.
        row: the method's name in that table.
        settings: what to run.
        selection: how the settings were chosen: "printed", "validation" or "default".
        paper: the printed rank-1 in percent, where there is one.
        val_accuracy: the mean rank-1 on validation people that chose the settings, in percent.
    """

    table: str
    row: str
    settings: MatchSettings
    selection: str
    paper: float | None = None
    val_accuracy: float | None = None


def execute_match(
    run: MatchRun,
    *,
    runs_dir: Path,
    data_dir: str | Path | None = None,
    features: str | Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Record:
    """Run once, or return the record of the run if it is done; a network that was cut goes on from its checkpoint.

    Args:
        run: what to run.
        runs_dir: one folder a run.
        data_dir: the data folder; for "npz" the file, for "casia" the data set's folder.
        features: descriptors in place of CASIA's pixels.
        on_epoch: called after every epoch of SGD.
    """
    folder = runs_dir / run.settings.hash()
    done = folder / RECORD
    if done.exists():
        return {**json.loads(done.read_text()), **_place(run)}
    checkpoint = folder / "checkpoint.pt"
    table, fold = load_fold(run.settings, data_dir, features)
    record = match_once(run, table, fold, checkpoint=checkpoint, on_epoch=on_epoch)
    text = json.dumps(record)
    write_atomically(done, text)
    checkpoint.unlink(missing_ok=True)
    return dict(json.loads(text))  # as it will be read again: lists in place of tuples


def load_fold(
    settings: MatchSettings, data_dir: str | Path | None = None, features: str | Path | None = None
) -> tuple[MatchTable, Fold]:
    """The run's table and fold."""
    validates = settings.part == "validation"
    if settings.data == "casia":
        name = "dev" if validates or settings.split == 0 else str(settings.split)
        table, folds = _casia(str(data_dir), name, features)
        return table, _fewer(settings, table, folds[0])
    table = _table(settings.data, data_dir, settings.gallery)
    if table.split is not None:
        fold = given_split(table)
    else:
        share = SHARES.get(settings.data, TRAIN_SHARE)
        fold = open_set(table, settings.split + 1, train_share=share)[settings.split]
    fold = validation_fold(table, fold, settings.split) if validates else fold
    return table, _fewer(settings, table, fold)


def _fewer(settings: MatchSettings, table: MatchTable, fold: Fold) -> Fold:
    return fold if settings.fewer is None else thinned(table, fold, *settings.fewer, settings.split)


@lru_cache(maxsize=1)
def _table(data: str, data_dir: str | Path | None, gallery: str | None) -> MatchTable:
    return read_match_npz(str(data_dir), gallery) if data == "npz" else load_match_table(data, data_dir)


@lru_cache(maxsize=1)
def _casia(root: str, fold: str, features: str | Path | None) -> tuple[MatchTable, list[Fold]]:
    return read_casia(root, [fold], features=features)


def match_once(
    run: MatchRun,
    table: MatchTable,
    fold: Fold,
    *,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Record:
    """Learn the run's embedding on the fold's training people, identify its probes, and describe both."""
    settings = run.settings
    torch.set_num_threads(settings.threads)
    x, identity = table.prepared(fold.train), table.identity
    learned = learn(
        x[fold.train],
        identity[fold.train],
        settings.embedding,
        seed=settings.split,
        checkpoint=checkpoint,
        on_epoch=on_epoch,
    )
    result = identify(
        learned.embed(x[fold.probe]), identity[fold.probe], learned.embed(x[fold.gallery]), identity[fold.gallery]
    )
    record = {
        **_place(run),
        "accuracy": round(100 * result.rank1, 4),
        "cmc": [round(100 * share, 4) for share in result.cmc[:RANKS].tolist()],
        "verification": {
            str(rate): None if share is None else round(100 * share, 4) for rate, share in result.verification.items()
        },
        "n_train": len(fold.train),
        "n_train_people": len(torch.unique(identity[fold.train])),
        "n_test": result.n_probes,
        "n_gallery": len(fold.gallery),
        "left_out": result.left_out,
        "fold_hash": fold.hash(),
        "hash": settings.hash(),
        "settings": asdict(settings),
        "loss_curve": [float(f"{loss:.4g}") for loss in learned.loss_curve],
        "seconds": {phase: round(spent, 2) for phase, spent in learned.seconds.items()},
        "threads": settings.threads,
        "versions": versions(),
        "data_note": "; ".join(filter(None, (table.notes(), fold.note()))),
        "modalities": table.modalities,
    }
    if learned.diverged:
        record["diverged"] = why_diverged(learned.diverged)
    if settings.part == "test" and settings.split == first_split(settings.data):
        people = torch.unique(identity[fold.gallery])[:5]
        rows = torch.isin(identity, people).nonzero().flatten()
        record["figure2"] = scatter_points(learned.embed(x[rows]), identity[rows], table.modality[rows])
    return record


def _place(run: MatchRun) -> Record:
    return {
        "table": run.table,
        "per_class": None,
        "method": run.row,
        "seed": run.settings.split,
        "selection": run.selection,
        "paper": run.paper,
        "val_accuracy": run.val_accuracy,
    }
