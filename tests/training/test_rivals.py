"""Each rival against a few lines of NumPy or a law, alone and on the loop."""

import contextlib
import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clouds import cloud
from ldmnet import Method, TrainSettings, fit
from ldmnet.errors import InputError
from ldmnet.fingerprints import settings_hash
from ldmnet.networks import initialize, mlp
from ldmnet.runs.datasets import RunSettings
from ldmnet.training.ensemble import Ensemble, fit_network, network_of
from ldmnet.training.features import evaluate, sweep
from ldmnet.training.methods import METHODS
from ldmnet.training.pulls import OLE, CentreLoss, Laplacian, Shrink, SupervisedContrastive
from ldmnet.training.rival import EMA, SAM, Batch, LabelSmoothing, ManifoldMixup, Mixup, TvMFHead, put_t_vmf_head
from ldmnet.training.rivals import KINDS, RIVALS, Rivals, parse

N, D, K = 48, 6, 3
X = cloud(N, D).float()
Y = (torch.arange(N) % K).long()
X = X + 2.0 * F.one_hot(Y, D)
SETTINGS = TrainSettings(epochs=12, lr=0.02, batch_size=16)
SINGLE = tuple(name for name in RIVALS if name != "ensemble")


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def net(seed=0):
    model = mlp(D, K, (8, 8))
    initialize(model, "he", seed)
    return model


def features(n=12):
    return cloud(n, 5, seed=3).requires_grad_(), torch.arange(n) % 4


# names


def test_a_name_has_a_base_and_rivals_with_their_strengths():
    assert parse("ldmnet+mixup:0.4+ema", METHODS) == ("ldmnet", {"mixup": 0.4, "ema": KINDS["ema"].strength})
    assert parse("sam", METHODS) == ("none", {"sam": KINDS["sam"].strength})
    assert [parse(name, METHODS) for name in METHODS] == [(name, {}) for name in METHODS]
    assert all(
        kind.low <= kind.strength <= kind.high < kind.below or name == "ensemble" for name, kind in KINDS.items()
    )


@pytest.mark.parametrize(
    "name",
    ["mix", "ldmnet+control", "mixup+mixup", "mixup:no", "label_smoothing:1", "sam:-1", "ensemble:2.5", "ldmnet:3",
     "mixup+manifold_mixup", "none+mixup", "", "ldmnet+"],
)  # fmt: skip
def test_names_that_are_none(name, says):
    with says(InputError):
        Method(name)


def test_rivals_leave_the_names_of_earlier_runs_alone():
    old = {"data": "mnist", "per_class": 50, "method": {"name": "ldmnet", "mu": 0.01, "lambda_tilde": 0.05}}
    from ldmnet.fingerprints import short_hash

    run = RunSettings("mnist", 50, method=Method("ldmnet", mu=0.01, lambda_tilde=0.05))
    assert settings_hash(run) == short_hash(old)
    assert settings_hash(run) != settings_hash(
        RunSettings("mnist", 50, method=Method("ldmnet+ema", mu=0.01, lambda_tilde=0.05))
    )


# penalties, each against a reference written from its formula


def test_label_smoothing_is_the_mixture_of_the_target_with_all_classes():
    from ldmnet.training.samples import softmax_loss

    logits = cloud(7, K, seed=1)
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    target = 0.8 * F.one_hot(y, K) + 0.2 / K
    wanted = -(target * logits.log_softmax(1)).sum(1).mean()
    rivals = Rivals({"label_smoothing": 0.2}, draw())
    assert rivals.smoothing == LabelSmoothing(0.2, draw()).smoothing == 0.2
    assert torch.allclose(softmax_loss(logits, y, 7, None, rivals.smoothing), wanted)


def test_supervised_contrastive_against_loops():
    f, y = features()
    z = (f / f.norm(dim=1, keepdim=True)).detach().double().numpy()
    total = []
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i]
        below = sum(math.exp(z[i] @ z[j] / 0.1) for j in others)
        same = [j for j in others if y[j] == y[i]]
        total.append(-np.mean([math.log(math.exp(z[i] @ z[j] / 0.1) / below) for j in same]))
    found = SupervisedContrastive(0.7, draw()).penalty(f, y)
    assert float(found) == pytest.approx(0.7 * np.mean(total), rel=1e-5)
    assert float(SupervisedContrastive(1.0, draw()).penalty(f[:3], y[:3])) == 0  # three classes, one of each


def test_supervised_contrastive_is_pytorch_metric_learnings():
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    f, y = features()
    found = SupervisedContrastive(1.0, draw()).penalty(f, y)
    assert torch.allclose(found, losses.SupConLoss(temperature=0.1)(f, y), rtol=1e-5)


