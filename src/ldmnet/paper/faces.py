"""Tables of matching across modalities: settings chosen on validation people, then every split of the test.

Extended Yale B and CUFS stand in for the paper's CASIA NIR-VIS 2.0 (Table 9), whose own protocol runs too where the
data is at hand.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

from rich.console import Console

from ldmnet.errors import DataError, DivergenceError, InputError
from ldmnet.matching.embeddings import METHODS, TITLES, EmbeddingSettings, face_training
from ldmnet.matching.figures import cmc_figure, people_figure
from ldmnet.paper import specs
from ldmnet.paper.face_runs import MatchRun, MatchSettings, execute_match
from ldmnet.records.runs import Record, append_record, read_records
from ldmnet.records.sweep import sweep_runs
from ldmnet.records.tables import accuracy_of
from ldmnet.training.methods import Method
from ldmnet.training.settings import Precision

TABLES = ("yaleb", "cufs")
EPOCHS = specs.NIR_VIS.epochs
TUNING_SPLITS, FINALISTS = 3, 2
DEVELOPMENT = 0  # the number of CASIA's view 1
LEARNING_RATES = (specs.NIR_VIS.lr, 0.03, 0.3, 0.01, 1.0)
MU, STRENGTH = 5.0, 1.0  # of LDMNet, tuned
STRENGTHS = {  # four of each regulariser
    "weight_decay": [Method("weight_decay", weight_decay_w=factor * specs.NIR_VIS.w) for factor in (1, 10, 0.1, 100)],
    "dropout": [Method("dropout", dropout=p) for p in (0.2, specs.DROPOUT, 0.7, 0.35)],
    "control": [Method("control", mu=mu) for mu in (MU, 20.0, 1.0, 80.0)],
    "ldmnet_tuned": [
        Method("ldmnet", mu=mu, lambda_tilde=strength)
        for mu, strength in ((MU, STRENGTH), (MU, 5.0), (20.0, 20.0), (20.0, 4.0))
    ],
}
MARGINS = (0.2, 0.5, 0.1, 1.0)
EVERYBODY = 10_000
NOT_TUNED = ("pca", "ldmnet")


@dataclass(frozen=True)
class Choice:
    """A row's settings, how they were chosen, and their mean rank-1 on validation people if they were tuned."""

    embedding: EmbeddingSettings
    selection: str
    val_accuracy: float | None = None


def default_embedding(row: str, epochs: int = EPOCHS) -> EmbeddingSettings:
    """A row's settings before any tuning: the paper's where it prints them."""
    paper, train = specs.NIR_VIS, face_training(epochs, specs.NIR_VIS.lr)
    methods = {
        "none": Method(),
        "weight_decay": Method("weight_decay", weight_decay_w=paper.w),
        "dropout": Method("dropout", dropout=specs.DROPOUT),
        "control": Method("control", mu=paper.mu),
        "ldmnet": Method("ldmnet", mu=paper.mu, lambda_tilde=paper.lambda_tilde),
        "ldmnet_tuned": Method("ldmnet", mu=MU, lambda_tilde=STRENGTH),
    }
    if row in methods:
        return EmbeddingSettings(method=methods[row], train=train, width=paper.width)
    once = face_training(1)  # no SGD
    if row == "pca":
        return EmbeddingSettings("pca", train=once, dimensions=paper.pca_dimensions)
    if row == "low_rank":
        return EmbeddingSettings("low_rank", train=once, dimensions=400, step_size=0.01)
    if row == "triplet":
        return EmbeddingSettings("triplet", train=train, width=paper.width)
    raise InputError(f"there is no method {row!r}. The methods: {', '.join(METHODS)}.")


def grid(row: str, epochs: int = EPOCHS) -> list[EmbeddingSettings]:
    """The settings that a row's are chosen from: for a network five learning rates and four strengths."""
    start = default_embedding(row, epochs)
    if row in NOT_TUNED:
        return [start]
    if row == "low_rank":
        return [replace(start, dimensions=d, step_size=s) for d in (200, 400) for s in (0.01, 0.03)]
    if row == "none":
        return [replace(start, train=face_training(epochs, lr)) for lr in LEARNING_RATES]
    trains = [face_training(epochs, lr) for lr in LEARNING_RATES]
    if row == "triplet":
        return [replace(start, train=train, margin=margin) for train in trains for margin in MARGINS]
    return [replace(start, train=train, method=method) for train in trains for method in STRENGTHS[row]]


