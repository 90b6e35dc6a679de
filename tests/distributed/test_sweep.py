"""A sweep that several processes share, and the step that takes it."""

import jobs
import pytest
import torch

from ldmnet import sweep
from ldmnet.errors import InputError


@pytest.mark.parametrize("kind", ["tensor", "loader", "wrapped"])
@pytest.mark.parametrize("size", [2, 3])
def test_every_sample_is_swept_once_by_one_process(pool, kind, size):
    whole = sweep(jobs.network(), jobs.samples(), layer="1")
    shares = pool(size, jobs.swept, kind)
    index = torch.cat([index for _, index, _ in shares])
    assert torch.equal(index, torch.arange(23))  # no padding, none left out
    torch.testing.assert_close(torch.cat([f for f, *_ in shares]), whole)
    assert {n for *_, n in shares} == {23}


def test_more_processes_than_samples(pool):
    shares = pool(4, jobs.swept, "tensor", 2)
    assert sorted(len(f) for f, *_ in shares) == [0, 0, 1, 1]
    assert {f.shape[1] for f, *_ in shares} == {4}


def test_one_process_gets_features_as_ever(pool):
    [features] = pool(1, jobs.swept, "tensor")
    assert torch.equal(features, sweep(jobs.network(), jobs.samples(), layer="1"))


def test_a_step_takes_the_shares(pool):
    assert pool(3, jobs.swept_step, "") == ["CONVERGED"] * 3


@pytest.mark.parametrize("doctored", ["a sample twice", "a sample of another", "NaN", "narrow"])
def test_a_spoilt_share_is_refused_by_all(pool, doctored):
    errors = pool(3, jobs.swept_step, doctored, fails=True)
    assert all(isinstance(error, InputError) for error in errors), errors
    assert pool(3, jobs.swept_step, "") == ["CONVERGED"] * 3  # and they still understand each other


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("NaN", "NaN or infinite values in 1 of its 200 rows"),
        ("missing", "1 of the"),
        ("beyond", "index holds 799 but the training set has samples 0 to 399"),
        ("other settings", "other settings"),
        ("no features", "every step needs features"),
    ],
)
def test_what_does_not_fit_together_ends_the_step_of_all(pool, what, words):
    for error in pool(2, jobs.uneven, what, fails=True):
        assert words in str(error)
