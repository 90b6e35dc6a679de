"""Augmentation by name and by a function."""

import pytest
import torch
from torch import nn

from ldmnet import Method, TrainSettings, fit
from ldmnet.errors import InputError
from ldmnet.networks import FeatureNet, initialize
from ldmnet.training.augment import flip, shift

N = 36
Y = torch.arange(N) % 3
X = torch.randn(N, 2, 16, 9, generator=torch.Generator().manual_seed(0)) + Y[:, None, None, None]
SMALL = {"mu": 0.1, "lambda_tilde": 0.5, "n_neighbors": 6, "sigma_neighbor": 4}
LDMNET = Method("ldmnet", **SMALL)
RUNNING = Method("ldmnet", features="running", **SMALL)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def network():
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2)]
    model = FeatureNet(nn.Sequential(*layers), 16, 3)
    initialize(model, "he", 0)
    return model


def trained(method=None, augment="shift,flip", data=(X, Y), **options):
    settings = TrainSettings(epochs=4, lr=0.05, batch_size=10, checkpoint_every=1, augment=augment)
    return fit(network(), data, method=method, settings=settings, progress=False, **options)


def same(first, second):
    states = first.model.state_dict(), second.model.state_dict()
    return all(torch.equal(a, b) for a, b in zip(*(state.values() for state in states), strict=True))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_shift_moves_each_image_by_up_to_an_eighth(layout):
    x = torch.rand(200, 3, 16, 24, generator=draw()).contiguous(memory_format=layout) + 1
    moved = shift(x, draw(1))
    assert moved.is_contiguous(memory_format=layout)
    seen = set()
    for before, after in zip(x, moved, strict=True):
        found = [
            (dy, dx)
            for dy in range(-2, 3)
            for dx in range(-3, 4)
            if torch.equal(
                after[:, max(0, dy) : 16 + min(0, dy), max(0, dx) : 24 + min(0, dx)],
                before[:, max(0, -dy) : 16 - max(0, dy), max(0, -dx) : 24 - max(0, dx)],
            )
        ]
        assert len(found) == 1
        seen.add(found[0])
        dy, dx = found[0]
        assert int((after[0] == 0).sum()) == 16 * 24 - (16 - abs(dy)) * (24 - abs(dx))  # zeros where nothing was
    assert {dy for dy, _ in seen} == {-2, -1, 0, 1, 2}
    assert {dx for _, dx in seen} == {-3, -2, -1, 0, 1, 2, 3}


def test_flip_mirrors_about_half_of_the_images():
    x = torch.rand(400, 1, 4, 5, generator=draw())
    mirrored = flip(x, draw(1))
    kept = (mirrored == x).flatten(1).all(1)
    turned = (mirrored == x.flip(3)).flatten(1).all(1)
    assert bool((kept ^ turned).all())
    assert 160 < int(kept.sum()) < 240


@pytest.mark.parametrize("method", [None, LDMNET, RUNNING, Method("dropout", dropout=0.5)])
def test_a_cut_run_resumes_bit_for_bit(tmp_path, method):
    whole = trained(method)
    assert not same(whole, trained(method, augment=""))

    def cut(epoch):
        if epoch.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(method, checkpoint=tmp_path / "run.pt", on_epoch=cut)
    again = trained(method, checkpoint=tmp_path / "run.pt")
    assert same(whole, again)
    assert whole.history == again.history


def test_every_method_sees_the_same_images():
    seen = []
    for method in (Method(), LDMNET, Method("dropout", dropout=0.5)):
        model, batches = network(), []
        model.register_forward_pre_hook(lambda m, a, batches=batches: batches.append(a[0]) if m.training else None)
        settings = TrainSettings(epochs=2, lr=0.01, batch_size=10, augment="flip,shift")
        fit(model, (X, Y), method=method, settings=settings, progress=False)
        seen.append(torch.cat(batches[-8:]))
    assert all(torch.equal(batches, seen[0]) for batches in seen)


def test_the_graph_and_the_sweep_see_the_plain_images():
    model, swept = network(), []
    model.register_forward_pre_hook(lambda m, a: None if m.training else swept.append(a[0]))
    settings = TrainSettings(epochs=1, lr=0.01, batch_size=10, augment="shift")
    found = fit(model, (X, Y), method=LDMNET, settings=settings, progress=False)
    assert torch.equal(found.regularizer.inputs, X.flatten(1))
    assert any(torch.equal(batch, X) for batch in swept)


@pytest.mark.parametrize("method", [LDMNET, RUNNING])
def test_everything_together(method):
    labels = torch.where(torch.arange(N) % 4 == 0, -1, Y)
    weights = torch.linspace(0.5, 2, N)
    found = trained(method, data=(X, labels), sample_weight=weights, class_weight="balanced")
    assert len(found.regularizer.log) == 2
    assert torch.equal(found.regularizer.target.isfinite().all(1), labels >= 0)
    assert found.history[-1].penalty > 0


def test_a_function_of_a_batch_in_place_of_a_name():
    def noisy(x):
        return x + 0.1 * torch.randn_like(x)

    first, again = (trained_with(noisy) for _ in range(2))
    assert same(first, again)
    assert not same(first, trained(augment=""))
    words = r"augment was given a batch \(10, 2, 16, 9\) and must return as many samples, got \(1, 2, 16, 9\)\.$"
    with pytest.raises(InputError, match=words):
        trained_with(lambda x: x[:1])


def trained_with(function):
    settings = TrainSettings(epochs=4, lr=0.05, batch_size=10)
    return fit(network(), (X, Y), settings=settings, augment=function, progress=False)


def test_names_and_samples_that_do_not_do(says):
    with says(InputError):
        TrainSettings(augment="shift,rotate")
    model = FeatureNet(nn.Linear(6, 4), 4, 3)
    with says(InputError):
        fit(model, (torch.randn(N, 6), Y), settings=TrainSettings(augment="shift"), progress=False)
