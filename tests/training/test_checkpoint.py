import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from clouds import cloud
from ldmnet import Method, StateError, TrainSettings, fit
from ldmnet.files import write_atomically
from ldmnet.networks import FeatureNet, initialize, mlp
from ldmnet.training import checkpoint as module
from ldmnet.training.checkpoint import KEYS, check_settings, read_checkpoint, save_checkpoint, save_weights

N = 40
METHODS = {
    "ldmnet": Method("ldmnet", mu=0.1, lambda_tilde=0.5, n_neighbors=6, sigma_neighbor=4, epochs_per_update=2),
    "dropout": Method("dropout", dropout=0.5),
    "weight_decay": Method("weight_decay", weight_decay_w=0.01),
}
SETTINGS = TrainSettings(epochs=4, lr=0.05, batch_size=16, checkpoint_every=1)
X, Y = cloud(N, 6, dtype=torch.float32), torch.arange(N) % 3


class CutShortError(Exception):
    """Stands for whatever ends a process."""


def network():
    model = mlp(6, 3, (16, 8))
    initialize(model, "he", 0)
    return model


def image_network():
    features = nn.Sequential(nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Dropout(0.0), nn.Flatten(), nn.Linear(6, 5), nn.ReLU())
    model = FeatureNet(features, 5, 3)
    initialize(model, "he", 0)
    return model


def cut_after(epochs):
    def on_epoch(epoch):
        if epoch.epoch + 1 == epochs:
            raise CutShortError

    return on_epoch


def start_and_cut(path, method, epochs, model=None, data=(X, Y), settings=SETTINGS):
    with pytest.raises(CutShortError):
        fit(model or network(), data, method=method, settings=settings, checkpoint=path, on_epoch=cut_after(epochs))


def assert_same_run(first, second):
    for (name, a), b in zip(first.model.state_dict().items(), second.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert first.history == second.history
    assert first.train_loss == second.train_loss
    if first.regularizer is not None:
        assert torch.equal(first.regularizer.target, second.regularizer.target)
        assert torch.equal(first.regularizer.Z, second.regularizer.Z)
        for ours, theirs in zip(first.regularizer.log, second.regularizer.log, strict=True):
            assert (ours.status, ours.move, ours.dual) == (theirs.status, theirs.move, theirs.dual)


@pytest.mark.parametrize("epochs", [1, 2, 3, 4])
@pytest.mark.parametrize("name", METHODS)
def test_a_cut_run_goes_on_bit_for_bit(tmp_path, name, epochs):
    straight = fit(network(), (X, Y), method=METHODS[name], settings=SETTINGS)
    path = tmp_path / "run.pt"
    start_and_cut(path, METHODS[name], epochs)
    torch.rand(7)  # whatever happens in between
    resumed = fit(network(), (X, Y), method=METHODS[name], settings=SETTINGS, checkpoint=path)
    assert_same_run(straight, resumed)


@pytest.mark.parametrize("name", ["ldmnet", "dropout"])
def test_a_cut_run_on_images_goes_on_bit_for_bit(tmp_path, name):
    data = cloud(N, 18, dtype=torch.float32)[:, :12].reshape(N, 2, 2, 3), Y
    straight = fit(image_network(), data, method=METHODS[name], settings=SETTINGS)
    path = tmp_path / "run.pt"
    start_and_cut(path, METHODS[name], 2, image_network(), data)
    resumed = fit(image_network(), data, method=METHODS[name], settings=SETTINGS, checkpoint=path)
    assert_same_run(straight, resumed)


def test_checkpoints_come_every_few_epochs_and_at_the_end(tmp_path, monkeypatch):
    saved = []
    save = module.save_checkpoint
    monkeypatch.setattr(
        "ldmnet.training.state.save_checkpoint",
        lambda path, state: (saved.append(state["epoch"]), save(path, state)),
    )
    settings = TrainSettings(epochs=7, lr=0.05, batch_size=40, checkpoint_every=3)
    path = tmp_path / "deep" / "folder" / "run.pt"
    fit(network(), (X, Y), settings=settings, checkpoint=str(path))
    assert saved == [3, 6, 7]
    assert torch.load(path, weights_only=True)["epoch"] == 7


def test_a_finished_run_is_not_trained_again(tmp_path):
    path = tmp_path / "run.pt"
    first = fit(network(), (X, Y), method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path)
    epochs = []
    again = fit(network(), (X, Y), method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path, on_epoch=epochs.append)
    assert epochs == []
    assert_same_run(first, again)


def state():
    return {key: torch.ones(3) if key == "model" else {} for key in KEYS}


def test_a_failed_write_leaves_the_old_checkpoint_whole(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    save_checkpoint(path, state())
    whole = path.read_bytes()

    def fails(obj, file):
        file.write(b"half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(module.torch, "save", fails)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(path, state())
    assert path.read_bytes() == whole
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


def test_a_write_that_is_interrupted_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(obj, file):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "run.pt", state())
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_comes_back_as_it_went(tmp_path):
    path = tmp_path / "run.pt"
    save_checkpoint(path, {**state(), "epoch": 3, "settings": {"lr": 0.1, "mass": "lumped"}})
    loaded = read_checkpoint(path)
    check_settings(loaded, {"lr": 0.1, "mass": "lumped"}, path)
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["model"], torch.ones(3))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut"])
def test_a_file_that_is_no_checkpoint(tmp_path, content):
    path = tmp_path / "run.pt"
    path.write_bytes(content)
    with pytest.raises(StateError) as caught:
        fit(network(), (X, Y), settings=SETTINGS, checkpoint=path)
    assert str(caught.value).startswith(f"{path} cannot be read as a checkpoint: ")


def test_a_checkpoint_cut_off_in_the_middle(tmp_path):
    path = tmp_path / "run.pt"
    start_and_cut(path, METHODS["ldmnet"], 2)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StateError) as caught:
        fit(network(), (X, Y), method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path)
    assert str(caught.value).startswith(f"{path} cannot be read as a checkpoint: ")


