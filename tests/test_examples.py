"""The examples run, and each integration in them has the targets of a plain loop with the core."""

import math
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from ldmnet.data import stratified
from ldmnet.networks import initialize, mlp
from ldmnet.seeds import generator
from plain import plain_loop

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
pytest.importorskip("sklearn", reason="the examples take their data from scikit-learn")


def example(number):
    return runpy.run_path(str(next(FOLDER.glob(f"{number:02d}_*.py"))))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_on_a_screen(path):
    assert len(path.read_text().splitlines()) <= 60


def test_plain_loop(capsys):
    example(1)["main"](epochs=4)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in shown] == ["plain", "control", "LDMNet"]
    assert all(float(line.split()[1]) > 70 for line in shown)


def test_sklearn_has_the_cores_targets(capsys):
    classifier = example(2)["main"](epochs=6)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in shown] == [
        "untuned",
        "the better of two networks",
        "5 nearest neighbours on its features",
    ]
    x, _, y, _ = example(2)["data"]()
    for _ in range(2):  # the pipeline's scaler, and the classifier's own
        deviation = x.std(0)
        x = (x - x.mean(0)) / (deviation + (deviation == 0))
    x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    model = mlp(64, 10, (256, 256))
    initialize(model, "he", 0)
    draw = generator(0, "batches")
    regularizer = plain_loop(
        model,
        x,
        y,
        lambda epoch: torch.randperm(len(x), generator=draw).split(32),
        epochs=6,
        lr=lambda epoch: 0.02 if epoch < 4 else 0.002,
        running=True,
    )
    assert classifier.mu_ == pytest.approx(regularizer.mu, rel=1e-3)
    torch.testing.assert_close(classifier.regularizer_.target, regularizer.target, rtol=1e-4, atol=1e-4)


def test_lightning_has_the_cores_targets(capsys):
    pytest.importorskip("lightning", reason="the extra lightning is not installed")
    callback = example(3)["main"](epochs=4)
    assert "% of all 1797 images" in capsys.readouterr().out
    x, y, _, _ = example(1)["data"]()
    model = example(1)["network"]()
    draw = torch.Generator().manual_seed(0)

    def batches(epoch):
        torch.empty((), dtype=torch.int64).random_(generator=draw)  # a DataLoader draws its workers' seed first
        return torch.randperm(len(x), generator=draw).split(20)

    regularizer = plain_loop(model, x, y, batches, epochs=4, lr=lambda epoch: 0.02)
    assert len(callback.regularizer.log) == 2
    assert torch.equal(callback.regularizer.target, regularizer.target)


@pytest.mark.slow
def test_transformers_has_the_cores_targets(capsys):
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    pytest.importorskip("accelerate", reason="the extra transformers is not installed")
    options = {"optim": "sgd", "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "learning_rate": 0.05}
    trainer = example(4)["main"](epochs=3, train_sampling_strategy="sequential", **options)
    assert "% of all 1797 images" in capsys.readouterr().out
    x, y, train = example(4)["data"]()
    model = example(4)["network"]()
    torch.testing.assert_close(train, stratified(y, 30, seed=0))
    regularizer = plain_loop(
        Scores(model),
        x[train],
        y[train],
        lambda epoch: torch.arange(300).split(20),
        epochs=3,
        lr=lambda epoch: 0.05,
        momentum=0.0,
        features=lambda batch: model.vit(pixel_values=batch).last_hidden_state,
        scores=lambda f: model.classifier(f.unflatten(1, (-1, 48))[:, 0]),
        layer="model.vit.layernorm",
    )
    assert len(trainer.regularizer.log) == math.ceil(3 / 2)
    torch.testing.assert_close(trainer.regularizer.target, regularizer.target, rtol=1e-4, atol=1e-5)


class Scores(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(pixel_values=x).logits
