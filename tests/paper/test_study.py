import re
from dataclasses import asdict

import pytest

from ldmnet.errors import InputError
from ldmnet.paper.presets import classification_runs
from ldmnet.paper.study import VARIATIONS, study_runs


def flat(settings) -> dict:
    values = asdict(settings)
    method, train = values.pop("method"), values.pop("train")
    return {**values, **method, **train}


@pytest.mark.parametrize("table", list(VARIATIONS))
def test_each_variation_departs_from_its_row_in_what_its_name_says_only(table):
    rows = {run.row: flat(run.settings) for run in classification_runs(
        table, [50], ["none", "weight_decay", "dropout", "control", "ldmnet"], [0])}  # fmt: skip
    runs = study_runs(table, [0])
    assert len({run.row for run in runs}) == len(runs)
    for run, variation in zip(runs, VARIATIONS[table], strict=True):
        base, varied = rows[variation.row], flat(run.settings)
        changed = {key for key in base if base[key] != varied[key]}
        named = {*(variation.run or {}), *(variation.method or {}), *(variation.train or {})}
        named |= {"lr"} if variation.lr != 1 else set()
        assert changed == named, variation.name


def test_the_printed_row_is_the_same_run_as_in_the_table():
    (table,) = classification_runs("mnist", [50], ["ldmnet"], [1])
    (study,) = study_runs("mnist", [1], ["as printed"])
    assert table.settings.hash() == study.settings.hash()
    assert study.table == "study-mnist"


def test_unknown_names():
    with pytest.raises(
        InputError, match=r"^no variation's name contains any of \['nothing'\]\. The variations: as pri"
    ):
        study_runs("mnist", [0], ["nothing"])
    with pytest.raises(
        InputError, match=re.escape("there is no study of 'digits'. The studies: mnist, cifar10, svhn.")
    ):
        study_runs("digits", [0])