def test_ole_is_a_difference_of_nuclear_norms():
    f, y = features()
    a = f.detach().double().numpy()
    classes = sum(max(1.0, np.linalg.norm(a[y.numpy() == c], "nuc")) for c in range(4))
    assert float(OLE(0.5, draw()).penalty(f, y)) == pytest.approx(
        0.5 * (classes - np.linalg.norm(a, "nuc")) / len(a), rel=1e-5
    )
    apart = torch.block_diag(torch.full((3, 2), 2.0), torch.full((3, 2), 3.0))  # orthogonal classes: the least there is
    assert float(OLE(1.0, draw()).penalty(apart, torch.tensor([0] * 3 + [1] * 3))) == pytest.approx(0, abs=1e-5)


def test_the_laplacian_is_the_trace_of_its_matrix():
    f, y = features()
    a, same = f.detach().double().numpy(), (y[:, None] == y).numpy() & ~np.eye(12, dtype=bool)
    d2 = ((a[:, None] - a) ** 2).sum(2)
    W = np.exp(-d2 / d2[same].mean()) * same
    L = np.diag(W.sum(1)) - W
    found = Laplacian(0.3, draw()).penalty(f, y)
    assert float(found) == pytest.approx(0.3 * np.trace(a.T @ L @ a) / 12, rel=1e-5)
    (slope,) = torch.autograd.grad(found, f)  # weights are held: the gradient is that of the quadratic form
    assert np.allclose(slope.numpy(), 0.3 * 2 * L @ a / 12, atol=1e-6)


def test_shrink_pulls_to_zero():
    f, y = features()
    (slope,) = torch.autograd.grad(Shrink(0.4, draw()).penalty(f, y), f)
    assert torch.allclose(slope, 0.4 * f.detach() / len(f))


def test_centres_follow_their_classes():
    f, y = features()
    rival = CentreLoss(0.6, draw())
    assert float(rival.penalty(f, y)) == pytest.approx(0.3 * float(f.square().sum(1).mean()))  # all begin at zero
    wanted = torch.stack([0.5 * f[y == c].sum(0) / (1 + 3) for c in range(4)])
    assert torch.allclose(rival.state()["centres"], wanted)
    for _ in range(200):
        rival.penalty(f, y)
    assert torch.allclose(rival.state()["centres"], torch.stack([f[y == c].mean(0) for c in range(4)]), atol=1e-5)
    other = CentreLoss(0.6, draw())
    other.load(rival.state())
    assert torch.equal(other.penalty(f, y), rival.penalty(f, y))


def test_t_vmf_is_the_cosine_at_zero_and_narrower_above():
    weight, f = cloud(K, 5, seed=1).float(), cloud(7, 5, seed=2).float()
    cosine = F.cosine_similarity(f[:, None], weight[None], dim=2)
    assert torch.allclose(TvMFHead(weight, 0.0)(f), 16 * cosine, atol=1e-5)
    narrow = TvMFHead(weight, 16.0)(f)
    assert torch.equal(narrow.argmax(1), cosine.argmax(1))  # the order of the classes is kept
    assert bool((narrow <= 16 * cosine + 1e-5).all())
    assert torch.allclose(TvMFHead(weight, 16.0)(weight).diagonal(), torch.full((K,), 16.0), atol=1e-4)


def test_the_t_vmf_head_takes_the_place_of_the_last_linear_layer_once():
    model = net()
    put_t_vmf_head(model, 8.0)
    head = model.head
    put_t_vmf_head(model, 8.0)
    assert isinstance(head, TvMFHead)
    assert model.head is head
    with pytest.raises(InputError, match="has none"):
        put_t_vmf_head(nn.Sequential(nn.Conv2d(1, 2, 3)), 8.0)


# batches


@pytest.mark.parametrize("kind", [Mixup, ManifoldMixup])
def test_mixing_is_a_mixture_and_its_loss_is_shared(kind):
    rival = kind(1.0, draw())
    shares, hidden = [], []
    for _ in range(400):
        batch = rival.batch(Batch(torch.arange(N), X, Y))
        shares.append(batch.share)
        hidden.append(batch.hidden)
        assert torch.equal(batch.partner.sort()[0], torch.arange(N))
        if not batch.hidden:
            assert torch.allclose(batch.x, batch.share * X + (1 - batch.share) * X[batch.partner])
    assert np.mean(shares) == pytest.approx(0.5, abs=0.05)  # Beta(1, 1) is uniform
    assert np.var(shares) == pytest.approx(1 / 12, abs=0.015)
    assert (0.4 < np.mean(hidden) < 0.6) if kind is ManifoldMixup else not any(hidden)
    logits = cloud(N, K, seed=5)
    soft = batch.mixed(F.one_hot(Y, K).float())
    wanted = -(soft * logits.log_softmax(1)).sum(1).mean()  # the softmax loss is linear in its targets
    assert torch.allclose(batch.weighed(lambda rows: F.cross_entropy(logits, Y[rows])), wanted)


