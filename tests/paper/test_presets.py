import re
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

import pytest
import torch
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.errors import InputError
from ldmnet.paper.presets import CHOSEN, PRINTED_ROWS, SETUP, classification_runs, printed_method, rows_of
from ldmnet.records import read_records
from ldmnet.training.methods import Method
from ldmnet.training.settings import slow_bfloat16

RESULTS = Path(__file__).parents[2] / "results"


def test_mnist_50_is_the_papers_row():
    runs = {run.row: run for run in classification_runs("mnist", [50], PRINTED_ROWS, [0])}
    ldm = runs["ldmnet"].settings
    assert (ldm.method.mu, ldm.method.lambda_tilde, ldm.train.lr, ldm.train.epochs) == (0.01, 0.05, 0.001, 300)
    assert (ldm.method.n_neighbors, ldm.method.sigma_neighbor, ldm.method.epochs_per_update) == (20, 10, 2)
    assert (ldm.preprocess, ldm.pixel_scale, ldm.init, ldm.net) == ("mean_image", 1.0, "gaussian", "mnist")
    assert runs["ldmnet"].paper == 95.57
    assert runs["weight_decay"].settings.method.weight_decay_w == 0.1
    assert runs["dropout"].settings.method.dropout == 0.5
    assert runs["none"].paper is None


def test_each_row_changes_one_thing_only():
    for table in ("mnist", "svhn", "cifar10"):
        none, wd, drop, control, ldm = (printed_method(table, 50, row) for row in PRINTED_ROWS)
        assert (none.weight_decay_w, none.dropout, none.pulls) == (0, 0, False)
        assert (wd.dropout, wd.pulls) == (0, False)
        assert (drop.weight_decay_w, drop.pulls) == (0, False)
        assert (control.weight_decay_w, control.dropout, control.lambda_tilde) == (0, 0, None)
        assert (ldm.weight_decay_w, ldm.dropout) == (0, 0)
        assert control.mu == ldm.mu > 0


def test_six_thousand_a_class_is_all_of_mnist():
    (run,) = classification_runs("mnist", [6000], ["ldmnet"], [0])
    assert run.settings.per_class is None
    assert run.size == 6000


def test_mnist_trains_in_bfloat16_from_400_a_class_on():
    precision = {
        run.size: run.settings.train.precision
        for run in classification_runs("mnist", [50, 100, 400, 6000], ["ldmnet_tuned"], [0])
    }
    assert precision == {50: "float32", 100: "float32", 400: "bfloat16", 6000: "bfloat16"}


def test_a_size_that_is_not_in_the_table_is_refused():
    words = "cifar10 has no row for [60] images per class. The rows: [50, 100, 400, 700]."
    with pytest.raises(InputError, match=f"^{re.escape(words)}$"):
        classification_runs("cifar10", [60], PRINTED_ROWS, [0])


def test_hashes_are_distinct():
    runs = classification_runs("mnist", [50, 100], PRINTED_ROWS, range(3))
    assert len({run.settings.hash() for run in runs}) == len(runs) == 30


@pytest.mark.parametrize("table", CHOSEN)
def test_tuned_rows_differ_from_the_printed_ones_in_what_was_chosen(table):
    for row, choice in CHOSEN[table].items():
        printed, tuned = classification_runs(table, [50], [row, f"{row}_tuned"], [0])
        assert (printed.selection, tuned.selection) == ("printed", "validation")
        assert tuned.paper == printed.paper
        assert tuned.settings.train.lr == pytest.approx(printed.settings.train.lr * choice.lr)
        for name, value in choice.method.items():
            assert getattr(tuned.settings.method, name) == value
        assert f"{row}_tuned" in rows_of(table)


def pixels_and_start(settings):
    return [settings[name] for name in ("net", "preprocess", "pixel_scale", "init")]


def company(method):
    """Regularisers beside the one that the method is named after."""
    parts = {"weight_decay": method.weight_decay_w, "dropout": method.dropout}
    return [name for name, strength in parts.items() if strength and name != method.name]


