import copy
import hashlib
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from clouds import cloud
from ldmnet import Method, TrainSettings, fit
from ldmnet.errors import StateError
from ldmnet.files import write_atomically
from ldmnet.networks import FeatureNet, initialize, mlp
from ldmnet.training import checkpoint as module
from ldmnet.training.checkpoint import (
    KEYS,
    check_settings,
    load_weights,
    read_checkpoint,
    save_checkpoint,
    save_weights,
)

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


def test_a_checkpoint_takes_the_old_ones_place_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    save_checkpoint(path, state())
    whole = path.read_bytes()

    def cut(*names):
        raise CutShortError

    monkeypatch.setattr("ldmnet.files.os.replace", cut)
    with pytest.raises(CutShortError):
        save_checkpoint(path, {**state(), "epoch": 1})
    assert path.read_bytes() == whole


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
    path.write_bytes(path.read_bytes() + module.SEAL + hashlib.sha256(path.read_bytes()).hexdigest().encode())
    with says(StateError):
        read_checkpoint(path)


def test_a_run_of_the_default_strength_resumes_bit_for_bit(tmp_path):
    method, settings, data = Method("ldmnet"), replace(SETTINGS, epochs=36), (X + 2 * torch.eye(6)[Y], Y)
    whole = fit(network(), data, method=method, settings=settings, progress=False)
    assert whole.history[32].penalty > 0
    start_and_cut(tmp_path / "run.pt", method, 33, data=data, settings=settings)  # between two updates
    again = fit(network(), data, method=method, settings=settings, checkpoint=tmp_path / "run.pt", progress=False)
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


def test_weights_that_look_like_the_place_of_the_checksum(tmp_path):
    model, path = network(), tmp_path / "weights.safetensors"
    model.register_buffer("zeros", torch.full((200,), ord("0"), dtype=torch.uint8))
    save_weights(model, path)
    other = network()
    other.register_buffer("zeros", torch.zeros(200, dtype=torch.uint8))
    load_weights(other, path)
    assert torch.equal(other.zeros, model.zeros)


def test_a_checksum_is_looked_for_in_the_header_alone(tmp_path):
    model, path = network(), tmp_path / "weights.safetensors"
    words = f'"sha256":"{"0" * 64}"'.encode()
    model.register_buffer("words", torch.tensor(list(words), dtype=torch.uint8))
    save_file(model.state_dict(), path)
    with pytest.raises(StateError, match="has no checksum"):
        load_weights(model, path)


def test_weights_that_cannot_be_written_leave_the_old_ones_whole(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    save_weights(network(), path)
    whole = path.read_bytes()

    def fails(place, content):
        with place.open("wb") as file:
            file.write(content[:100])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", fails)
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


def flipped(content, draw, times):
    """Copies of a file, each with one bit turned round, or cut."""
    for _ in range(times):
        place = draw.randrange(len(content))
        yield content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]
    for _ in range(times // 10):
        yield content[: draw.randrange(len(content))]


def test_no_flipped_bit_of_the_weights_is_taken(tmp_path):
    path, model = tmp_path / "weights.safetensors", network()
    save_weights(model, path)
    other = mlp(6, 3, (16, 8))
    initialize(other, "he", 1)
    before = copy.deepcopy(other.state_dict())
    for content in flipped(path.read_bytes(), random.Random(0), 300):
        path.write_bytes(content)
        with pytest.raises(StateError, match=re.escape(str(path))):
            load_weights(other, path)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    save_weights(model, path)
    load_weights(other, path)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())


def test_weights_without_a_checksum_or_of_another_network_are_refused(tmp_path):
    path, model = tmp_path / "weights.safetensors", network()
    save_file(model.state_dict(), path)  # as earlier versions did
    words = (
        f"{path} has no checksum: it holds something else, is cut short, or is of an earlier version. Train again, or "
        "get the file again."
    )
    with pytest.raises(StateError, match=re.escape(words) + "$"):
        load_weights(model, path)
    save_weights(mlp(6, 3, (16, 9)), path)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(StateError, match=r"was written for another network: .*size mismatch.* Train again, or get the"):
        load_weights(model, path)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_no_flipped_bit_of_a_checkpoint_is_taken(tmp_path):
    path = tmp_path / "run.pt"
    start_and_cut(path, METHODS["ldmnet"], 2)
    for content in flipped(path.read_bytes(), random.Random(0), 300):
        path.write_bytes(content)
        with pytest.raises(StateError, match=re.escape(f"{path} cannot be read as a checkpoint: ")):
            read_checkpoint(path)