def test_manifold_mixup_mixes_features_and_shows_them_unmixed():
    from ldmnet.training.features import FeatureTap

    model, rivals = net(), Rivals({"manifold_mixup": 2.0}, draw(1))
    with FeatureTap(model, "features") as tap, rivals.mixing(model, "features"):
        batch = rivals.batch(torch.arange(N), X, Y)
        while not batch.hidden:
            batch = rivals.batch(torch.arange(N), X, Y)
        logits, seen = tap(batch.x)
    plain = model.features(X)
    assert torch.equal(seen, plain)
    assert torch.allclose(logits, model.head(batch.mixed(plain)), atol=1e-6)
    assert torch.equal(model(X), model.head(plain))  # nothing is left behind


@pytest.mark.parametrize(("share", "hidden", "weight"), [(0.5, False, 0.0), (0.9, False, 0.64), (0.5, True, 1.0)])
def test_a_mixed_input_is_pulled_the_less_the_more_even_it_is(share, hidden, weight):
    from types import SimpleNamespace

    from ldmnet.training.objective import objective

    pulled = lambda f, index: (f.square().sum(1) * (1 + index)).mean()  # noqa: E731
    run = SimpleNamespace(
        regularizer=SimpleNamespace(penalty=pulled), rivals=Rivals({}, draw()), x=X, weights=None,
        all_labelled=True, autocast=contextlib.nullcontext,
    )  # fmt: skip
    index, partner, features = torch.arange(N), torch.arange(N).flip(0), cloud(N, 3, seed=8)
    batch = Batch(index, X, Y, partner, share, hidden)
    _, _, penalty = objective(run, lambda x: (cloud(N, K, seed=9), features), batch)
    own, others = pulled(features, index), pulled(features, partner)
    if hidden:  # the features are their samples' own
        own = others = pulled(features, index)
    assert float(penalty) == pytest.approx(weight * float(share * own + (1 - share) * others), rel=1e-5)


# gradient and weights


def test_sam_takes_the_gradient_uphill_and_comes_back():
    model = net().double()
    x, y = X.double(), Y
    loss = lambda m: F.cross_entropy(m(x), y)  # noqa: E731
    loss(model).backward()
    before = [p.detach().clone() for p in model.parameters()]
    grads = [p.grad.clone() for p in model.parameters()]
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for p, g in zip(moved.parameters(), grads, strict=True):
            p += 0.3 * g / norm
    moved.zero_grad()
    loss(moved).backward()
    SAM(0.3, draw()).gradient(model, lambda: loss(model))
    for p, q, old in zip(model.parameters(), moved.parameters(), before, strict=True):
        assert torch.equal(p, old)
        assert torch.allclose(p.grad, q.grad)


def test_sam_leaves_running_statistics_to_the_first_pass():
    model = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4), nn.Linear(4, K))
    F.cross_entropy(model(X), Y).backward()
    before = {name: value.clone() for name, value in model.named_buffers()}
    SAM(0.5, draw()).gradient(model, lambda: F.cross_entropy(model(X), Y))
    assert all(torch.equal(before[name], value) for name, value in model.named_buffers())


def test_ema_is_the_recursion():
    model, rival = nn.Linear(2, 1, bias=False), EMA(0.9, draw())
    rival.begin(model)
    wanted = None
    for t in range(30):
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[float(t), -float(t)]]))
        rival.stepped(model)
        decay = min(0.9, (1 + t) / (10 + t))
        wanted = float(t) if wanted is None else decay * wanted + (1 - decay) * t
    assert float(rival.judged(model).weight[0, 0]) == pytest.approx(wanted, rel=1e-5)


def test_training_ends_with_the_average():
    seen = []
    model = net()
    found = fit(model, (X, Y), method=Method("ema:0.9"), settings=SETTINGS, progress=False,
                validation=(X, Y), on_epoch=seen.append)  # fmt: skip
    assert evaluate(found.model, X, Y)[0] == pytest.approx(seen[-1].val_loss, rel=1e-5)
    plain = fit(net(), (X, Y), settings=SETTINGS, progress=False)
    assert not torch.equal(found.model.head.weight, plain.model.head.weight)