@dataclass(frozen=True)
class Matching:
    """What is matched, and where its files are.

    Attributes:
        table: the name in the records.
        data: see `MatchSettings`.
        splits: the splits or folds to test on.
        epochs: of SGD.
        runs_dir: one folder a run.
        results: the folder of the records.
        data_dir: the data folder, the .npz file, or CASIA's folder.
        features: descriptors in place of CASIA's pixels.
        gallery: the gallery's modality in an .npz file.
        jobs: processes side by side, each with one torch thread.
        precision: of the networks' passes.
        images: of each person in a modality to train on; None takes all.
    """

    table: str
    data: str
    splits: Sequence[int]
    epochs: int = EPOCHS
    runs_dir: Path = Path("runs")
    results: Path = Path("results")
    data_dir: str | Path | None = None
    features: str | Path | None = None
    gallery: str | None = None
    jobs: int = 1
    precision: Precision = "float32"
    images: int | None = None

    def settings(self, split: int, embedding: EmbeddingSettings, *, validates: bool = False) -> MatchSettings:
        """A run's settings."""
        user_file = self.features or self.data_dir if self.data in ("casia", "npz") else None
        return MatchSettings(
            self.data,
            split,
            replace(embedding, train=replace(embedding.train, precision=self.precision)),
            part="validation" if validates else "test",
            gallery=self.gallery,
            fingerprint="" if user_file is None else _fingerprint(Path(user_file)),
            fewer=None if self.images is None else (EVERYBODY, self.images),
        )

    def sweep(self, runs: Sequence[MatchRun], name: str, console: Console | None) -> list[Record]:
        """Run what is not yet recorded in results/<name>.jsonl."""
        return sweep_runs(
            runs,
            runs_dir=self.runs_dir,
            results=self.results / f"{name}.jsonl",
            data_dir=self.data_dir,
            jobs=self.jobs,
            console=console,
            work=partial(execute_match, features=self.features),
        )


def run_matching(
    what: Matching, rows: Sequence[str] = METHODS, *, tuned: bool = True, console: Console | None = None
) -> list[Record]:
    """Choose every row's settings, then run every split; done runs are skipped.

    Args:
        what: the data and its places.
        rows: the methods.
        tuned: choose settings on validation people; otherwise take the defaults.
        console: where the progress goes.
    """
    choices = {row: Choice(default_embedding(row, what.epochs), untuned_selection(row)) for row in rows}
    if tuned:
        choices |= tune(what, [row for row in rows if row not in NOT_TUNED], console=console)
    runs = [
        MatchRun(
            what.table,
            row,
            what.settings(split, choices[row].embedding),
            choices[row].selection,
            _printed(row) if what.data == "casia" and what.features is not None else None,
            choices[row].val_accuracy,
        )
        for split in what.splits
        for row in rows
    ]
    records = what.sweep(runs, what.table, console)
    _put_last(records, what.results / f"{what.table}.jsonl")
    return records


def _put_last(records: Sequence[Record], path: Path) -> None:
    """Append the records of a row again if its last ones are of other settings, since tables show the last."""
    last = {record["method"]: record["hash"] for record in read_records([path])}
    chosen: dict[str, set[str]] = {}
    for record in records:
        chosen.setdefault(record["method"], set()).add(record["hash"])
    for record in records:
        if last[record["method"]] not in chosen[record["method"]]:
            append_record(path, record)


