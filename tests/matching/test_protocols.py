from dataclasses import replace

import pytest
import torch
from made_up import people_table

from ldmnet.errors import InputError
from ldmnet.matching import given_split, open_set, validation_fold
from ldmnet.matching.protocols import thinned


def people_of(table, rows):
    return set(table.identity[rows].tolist())


def without(table, gone):
    keep = ~gone
    parts = {name: getattr(table, name)[keep] for name in ("x", "identity", "modality")}
    return replace(table, **parts)


def test_training_and_test_people_are_apart():
    table = people_table(people=9)
    for fold in open_set(table, 5):
        train, gallery, probe = (people_of(table, rows) for rows in (fold.train, fold.gallery, fold.probe))
        assert len(train) == 6
        assert gallery == probe
        assert not train & gallery
        assert train | gallery == set(range(9))
        assert len(fold.gallery) == len(gallery)
        assert set(table.modality[fold.gallery].tolist()) == {0}
        assert set(table.modality[fold.probe].tolist()) == {1}
        assert len(fold.probe) == 3 * len(probe)
        assert fold.note() == ""


def test_splits_differ_and_come_out_the_same_again():
    table = people_table()
    first, again = open_set(table, 4), open_set(table, 6)[:4]
    assert [f.hash() for f in first] == [f.hash() for f in again]
    assert len({f.hash() for f in first}) == 4


def test_validation_people_come_from_the_training_people():
    table = people_table(people=12)
    fold = open_set(table, 1)[0]
    inner = validation_fold(table, fold, seed=0)
    held, train = people_of(table, inner.probe), people_of(table, inner.train)
    assert held | train == people_of(table, fold.train)
    assert not held & train
    assert not (held | train) & people_of(table, fold.probe)
    assert len(held) == 3


def test_a_thinned_fold_trains_on_fewer_and_tests_the_same():
    table = people_table(people=12)
    fold = open_set(table, 1)[0]
    few = thinned(table, fold, 4, 1, seed=0)
    assert people_of(table, few.train) < people_of(table, fold.train)
    seen = list(zip(table.identity[few.train].tolist(), table.modality[few.train].tolist(), strict=True))
    assert len(seen) == len(set(seen)) == 8  # four people, once in each modality
    assert torch.equal(few.probe, fold.probe)
    assert torch.equal(few.gallery, fold.gallery)
    assert torch.equal(thinned(table, fold, 4, 1, seed=0).train, few.train)
    assert not torch.equal(thinned(table, fold, 4, 1, seed=1).train, few.train)
    assert torch.equal(thinned(table, fold, 99, 99, seed=0).train, fold.train)


def test_people_of_one_modality_train_but_are_not_tested_and_single_images_are_left_out():
    table = people_table(people=9)
    only_first = (table.identity == 0) & (table.modality == 1)
    alone = (table.identity == 1) & ~(torch.arange(len(table.x)) == 3)
    table = without(table, only_first | alone)
    for fold in open_set(table, 6):
        assert (fold.one_modality, fold.one_image) == (1, 1)
        assert 0 in people_of(table, fold.train)
        assert 1 not in people_of(table, torch.cat([fold.train, fold.gallery, fold.probe]))
        assert fold.note() == (
            "1 people are seen in one modality only: they train and are not tested; "
            "1 people have a single image: left out"
        )


def test_enrolled_images_are_preferred_for_the_gallery():
    table = people_table()
    enrolled = torch.zeros(len(table.x), dtype=torch.bool)
    enrolled[1:12:3] = True  # the second image of the first four people
    fold = open_set(replace(table, enrolled=enrolled), 1, train_share=0.3)[0]
    chosen = {int(table.identity[row]): int(row) for row in fold.gallery}
    assert all(chosen[person] == 3 * person + 1 for person in chosen if person < 4)


def test_a_given_split_is_followed():
    table = people_table(people=4)
    split = ["train" if person < 2 else "test" for person in table.identity.tolist()]
    fold = given_split(replace(table, split=tuple(split)))
    assert people_of(table, fold.train) == {0, 1}
    assert people_of(table, fold.gallery) == people_of(table, fold.probe) == {2, 3}
    assert (len(fold.gallery), len(fold.probe)) == (2, 6)
    explicit = ["probe" if says == "test" else says for says in split]
    explicit[6] = "gallery"
    fold = given_split(replace(table, split=tuple(explicit)))
    probes = [row for row, says in enumerate(split) if says == "test" and row != 6]
    assert (fold.gallery.tolist(), fold.probe.tolist()) == ([6], probes)
    explicit[18] = "test"
    with pytest.raises(InputError, match="split says test in some rows and gallery or probe in others"):
        given_split(replace(table, split=tuple(explicit)))
    shared = ["train" if row % 3 else "test" for row in range(len(split))]
    assert given_split(replace(table, split=tuple(shared))).note() == "4 people both train and are tested"


def test_what_cannot_be_divided_is_said(says):
    table = people_table(people=2)
    with says(InputError):
        open_set(table, 1)
    with says(InputError):
        open_set(table, 0)
    with says(InputError):
        open_set(table, 1, train_share=1)
    with says(InputError):
        given_split(table)
    with says(InputError):
        given_split(replace(table, split=("test",) * len(table.x)))
    with says(InputError):
        given_split(replace(table, split=("train",) * len(table.x)))