# on the loop


@pytest.mark.parametrize("base", ["", "ldmnet+", "control+"])
@pytest.mark.parametrize("name", SINGLE)
def test_every_rival_trains_alone_and_beside_ldmnet(base, name):
    method = Method(base + name)
    first = fit(net(), (X, Y), method=method, settings=SETTINGS, progress=False)
    again = fit(net(), (X, Y), method=method, settings=SETTINGS, progress=False)
    plain = fit(net(), (X, Y), method=Method(base.strip("+") or "none"), settings=SETTINGS, progress=False)
    assert first.history == again.history
    assert torch.equal(sweep(first.model, X), sweep(again.model, X))
    assert not torch.equal(sweep(first.model, X), sweep(plain.model, X))
    assert first.history[-1].loss < first.history[0].loss
    assert (first.regularizer is not None) == bool(base)


@pytest.mark.parametrize("name", SINGLE)
def test_a_cut_run_with_a_rival_resumes_bit_for_bit(name, tmp_path):
    class CutError(Exception):
        pass

    def cut(epoch):
        if epoch.epoch == 7:
            raise CutError

    method, settings = Method(f"ldmnet+{name}"), TrainSettings(epochs=12, lr=0.02, batch_size=16, checkpoint_every=1)
    straight = fit(net(), (X, Y), method=method, settings=settings, progress=False)
    with pytest.raises(CutError):
        fit(net(), (X, Y), method=method, settings=settings, checkpoint=tmp_path / "c", on_epoch=cut)
    resumed = fit(net(), (X, Y), method=method, settings=settings, checkpoint=tmp_path / "c", progress=False)
    assert resumed.history == straight.history
    assert torch.equal(sweep(resumed.model, X), sweep(straight.model, X))


@pytest.mark.parametrize("name", SINGLE)
def test_samples_without_a_label_do_no_harm(name):
    y = Y.clone()
    y[::4] = -1
    found = fit(net(), (X, y), method=Method(f"ldmnet+{name}"), settings=SETTINGS, progress=False)
    assert math.isfinite(found.train_loss)


def test_without_rivals_a_step_is_what_it_was():
    """One batch of the whole set: a step of plain SGD on the softmax loss, by hand."""
    model, other = net(), net()
    settings = TrainSettings(epochs=1, lr=0.1, batch_size=N, lr_drop_after=2)
    fit(model, (X, Y), settings=settings, progress=False)
    loss = F.cross_entropy(other(X), Y)
    grads = torch.autograd.grad(loss, list(other.parameters()))
    for p, q, g in zip(model.parameters(), other.parameters(), grads, strict=True):
        assert torch.allclose(p, q - 0.1 * g, atol=1e-6)


# the ensemble


def test_an_ensemble_answers_with_the_mean_probability():
    method = Method("ensemble:3")
    model = network_of(method, net, 0)
    assert isinstance(model, Ensemble)
    found = fit_network(model, (X, Y), method=method, settings=SETTINGS, test=(X, Y), progress=False)
    members = [sweep(member, X).softmax(1) for member in model.members]
    assert torch.allclose(sweep(model, X).exp(), torch.stack(members).mean(0), atol=1e-6)
    assert not torch.allclose(members[0], members[1])
    assert sweep(model, X, layer="features").shape == (N, 3 * 8)
    alone = fit(net(), (X, Y), settings=SETTINGS, progress=False)
    assert torch.equal(sweep(alone.model, X), sweep(model.members[0], X))  # the first member is the run alone
    assert found.test_accuracy == evaluate(model, X, Y)[1]


def test_an_ensemble_that_was_cut_resumes(tmp_path):
    method, settings = Method("ldmnet+ensemble:2"), TrainSettings(epochs=4, lr=0.02, batch_size=16, checkpoint_every=1)
    straight = fit_network(network_of(method, net, 0), (X, Y), method=method, settings=settings, progress=False)
    seen = []

    def cut(epoch):
        seen.append(epoch.epoch)
        if epoch.epoch == 5:
            raise KeyboardInterrupt

    how = {"method": method, "settings": settings, "checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        fit_network(network_of(method, net, 0), (X, Y), on_epoch=cut, **how)
    assert seen == [0, 1, 2, 3, 4, 5]
    resumed = fit_network(network_of(method, net, 0), (X, Y), progress=False, **how)
    assert torch.equal(sweep(resumed.model, X), sweep(straight.model, X))
    assert not list(tmp_path.iterdir())


def test_one_network_is_no_ensemble():
    with pytest.raises(InputError, match="several networks"):
        fit(net(), (X, Y), method=Method("ensemble"), progress=False)