def tune(what: Matching, rows: Sequence[str], *, console: Console | None = None) -> dict[str, Choice]:
    """Each row's settings by mean rank-1 on validation people; what diverges is out.

    The whole grid is tried on three splits, and the best two settings of a row on all of them: three are too few to
    tell settings apart that are near each other. Without a development set, as CASIA has it, a person who validates in
    one split is tested in others.
    """
    splits = [DEVELOPMENT] if what.data == "casia" else list(what.splits)
    whole = [(row, embedding, splits[:TUNING_SPLITS]) for row in rows for embedding in grid(row, what.epochs)]
    found = _validated(what, whole, console)
    if len(splits) > TUNING_SPLITS:
        best_first = {row: sorted(means, key=means.__getitem__, reverse=True) for row, means in found.items()}
        found = {row: {} for row in rows}
        while final := [
            (row, best_first[row].pop(0), splits)
            for row in rows
            for _ in range(min(FINALISTS - len(found[row]), len(best_first[row])))
        ]:  # once, unless one of them diverges on a later split
            for row, means in _validated(what, final, console).items():
                found[row] |= means
    lost = [row for row in rows if not found[row]]
    if lost:
        raise DivergenceError(f"every setting tried for {', '.join(lost)} diverged. Leave them out with --methods.")
    best = {row: max(found[row], key=found[row].__getitem__) for row in rows}
    return {row: Choice(embedding, "validation", found[row][embedding]) for row, embedding in best.items()}


def _validated(
    what: Matching, tried: Sequence[tuple[str, EmbeddingSettings, Sequence[int]]], console: Console | None
) -> dict[str, dict[EmbeddingSettings, float]]:
    """By row, the mean rank-1 of its settings on validation people; settings that diverged are left out."""
    means: dict[str, dict[EmbeddingSettings, float]] = {row: {} for row, _, _ in tried}
    runs = [
        MatchRun(f"{what.table}_tuning", row, what.settings(split, embedding, validates=True), "validation")
        for row, embedding, splits in tried
        for split in splits
    ]
    records = iter(what.sweep(runs, f"{what.table}_tuning", console) if runs else [])
    for row, embedding, splits in tried:
        found = list(islice(records, len(splits)))
        if not any("diverged" in record for record in found):
            means[row][embedding] = round(statistics.fmean(record["accuracy"] for record in found), 4)
    return means


def row_title(record: Record) -> str:
    """A row's name for people; settings that nobody tuned are not called tuned."""
    if record["method"] == "ldmnet_tuned" and record["selection"] != "validation":
        method = record["settings"]["embedding"]["method"]
        return f"LDMNet, mu {method['mu']:g}, lambda {method['lambda_tilde']:g}"
    return TITLES[record["method"]]


def draw(records: Sequence[Record], output: Path) -> list[Path]:
    """Figure 2 from the records that hold its points, and the mean CMC curves; of runs that did not diverge."""
    records = [record for record in records if accuracy_of(record) is not None]
    rows = list(dict.fromkeys(row_title(record) for record in records))
    panels = {f"{row_title(r)}: {r['accuracy']:.1f} %": r["figure2"] for r in records if "figure2" in r}
    pictures = []
    if panels:
        modalities = next(r["modalities"] for r in records if "figure2" in r)
        shown = max(max(points["person"]) for points in panels.values()) + 1
        strangers = all("both train and are tested" not in r["data_note"] for r in records if "figure2" in r)
        title = f"{shown} identities{' not seen in training' if strangers else ''}, PCA to two dimensions"
        pictures.append(people_figure(panels, tuple(modalities), output / "figure2.png", title=title))
    curves = {}
    for row in rows:
        found = [record["cmc"] for record in records if row_title(record) == row]
        curves[row] = [statistics.fmean(shares) for shares in zip(*found, strict=False)]
    pictures.append(cmc_figure(curves, output / "cmc.png", title=f"{records[0]['table']}: cumulative matches"))
    return pictures


def untuned_selection(row: str) -> str:
    """How settings that nobody tuned were chosen."""
    return "printed" if row == "ldmnet" else "default"


def _printed(row: str) -> float | None:
    """Table 9, on the descriptors of VGG-face."""
    found = getattr(specs.NIR_VIS, row, None)
    return found[0] if isinstance(found, tuple) else None


@lru_cache
def _fingerprint(path: Path) -> str:
    """Of a file's content, or of a folder's files by name, size and time."""
    try:
        if path.is_dir():
            files = [(str(file.relative_to(path)), file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
            listed = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
            return hashlib.sha256(repr(listed).encode()).hexdigest()[:12]
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
