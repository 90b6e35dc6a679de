"""Subsets: the laws of the draw."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ldmnet.data import indices_hash, stratified, subset_and_validation
from ldmnet.errors import DataError, InputError


def says(text: str) -> str:
    return f"^{re.escape(text)}$"


def shuffled_labels(*counts: int, seed: int = 0) -> torch.Tensor:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(6, 30), min_size=1, max_size=5),
    per_class=st.integers(1, 6),
    seed=st.integers(0, 2**40),
)
def test_each_class_has_its_share_once_and_in_class_order(counts, per_class, seed):
    labels = shuffled_labels(*counts)
    index = stratified(labels, per_class, seed)
    assert index.dtype == torch.int64
    assert labels[index].tolist() == [c for c in range(len(counts)) for _ in range(per_class)]
    assert len(set(index.tolist())) == len(index)


def test_same_seed_same_draw_whatever_else_draws():
    labels = shuffled_labels(50, 60)
    first = stratified(labels, 20, seed=3)
    torch.rand(7)
    assert torch.equal(first, stratified(labels, 20, seed=3))
    assert not torch.equal(first, stratified(labels, 20, seed=4))


def test_a_smaller_subset_is_part_of_a_larger_one():
    labels = shuffled_labels(50, 60, 70)
    small, large = stratified(labels, 5, 1).reshape(3, 5), stratified(labels, 40, 1).reshape(3, 40)
    assert torch.equal(small, large[:, :5])


def test_every_sample_is_drawn_equally_often():
    labels = shuffled_labels(10, 10)
    hits = sum(torch.bincount(stratified(labels, 3, seed), minlength=20) for seed in range(600))
    assert hits.sum() == 600 * 6
    assert hits.min() > 180 - 5 * 11.3  # binomial: mean 180, deviation 11.2
    assert hits.max() < 180 + 5 * 11.3


def test_none_takes_all_by_class_whatever_the_counts_and_the_seed():
    labels = torch.tensor([2, 0, 2, 5, 0, 2])
    assert stratified(labels, None, 0).tolist() == [1, 4, 0, 2, 5, 3]
    assert torch.equal(stratified(labels, None, 0), stratified(labels, None, 9))


def test_too_few_names_the_classes_and_counts():
    labels = shuffled_labels(1200, 7, 30, 9)
    words = "10 samples per class were asked for, but class 1 has 7, class 3 has 9. Ask for fewer, or None for all."
    with pytest.raises(DataError, match=says(words)):
        stratified(labels, 10, 0)


@settings(max_examples=50, deadline=None)
@given(
    per_class=st.integers(1, 12),
    val_per_class=st.integers(0, 8),
    seed=st.integers(0, 999),
    val_seed=st.integers(0, 9),
)
def test_validation_never_meets_the_subset(per_class, val_per_class, seed, val_seed):
    labels = shuffled_labels(20, 25, 33)
    train, validation = subset_and_validation(labels, per_class, seed, val_per_class, val_seed)
    assert not set(train.tolist()) & set(validation.tolist())
    assert labels[train].bincount(minlength=3).tolist() == [per_class] * 3
    assert labels[validation].bincount(minlength=3).tolist() == [val_per_class] * 3


def test_validation_is_the_same_for_every_subset():
    labels = shuffled_labels(40, 50)
    _, one = subset_and_validation(labels, 10, seed=0, val_per_class=5)
    _, two = subset_and_validation(labels, 25, seed=7, val_per_class=5)
    _, other = subset_and_validation(labels, 10, seed=0, val_per_class=5, val_seed=1)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_validation_and_subset_of_one_seed_are_drawn_apart():
    labels = shuffled_labels(200)
    train = stratified(labels, 50, seed=0)
    _, validation = subset_and_validation(labels, 10, seed=0, val_per_class=50, val_seed=0)
    assert not torch.equal(train, validation)


@pytest.mark.parametrize("per_class", [None, 10])  # 10 per class of 30 in 3 classes: all, though the classes differ
def test_all_leaves_no_validation(per_class):
    labels = shuffled_labels(8, 10, 12)
    train, validation = subset_and_validation(labels, per_class, seed=0)
    assert sorted(train.tolist()) == list(range(30))
    assert validation.shape == (0,)
    assert validation.dtype == torch.int64


def test_too_few_for_subset_and_validation_names_the_whole_classes():
    labels = shuffled_labels(1032, 937)
    asked = "900 samples per class and 100 to validate were asked for"
    words = f"{asked}, but class 1 has 937. Ask for fewer, or None for all."
    with pytest.raises(DataError, match=says(words)):
        subset_and_validation(labels, 900, seed=0)


@pytest.mark.parametrize(
    ("labels", "per_class", "words"),
    [
        (torch.zeros(3), 1, "labels must be whole numbers of shape (n,), got torch.float32 (3,)."),
        (
            torch.zeros(0, dtype=torch.int64),
            1,
            "labels must be whole numbers of shape (n,), got torch.int64 (0,).",
        ),
        (torch.zeros(3, dtype=torch.int64), 0, "per_class must be at least 1, or None for all, got 0."),
    ],
)
def test_wrong_arguments_are_named(labels, per_class, words):
    for call in (stratified, subset_and_validation):
        with pytest.raises(InputError, match=says(words)):
            call(labels, per_class, 0)


def test_negative_validation_is_refused():
    with pytest.raises(InputError, match=says("val_per_class must be 0 or above, got -1.")):
        subset_and_validation(shuffled_labels(5, 5), 2, 0, val_per_class=-1)


def test_hash_tells_draws_apart_and_is_pinned():
    assert indices_hash(torch.tensor([1, 2, 3])) == indices_hash(torch.tensor([1, 2, 3], dtype=torch.int32))
    assert indices_hash(torch.tensor([1, 2, 3])) != indices_hash(torch.tensor([1, 3, 2]))
    assert indices_hash(torch.tensor([1, 2, 3])) == "e2e2033ae7e19d68"
