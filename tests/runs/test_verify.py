import json

import numpy as np
import pytest
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.files import parse_json
from ldmnet.runs import Run, RunSettings, execute
from ldmnet.runs import verify as module
from ldmnet.runs.datasets import TrainingData
from ldmnet.training import Method, TrainSettings


def invoke(*words):
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def trained(tmp_path):
    rng, y = np.random.default_rng(0), np.arange(30) % 3
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(30, 4)) + y[:, None], y=y)
    words = ["--epochs", 3, "--test-share", 0.3, "--batch-size", 16, "--output", tmp_path / "run"]
    assert invoke("train", tmp_path / "data.npz", *words).exit_code == 0
    return tmp_path


def changed(folder, **changes):
    content = parse_json((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**content, **changes}))


def test_a_run_comes_out_the_same(trained):
    found = invoke("verify", trained / "run", trained / "data.npz")
    assert found.exit_code == 0
    assert "comes out the same, number by number and weight by weight" in found.output
    (trained / "run" / "model.safetensors").unlink()
    found = invoke("verify", trained / "run", trained / "data.npz")
    assert (found.exit_code, "number by number; it kept no weights to compare" in found.output) == (0, True)


def test_what_differs_is_named_with_exit_code_1(trained):
    run, data = trained / "run", trained / "data.npz"
    curve = parse_json((run / "run.json").read_text())["loss_curve"]
    changed(run, accuracy=12.5, loss_curve=[curve[0], 9.0, curve[2]], versions={"ldmnet": "0.0.1"})
    found = invoke("verify", run, data)
    assert found.exit_code == 1
    assert "accuracy 12.5 (now " in found.output
    assert f"loss_curve 9.0 (now {curve[1]}) at place 2 of 3" in found.output
    assert "versions ldmnet 0.0.1 (now " in found.output
    weights = bytearray((run / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (run / "model.safetensors").write_bytes(weights)
    assert "model.safetensors: other bytes" in invoke("verify", run, data).output
    np.savez(trained / "other.npz", x=np.random.default_rng(1).normal(size=(30, 4)), y=np.arange(30) % 3)
    found = invoke("verify", run, trained / "other.npz")
    assert (found.exit_code, "other data, or data read otherwise" in found.output) == (1, True)


def test_what_cannot_be_verified_is_said(trained):
    run = trained / "run"
    found = invoke("verify", run)
    assert (found.exit_code, "was trained on data.npz: name it, too." in found.output) == (2, True)
    changed(run, table="search", settings={"odd": 1})
    assert "cannot be trained again from its record" in invoke("verify", run).output
    changed(run, finished=False)
    assert "there is no result to compare with" in invoke("verify", run).output


def test_code_of_the_users_is_not_run_unless_it_is_named(trained):
    settings = parse_json((trained / "run" / "run.json").read_text())["settings"]
    changed(trained / "run", settings={**settings, "net": "os:abort"})
    found = invoke("verify", trained / "run", trained / "data.npz")
    assert (found.exit_code, "If you trust it, name it again. (--net os:abort)" in found.output) == (2, True)


def test_a_run_on_a_data_set_by_name_comes_out_the_same(tmp_path, monkeypatch):
    import torch

    def load(self, data_dir):
        x, y = torch.randn(20, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 10
        return TrainingData((x, y), (x, y), None, torch.zeros(20, 1, 28, 28, dtype=torch.uint8), "hash", "")

    monkeypatch.setattr(RunSettings, "load", load)
    method, train = Method("ldmnet", mu=0.01, lambda_tilde=0.05), TrainSettings(epochs=2)
    settings = RunSettings("mnist", 2, method=method, train=train)
    execute(Run("mnist", "ldmnet", settings), tmp_path / "run", lambda: settings.load(None))
    assert module.verify_run(tmp_path / "run").differences == []