WRONG_PARTS = {
    "an epoch beyond the end": lambda s: s.update(epoch=9),
    "an epoch that is no number": lambda s: s.update(epoch="2"),
    "an epoch without its history": lambda s: s.update(epoch=1),
    "history of other things": lambda s: s.update(history=[1, 2]),
    "a loss that is text": lambda s: s["history"][0].update(loss="low"),
    "an unknown field": lambda s: s["history"][0].update(warp=9),
    "no seconds": lambda s: s.update(seconds=3),
    "seconds below zero": lambda s: s["seconds"].update(train=-1.0),
    "best weights of another shape": lambda s: s.update(best={k: torch.ones(2) for k in s["model"]}),
    "weights that are none": lambda s: s.update(model=[1]),
    "weights of another shape": lambda s: s["model"].update({"head.bias": torch.ones(9)}),
    "no random state": lambda s: s.update(random={}),
    "a random state that is none": lambda s: s["random"].update(torch=torch.ones(3)),
    "a random state cut short": lambda s: s["random"].update(batches=s["random"]["batches"][:9]),
    "momentum of another shape": lambda s: s["optimizer"]["state"][0].update(momentum_buffer=torch.ones(2)),
    "a learning rate that is text": lambda s: s["optimizer"]["param_groups"][0].update(lr="fast"),
    "no groups": lambda s: s["optimizer"].update(param_groups=[]),
    "groups that are no list": lambda s: s["optimizer"].update(param_groups={0: s["optimizer"]["param_groups"][0]}),
    "a group without weights": lambda s: s["optimizer"]["param_groups"][0].pop("params"),
    "a group of fewer weights": lambda s: s["optimizer"]["param_groups"][0]["params"].pop(),
    "weights that are no list": lambda s: s["optimizer"]["param_groups"][0].update(params=7),
    "an optimizer without its state": lambda s: s["optimizer"].pop("state"),
    "an optimizer's state that is none": lambda s: s["optimizer"].update(state=[]),
    "an epoch below zero": lambda s: s.update(epoch=-1),
    "half an epoch": lambda s: s.update(epoch=1.5),
    "best weights that are none": lambda s: s.update(best=[1]),
    "a part of the best weights": lambda s: s.update(best={"head.bias": s["model"]["head.bias"]}),
    "best weights that are no tensors": lambda s: s.update(best=dict.fromkeys(s["model"], 1.0)),
    "no optimizer": lambda s: s.update(optimizer=None),
    "no regulariser": lambda s: s.update(regularizer=None),
    "settings that are none": lambda s: s.update(settings=None),
}
TORCH_SAYS = (  # its own words
    *("a random state that is none", "a random state cut short"),
    *("weights of another shape", "weights that are none"),
)


@pytest.mark.parametrize("wrong", WRONG_PARTS)
def test_a_checkpoint_with_a_wrong_part_is_refused_and_the_model_left_alone(tmp_path, wrong, says):
    path, model = tmp_path / "run.pt", network()
    start_and_cut(path, METHODS["ldmnet"], 3)
    state = read_checkpoint(path)
    WRONG_PARTS[wrong](state)
    save_checkpoint(path, state)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(StateError) if wrong in TORCH_SAYS else says(StateError):
        fit(model, (X, Y), method=METHODS["ldmnet"], settings=SETTINGS, checkpoint=path, progress=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_nothing_in_a_checkpoint_is_run(tmp_path):
    class Call:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "victim"),)

    save_checkpoint(tmp_path / "run.pt", {**state(), "settings": Call()})
    with pytest.raises(StateError, match="cannot be read as a checkpoint: "):
        read_checkpoint(tmp_path / "run.pt")
    assert not (tmp_path / "victim").exists()


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


def test_a_checkpoint_of_another_network_is_refused_and_stays(tmp_path):
    path = tmp_path / "checkpoint.pt"
    start_and_cut(path, METHODS["dropout"], 2)
    before = path.read_bytes()
    wider = mlp(6, 3, (20, 8))
    with pytest.raises(StateError, match=r"was written for another network: .*size mismatch.*Delete it, or"):
        fit(wider, (X, Y), method=METHODS["dropout"], settings=SETTINGS, checkpoint=path, progress=False)
    assert path.read_bytes() == before
