"""Optimizers, schedules and clipping, by name and of the caller's own."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clouds import cloud
from ldmnet import Method, TrainSettings, fit
from ldmnet.errors import InputError, StateError
from ldmnet.networks import initialize, mlp
from ldmnet.seeds import generator
from ldmnet.training.checkpoint import read_checkpoint, save_checkpoint

N = 40
Y = torch.arange(N) % 3
X = cloud(N, 6, dtype=torch.float32) + 2 * torch.eye(6)[Y]
LDMNET = Method("ldmnet", mu=0.1, lambda_tilde=0.5, n_neighbors=6, sigma_neighbor=4)
ADAMW = partial(torch.optim.AdamW, lr=0.01)


def network():
    model = mlp(6, 3, (16, 8))
    initialize(model, "he", 0)
    return model


def settings(**changes):
    return TrainSettings(**{"epochs": 4, "lr": 0.01, "batch_size": 16, "checkpoint_every": 1, **changes})


def trained(method=None, changes=None, **options):
    return fit(network(), (X, Y), method=method, settings=settings(**(changes or {})), progress=False, **options)


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


def by_hand(optimizer, rate, clip=None):
    """Training without a regulariser, plainly: `optimizer` takes weights, `rate` an epoch."""
    model, draw = network(), generator(0, "batches")
    optimizer = optimizer(model.parameters())
    for epoch in range(4):
        for group in optimizer.param_groups:
            group["lr"] = rate(epoch)
        for index in torch.randperm(N, generator=draw).split(16):
            optimizer.zero_grad()
            F.cross_entropy(model(X[index]), Y[index]).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return model


def assert_close(model, other):
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def cosine(epoch):
    return 0.01 * (1 + math.cos(math.pi * epoch / 4)) / 2


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("sgd", partial(torch.optim.SGD, momentum=0.9)),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
    ],
)
def test_named_optimizers_are_torchs(name, made):
    found = trained(changes={"optimizer": name, "weight_decay": 0.3, "schedule": "cosine"})
    assert_close(found.model, by_hand(partial(made, weight_decay=0.3), cosine))


def test_the_methods_weight_decay_and_the_settings_add_up():
    found = trained(Method("weight_decay", weight_decay_w=0.1), {"weight_decay": 0.05, "schedule": "constant"})
    assert_close(found.model, by_hand(partial(torch.optim.SGD, momentum=0.9, weight_decay=0.25), lambda _: 0.01))


def test_a_clipped_gradient():
    found = trained(changes={"clip_norm": 0.1, "schedule": "constant"})
    assert_close(found.model, by_hand(partial(torch.optim.SGD, momentum=0.9), lambda _: 0.01, clip=0.1))
    assert not same(found, trained(changes={"schedule": "constant"}))


def test_an_optimizer_and_a_schedule_of_ones_own():
    found = trained(optimizer=torch.optim.RMSprop, schedule=lambda epoch: 0.5**epoch)
    assert_close(found.model, by_hand(torch.optim.RMSprop, lambda epoch: 0.01 * 0.5**epoch))
    assert [e.lr for e in found.history] == pytest.approx([0.01 * 0.5**e for e in range(4)])


def test_the_settings_schedule_scales_the_rate_of_every_group():
    def two_rates(weights):
        first, *others = weights
        return torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": others, "lr": 0.25}])

    kept = []

    def made(weights):
        kept.append(two_rates(weights))
        return kept[0]

    found = trained(changes={"schedule": "cosine"}, optimizer=made)
    assert [e.lr for e in found.history] == pytest.approx([50 * cosine(e) for e in range(4)])
    assert [group["lr"] for group in kept[0].param_groups] == pytest.approx([50 * cosine(3), 25 * cosine(3)])


def rates(**changes):
    chosen = settings(**{"epochs": 10, "lr": 1.0, **changes})
    return [chosen.lr_at(epoch) for epoch in range(10)]


def test_the_schedules():
    assert rates(schedule="constant") == [1.0] * 10
    down = rates(schedule="cosine")
    assert down[0] == 1.0
    assert down[5] == pytest.approx(0.5)
    assert 0 < down[9] < 0.03
    warm = rates(schedule="cosine", warmup=0.3)
    assert warm[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert warm[3:] == sorted(warm[3:], reverse=True)
    assert rates(warmup=0.2)[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert rates(warmup=0.2)[3:] == rates()[3:]


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"optimizer": "adamw", "schedule": "cosine", "warmup": 0.5, "clip_norm": 1.0}, {}),
        ({}, {"optimizer": ADAMW, "schedule": lambda epoch: 1 / (1 + epoch)}),
    ],
)
def test_a_cut_run_resumes_bit_for_bit(tmp_path, changes, options):
    whole = trained(LDMNET, changes, **options)

    def cut(epoch):
        if epoch.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(LDMNET, changes, **options, checkpoint=tmp_path / "run.pt", on_epoch=cut)
    again = trained(LDMNET, changes, **options, checkpoint=tmp_path / "run.pt")
    assert same(whole, again)
    assert whole.history == again.history


def test_resuming_with_another_function_is_refused(tmp_path, says):
    path = tmp_path / "run.pt"
    trained(optimizer=ADAMW, checkpoint=path)
    with says(StateError):
        trained(optimizer=partial(torch.optim.AdamW, lr=0.02), checkpoint=path)
    with pytest.raises(StateError, match=r"AdamW\(lr=0.01\)' \(now 'sgd'\)"):
        trained(checkpoint=path)
    with pytest.raises(StateError, match=r"schedule 'step' \(now '.*abs'\)"):
        trained(optimizer=ADAMW, schedule=abs, checkpoint=path)


def test_a_checkpoint_of_an_earlier_version_still_fits(tmp_path):
    path = tmp_path / "run.pt"
    whole = trained(LDMNET, checkpoint=path)
    state = read_checkpoint(path)
    for name in ("optimizer", "weight_decay", "schedule", "warmup", "clip_norm", "augment", "patience"):
        del state["settings"][name]
    save_checkpoint(path, state)
    assert same(trained(LDMNET, checkpoint=path), whole)
    with pytest.raises(StateError, match=r"optimizer 'sgd' \(now 'adam'\)"):
        trained(LDMNET, {"optimizer": "adam"}, checkpoint=path)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "lion"},
        {"schedule": "linear"},
        {"warmup": 1.0},
        {"weight_decay": -1.0},
        {"clip_norm": 0.0},
        {"patience": 0},
    ],
)
def test_settings_that_do_not_do(changes, says):
    with says(InputError):
        settings(**changes)


def test_an_optimizer_that_does_not_do():
    with pytest.raises(InputError, match=r"optimizer must be a function that makes .* got a list\.$"):
        trained(optimizer=list)
    with pytest.raises(InputError, match=r"LBFGS does not fit mini-batches"):
        trained(optimizer=torch.optim.LBFGS)
    with pytest.raises(InputError, match=r"^an optimizer of your own brings its own weight decay, but .* for 0.2 in"):
        trained(Method("weight_decay", weight_decay_w=0.1), optimizer=ADAMW)
