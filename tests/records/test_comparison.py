"""Comparisons: the paired test, and the table of methods."""

import json

import pytest
from scipy.stats import ttest_rel

from ldmnet.records import Record
from ldmnet.records.comparison import compared_rows, format_comparison, paired_p


def test_the_paired_test_is_that_of_scipy_and_wider_for_overlapping_splits():
    ours, theirs = [95.0, 94.0, 96.5, 95.0], [93.0, 93.5, 94.0, 94.5]
    gains = [a - b for a, b in zip(ours, theirs, strict=True)]
    assert paired_p(gains) == pytest.approx(ttest_rel(ours, theirs).pvalue)
    assert paired_p(gains, overlap=0.43) > paired_p(gains)
    assert paired_p([1.0]) is None
    assert paired_p([0.0, 0.0]) is None
    assert paired_p([1.0, 1.0]) is None  # no spread to judge by
    assert paired_p([90.0 - 86.6667, 93.3333 - 90.0]) is None
    assert paired_p([1.0, 1.0], least=0.5) == pytest.approx(paired_p([1 - 0.125**0.5, 1 + 0.125**0.5]))
    assert paired_p([0.0, 0.0], least=0.5) == 1


def compared(method, seed, accuracy):
    seconds = {} if accuracy is None else {"train": 3.0 * seed, "test": 0.25}
    known = {"n_train": 70, "n_test": 30, "hash": "", "settings": {}, "seconds": seconds}
    return Record(table="comparison", method=method, seed=seed, accuracy=accuracy, **known)


def test_the_table_of_a_comparison():
    records = [
        compared(method, split, accuracy)
        for method, found in (("weight_decay", [90.0, 91.0]), ("ldmnet", [93.0, 95.0]))
        for split, accuracy in enumerate(found)
    ]
    rows = compared_rows(records)
    assert [(row.mean, row.std, row.gain) for row in rows] == [(90.5, 0.7071, 3.5), (94.0, 1.4142, None)]
    assert format_comparison(rows).splitlines()[2:] == [
        f"| weight decay | 90.50 ± 0.71 | 2 | +3.50 | {rows[0].p:.3f} | 1.8 |",
        "| ldmnet | **94.00 ± 1.41** | 2 |  |  | 1.8 |",
    ]
    head = 'method,"accuracy, %",splits,LDMNet is better by,p,seconds per split'
    assert format_comparison(rows, "csv").splitlines()[0] == head
    assert json.loads(format_comparison(rows, "json"))[0]["gain"] == 3.5


def test_a_mean_over_the_splits_that_went_well_is_not_shown():
    records = [
        compared(method, split, accuracy)
        for method, found in (
            ("none", [90.0, None, 91.0]),
            ("dropout", [90.0, 93.0, 90.0]),
            ("ldmnet", [93.0, 95.0, 92.0]),
        )
        for split, accuracy in enumerate(found)
    ]
    none, dropout, ldmnet = compared_rows(records)
    assert (none.mean, none.std, none.splits, none.gain, none.p) == (None, None, 3, None, None)
    assert dropout.gain == 2.3333
    assert dropout.p is not None
    lines = format_comparison([none, dropout, ldmnet], "csv").splitlines()
    assert lines[1] == "none,diverged,3,,,3.2"
    assert format_comparison([none]).splitlines()[2] == "| none | diverged | 3 |  |  | 3.2 |"
    (lost,) = compared_rows([compared("none", 0, None), compared("none", 1, None)])
    assert lost.seconds is None
    assert format_comparison([lost]).splitlines()[2] == "| none | diverged | 2 |  |  |  |"