# options that were settled, at what is left
GONE = {"symmetrize": "max", "self_weight": 1.0, "keep_dual": True, "within_class": True}


def method_of(settings):
    """The method of a record; None where it has the earlier rule "auto", or an option that is gone."""
    numbers = {name: value for name, value in settings["method"].items() if name not in GONE or GONE[name] != value}
    if "auto" in (numbers["mu"], numbers["lambda_tilde"]) or GONE.keys() & numbers.keys():
        return None
    numbers = {name: value for name, value in numbers.items() if name not in ("mu", "lambda_tilde") or value}
    pulls_by_default = numbers["name"] in ("ldmnet", "control") and "mu" not in numbers
    if numbers.get("features") == "sweep" and not pulls_by_default:  # what they have unless told otherwise
        del numbers["features"]
    return Method(**numbers)


@pytest.mark.parametrize(
    ("table", "row"), [(table, row) for table in ("mnist", "cifar10", "svhn") for row in CHOSEN[table]]
)
def test_what_was_chosen_is_the_best_on_validation_images(table, row):
    found = defaultdict(dict)  # validation accuracy by settings and seed
    for record in read_records([RESULTS / f"{table}.jsonl", RESULTS / f"study-{table}.jsonl"]):
        settings = record.settings
        method = method_of(settings)
        if method is None or method.name != row or record.per_class != 50 or record.accuracy is None:
            continue
        if not company(method) and pixels_and_start(settings) == pixels_and_start(asdict(SETUP[table])):
            found[method, settings["train"]["lr"]][record.seed] = record.more["val_accuracy"]
    (run,) = classification_runs(table, [50], [f"{row}_tuned"], [0])
    chosen = found[run.settings.method, run.settings.train.lr]
    assert chosen, "no record of what was chosen"
    for other, by_seed in found.items():
        common = sorted(by_seed.keys() & chosen.keys())
        assert common, other
        assert fmean(chosen[s] for s in common) >= fmean(by_seed[s] for s in common), other


def test_a_tuned_row_that_is_not_there_is_refused():
    words = "svhn has no row 'none_tuned'. The rows: "
    with pytest.raises(InputError, match=re.escape(words)):
        classification_runs("svhn", [50], ["none_tuned"], [0])


def test_a_precision_that_is_asked_for_is_that_of_every_run():
    as_recorded = {size: run for size in (50, 400) for run in classification_runs("mnist", [size], ["ldmnet"], [0])}
    assert {size: run.settings.train.precision for size, run in as_recorded.items()} == {50: "float32", 400: "bfloat16"}
    for run in classification_runs("cifar10", [50, 400], ["ldmnet", "ldmnet_tuned"], [0], precision="float32"):
        assert run.settings.train.precision == "float32"


@pytest.mark.parametrize("slow", [True, False])
def test_reproduce_says_where_bfloat16_is_slow(slow, monkeypatch, tmp_path):
    swept = []
    monkeypatch.setattr("ldmnet.runs.sweep_runs", lambda runs, *where, **more: swept.extend(runs) or [])
    monkeypatch.setattr("ldmnet.cli.experiments.slow_bfloat16", lambda: slow)
    command = ["reproduce", "cifar10", "--results", str(tmp_path), "--runs-dir", str(tmp_path), "--seeds", "1"]
    told = "this processor has no bfloat16 products" in CliRunner().invoke(main, command).output
    assert told == slow
    assert "bfloat16" not in CliRunner().invoke(main, [*command, "--precision", "float32"]).output
    assert [run.settings.train.precision for run in swept] == ["bfloat16"] * 10 + ["float32"] * 10


def test_a_processor_without_bfloat16_is_known_by_what_torch_tells(monkeypatch):
    plain = {"architecture": "x86_64", "avx512_f": True}
    for told, slow in (
        (plain, True),
        ({**plain, "amx_bf16": True}, False),
        ({**plain, "architecture": "arm64"}, False),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda told=told: told, raising=False)
        assert slow_bfloat16() == slow
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not slow_bfloat16()