@pytest.mark.parametrize("content", [{"epoch": 1, "model": {}}, [1, 2], torch.zeros(3)], ids=["some", "list", "tensor"])
def test_a_file_that_is_something_else_of_torchs(tmp_path, content, says):
    path = tmp_path / "run.pt"
    torch.save(content, path)
    with says(StateError):
        read_checkpoint(path)


def test_a_run_of_the_default_strength_resumes_bit_for_bit(tmp_path):
    method, settings = Method("ldmnet"), replace(SETTINGS, epochs=36)
    whole = fit(network(), (X, Y), method=method, settings=settings, progress=False)
    assert whole.history[32].penalty > 0
    start_and_cut(tmp_path / "run.pt", method, 33, settings=settings)  # between two updates
    again = fit(network(), (X, Y), method=method, settings=settings, checkpoint=tmp_path / "run.pt", progress=False)
    assert_same_run(whole, again)
    assert [u.mu for u in again.regularizer.log] == [u.mu for u in whole.regularizer.log]


def test_inputs_in_bfloat16_can_be_told_apart_from_others(tmp_path):
    x, model = X.bfloat16(), network().bfloat16()
    fit(model, (x, Y), settings=SETTINGS, checkpoint=tmp_path / "run.pt", progress=False)
    with pytest.raises(StateError, match="was written for other training data"):
        fit(model, (x + 1, Y), settings=SETTINGS, checkpoint=tmp_path / "run.pt", progress=False)


def test_a_checkpoint_of_other_settings(tmp_path, says):
    path = tmp_path / "run.pt"
    start_and_cut(path, METHODS["ldmnet"], 2)
    changed = TrainSettings(epochs=4, lr=0.01, batch_size=16, checkpoint_every=1)
    with says(StateError):
        fit(network(), (X, Y), method=METHODS["ldmnet"], settings=changed, checkpoint=path)
    control = Method("control", mu=0.1, n_neighbors=6, sigma_neighbor=4)
    with says(StateError):
        fit(network(), (X, Y), method=control, settings=SETTINGS, checkpoint=path)


def test_a_checkpoint_of_another_data_set(tmp_path, says):
    path = tmp_path / "run.pt"
    start_and_cut(path, METHODS["ldmnet"], 2)
    for other in ((X[:39], Y[:39]), (X + 1, Y), (X, Y.flip(0))):
        with says(StateError):
            fit(network(), other, method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path)


def test_a_checkpoint_that_does_not_fit_leaves_the_model_alone(tmp_path):
    path = tmp_path / "run.pt"
    start_and_cut(path, METHODS["ldmnet"], 2)
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(StateError):
        fit(model, (X + 1, Y), method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_weights_are_written_as_safetensors(tmp_path):
    model, path = network(), tmp_path / "new" / "weights.safetensors"
    save_weights(model, path)
    loaded = load_file(path)
    assert set(loaded) == set(model.state_dict())
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())


def test_weights_that_cannot_be_written_leave_the_old_ones_whole(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    save_weights(network(), path)
    whole = path.read_bytes()

    def fails(weights, place):
        Path(place).write_bytes(b"half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(module, "save_file", fails)
    with pytest.raises(OSError, match="no space left"):
        save_weights(network(), path)
    assert path.read_bytes() == whole
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_what_is_written_has_the_permissions_of_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        save_weights(network(), tmp_path / "weights.safetensors")
        save_checkpoint(tmp_path / "run.pt", state())
        write_atomically(tmp_path / "run.json", "{}")
    finally:
        os.umask(before)
    assert {p.name: oct(p.stat().st_mode & 0o777) for p in tmp_path.iterdir()} == dict.fromkeys(
        ("weights.safetensors", "run.pt", "run.json"), oct(mode)
    )


def test_seconds_before_a_cut_are_counted(tmp_path):
    path = tmp_path / "checkpoint.pt"
    start_and_cut(path, METHODS["ldmnet"], 2)
    state = read_checkpoint(path)
    assert {"train", "sweep", "graph"} <= set(state["seconds"])
    state["seconds"] = {phase: 1000.0 for phase in state["seconds"]}
    save_checkpoint(path, state)
    seconds = fit(
        network(), (X, Y), method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path, progress=False
    ).seconds
    assert all(1000 < seconds[phase] < 1900 for phase in ("train", "sweep", "graph", "solve"))
    start_and_cut(tmp_path / "old.pt", METHODS["ldmnet"], 2)
    old = read_checkpoint(tmp_path / "old.pt")
    del old["seconds"]  # as an earlier version wrote it
    save_checkpoint(path, old)
    fitted = fit(network(), (X, Y), method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path, progress=False)
    assert 0 < fitted.seconds["train"] < 900


def test_a_checkpoint_of_another_network_is_refused_and_stays(tmp_path):
    path = tmp_path / "checkpoint.pt"
    start_and_cut(path, METHODS["dropout"], 2)
    before = path.read_bytes()
    wider = mlp(6, 3, (20, 8))
    with pytest.raises(StateError, match=r"was written for another network: .*size mismatch.*Delete it, or"):
        fit(wider, (X, Y), method=METHODS["dropout"], settings=SETTINGS, checkpoint=path, progress=False)
    assert path.read_bytes() == before
