import pytest
import torch

from clouds import cloud
from ldmnet import ManifoldRegularizer, Method, TrainSettings, fit
from ldmnet.networks import initialize, mlp

pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ldmnet.integrations.tensorboard import EpochScalars


def made():
    x, y = cloud(30, 6, dtype=torch.float32), torch.arange(30) % 3
    return x, y, ManifoldRegularizer(x, y, mu=0.1, lambda_tilde=0.5, n_neighbors=6, sigma_neighbor=4)


def written(folder):
    events = EventAccumulator(str(folder)).Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_epochs_and_updates_are_written(tmp_path):
    x, y, regularizer = made()
    model = mlp(6, 3, (16, 8))
    initialize(model, "he", 0)
    with EpochScalars(tmp_path) as scalars:
        result = fit(model, (x, y), settings=TrainSettings(epochs=3), on_epoch=scalars, progress=False)
        for epoch in (0, 2):
            scalars.update(regularizer.step(torch.randn(30, 8)), epoch)
    found = written(tmp_path)
    assert found["loss"] == [(e.epoch, pytest.approx(e.loss)) for e in result.history]
    assert "val_loss" not in found
    assert found["ldmnet/move"] == [
        (epoch, pytest.approx(update.move)) for epoch, update in zip((0, 2), regularizer.log, strict=True)
    ]
    assert [step for step, _ in found["ldmnet/seconds"]] == [0, 2]


def test_nothing_written_makes_no_folder(tmp_path):
    with EpochScalars(tmp_path / "logs"):
        pass
    assert not (tmp_path / "logs").exists()


def test_fit_writes_the_numbers_of_every_update(tmp_path):
    x, y, _ = made()
    model = mlp(6, 3, (16, 8))
    initialize(model, "he", 0)
    with EpochScalars(tmp_path) as scalars:
        settings = TrainSettings(epochs=5, lr=0.01)
        result = fit(model, (x, y), method=Method("ldmnet"), settings=settings, on_epoch=scalars)
    found = written(tmp_path)
    assert [step for step, _ in found["loss"]] == [0, 1, 2, 3, 4]
    updates = dict(zip((0, 2, 4), result.regularizer.log, strict=True))
    for name in updates[2].scalars():
        wanted = {epoch: update.scalars().get(name) for epoch, update in updates.items()}
        assert dict(found[name]) == {e: pytest.approx(value) for e, value in wanted.items() if value is not None}, name
