"""Who trains and who is tested: people apart, one gallery image of each test person in the first modality."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ldmnet.data.subsets import indices_hash
from ldmnet.errors import InputError
from ldmnet.matching.table import MatchTable
from ldmnet.seeds import generator

TRAIN_SHARE = 2 / 3  # of the people; the others are tested
VALIDATION_SHARE = 1 / 3  # of the training people


@dataclass(frozen=True, eq=False)
class Fold:
    """One training set and one test of a table.

    Attributes:
        name: which fold.
        train: rows of the table to learn from.
        gallery: rows with known identity, in the first modality.
        probe: rows to identify, in the second modality.
        one_modality: people seen in one modality only: they may train but are never tested.
        one_image: people with a single image: left out altogether.
        shared_people: people who both train and are tested.
    """

    name: str
    train: Tensor
    gallery: Tensor
    probe: Tensor
    one_modality: int = 0
    one_image: int = 0
    shared_people: int = 0

    def hash(self) -> str:
        """Sixteen hex digits that tell one fold's rows from another's."""
        return indices_hash(torch.cat([self.train, self.gallery + (1 << 40), self.probe + (1 << 41)]))

    def note(self) -> str:
        """What was not as it should be, in words; empty if all was."""
        words = []
        if self.one_modality:
            words.append(f"{self.one_modality} people are seen in one modality only: they train and are not tested")
        if self.one_image:
            words.append(f"{self.one_image} people have a single image: left out")
        if self.shared_people:
            words.append(f"{self.shared_people} people both train and are tested")
        return "; ".join(words)


def open_set(table: MatchTable, n_splits: int = 10, *, train_share: float = TRAIN_SHARE) -> list[Fold]:
    """Splits into training people and test people, drawn by the split's number.

    Args:
        table: the samples.
        n_splits: how many, from split 0.
        train_share: the share of the people seen in both modalities that train.
    """
    if n_splits < 1:
        raise InputError(f"n_splits must be at least 1, got {n_splits}.")
    if not 0 < train_share < 1:
        raise InputError(f"train_share must be above 0 and below 1, got {train_share}.")
    every = torch.arange(len(table.x))
    return [_divide(table, every, 1 - train_share, split, "people", f"split {split}") for split in range(n_splits)]


def validation_fold(table: MatchTable, fold: Fold, seed: int, *, share: float = VALIDATION_SHARE) -> Fold:
    """A fold within the training people of another, to choose settings on: its test people are not seen."""
    return _divide(table, fold.train, share, seed, "validation people", f"{fold.name}, validation")


def thinned(table: MatchTable, fold: Fold, people: int, images: int, seed: int) -> Fold:
    """The fold with fewer to train on: so many people at most, and so many images of each in a modality."""
    draw = generator(seed, "fewer")
    identity, modality = table.identity[fold.train], table.modality[fold.train]
    everyone = torch.unique(identity)
    kept = []
    for person in everyone[torch.randperm(len(everyone), generator=draw)][:people].tolist():
        for m in range(len(table.modalities)):
            rows = fold.train[(identity == person) & (modality == m)]
            kept.append(rows[torch.randperm(len(rows), generator=draw)][:images])
    return replace(fold, name=f"{fold.name}, {people} people x {images}", train=torch.cat(kept).sort().values)


def given_split(table: MatchTable, seed: int = 0) -> Fold:
    """The fold that the table's own `split` column says.

    "train" trains; "gallery" and "probe" are as they say, whatever their modality; of "test" people one image of the
    first modality is drawn for the gallery and all of the second are probes.
    """
    if table.split is None:
        raise InputError(f"{table.name} has no split column. Use open_set instead.")
    rows = {name: _rows(table, [s == name for s in table.split]) for name in ("train", "test", "gallery", "probe")}
    if len(rows["train"]) == 0:
        raise InputError(f"{table.name}: no row of split says train.")
    if len(rows["test"]) and (len(rows["gallery"]) or len(rows["probe"])):
        raise InputError(f"{table.name}: split says test in some rows and gallery or probe in others. Use one way.")
    if len(rows["gallery"]) or len(rows["probe"]):
        gallery, probe = rows["gallery"], rows["probe"]
    else:
        people = _in_both(table, rows["test"])
        gallery, probe = _gallery_and_probes(table, rows["test"], people, seed)
    if len(gallery) == 0 or len(probe) == 0:
        raise InputError(
            f"{table.name}: split leaves {len(gallery)} gallery rows and {len(probe)} probes. Say test for people "
            "seen in both modalities, or gallery and probe."
        )
    one_modality, one_image, train = _odd_people(table, rows["train"])
    tested = torch.unique(table.identity[torch.cat([gallery, probe])])
    shared = int(torch.isin(torch.unique(table.identity[train]), tested).sum())
    return Fold("given split", train, gallery, probe, one_modality, one_image, shared)


def _divide(table: MatchTable, rows: Tensor, test_share: float, seed: int, use: str, name: str) -> Fold:
    """Hold out a share of the people who are seen in both modalities among some rows."""
    one_modality, one_image, rows = _odd_people(table, rows)
    people = _in_both(table, rows)
    n_test = len(people) - round((1 - test_share) * len(people))
    if n_test < 1 or len(people) - n_test < 2:
        raise InputError(
            f"{table.name} has {len(people)} people seen in both modalities, too few for {name}: two must train and "
            "one must be tested."
        )
    order = torch.randperm(len(people), generator=generator(seed, use))
    tested = people[order[:n_test]].sort().values
    gallery, probe = _gallery_and_probes(table, rows, tested, seed)
    train = rows[~torch.isin(table.identity[rows], tested)]
    return Fold(name, train, gallery, probe, one_modality, one_image)


def _gallery_and_probes(table: MatchTable, rows: Tensor, people: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    draw = generator(seed, "gallery")
    identity, modality = table.identity[rows], table.modality[rows]
    gallery = []
    for person in people.tolist():
        candidates = rows[(identity == person) & (modality == 0)]
        if table.enrolled is not None and bool(table.enrolled[candidates].any()):
            candidates = candidates[table.enrolled[candidates]]
        gallery.append(candidates[torch.randint(len(candidates), (1,), generator=draw)])
    probe = rows[torch.isin(identity, people) & (modality == 1)]
    return torch.cat(gallery) if gallery else rows[:0], probe


def _in_both(table: MatchTable, rows: Tensor) -> Tensor:
    """The people who are seen in both modalities, sorted."""
    identity, modality = table.identity[rows], table.modality[rows]
    first, second = (torch.unique(identity[modality == m]) for m in (0, 1))
    both: Tensor = first[torch.isin(first, second)]
    return both


def _odd_people(table: MatchTable, rows: Tensor) -> tuple[int, int, Tensor]:
    """How many people are seen in one modality only, how many in one image only, and the rows without the latter."""
    people, counts = torch.unique(table.identity[rows], return_counts=True)
    alone = people[counts == 1]
    one_modality = len(people) - len(_in_both(table, rows)) - len(alone)
    return one_modality, len(alone), rows[~torch.isin(table.identity[rows], alone)]


def _rows(table: MatchTable, chosen: list[bool]) -> Tensor:
    return torch.tensor(chosen, dtype=torch.bool).nonzero().flatten()
