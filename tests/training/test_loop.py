import copy
import math
import re
import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from clouds import cloud
from ldmnet import ManifoldRegularizer, Method, TrainSettings, fit, sweep
from ldmnet.errors import BadEndWarning, DivergenceError, InputError
from ldmnet.networks import FeatureNet, initialize, mlp
from ldmnet.seeds import generator
from ldmnet.training.state import Run
from reference import ReferenceLDMNet

N = 40
SMALL = {"n_neighbors": 6, "sigma_neighbor": 4}
LDMNET = Method("ldmnet", mu=0.1, lambda_tilde=0.5, **SMALL)
METHODS = {
    "none": Method(),
    "weight_decay": Method("weight_decay", weight_decay_w=0.01),
    "dropout": Method("dropout", dropout=0.5),
    "control": Method("control", mu=0.1, **SMALL),
    "ldmnet": LDMNET,
}


def data(n=N, dtype=torch.float32):
    """Three blobs that a small network can tell apart."""
    y = torch.arange(n) % 3
    return cloud(n, 6, dtype=dtype) + 2 * torch.eye(6, dtype=dtype)[y], y


def network(dtype=torch.float32, hidden=(16, 8)):
    model = mlp(6, 3, hidden).to(dtype)
    initialize(model, "he", 0)
    return model


def settings(**changes):
    return TrainSettings(**{"epochs": 4, "lr": 0.05, "batch_size": 16, **changes})


def run(method, model=None, *, train=None, settings=None, **options):
    model = network() if model is None else model
    return fit(model, train or data(), method=method, settings=settings or globals()["settings"](), **options)


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


class StepSpy:
    """Counts the steps of every regulariser, with the epochs done so far and the features given."""

    def __init__(self, monkeypatch):
        self.calls, self.features, self.epochs = [], [], 0
        step = ManifoldRegularizer.step

        def spied(regularizer, features):
            self.calls.append(self.epochs)
            self.features.append(features.clone())
            return step(regularizer, features)

        monkeypatch.setattr(ManifoldRegularizer, "step", spied)

    def on_epoch(self, epoch):
        self.epochs += 1


def test_the_schedule_is_the_papers():
    paper = TrainSettings()
    rates = [paper.lr_at(epoch) for epoch in range(300)]
    assert rates[:200] == [0.001] * 200
    assert rates[200:] == pytest.approx([0.0001] * 100)
    assert (paper.epochs, paper.momentum, paper.batch_size) == (300, 0.9, 100)


def test_the_schedule_of_the_faces():
    faces = TrainSettings(epochs=200, lr=0.1, lr_decay=0.99, lr_drop_after=1.0)
    assert [faces.lr_at(e) for e in (0, 1, 199)] == pytest.approx([0.1, 0.099, 0.1 * 0.99**199])


def test_history_shows_the_rate_of_each_epoch():
    history = run(Method(), settings=settings(epochs=6)).history
    assert [e.epoch for e in history] == list(range(6))
    assert [e.lr for e in history] == pytest.approx([0.05] * 4 + [0.005] * 2)


def test_fit_is_algorithm_1(monkeypatch):
    """The whole loop again, plainly, with the dense reference in the place of the regulariser."""
    made = Method.regularizer

    def exact(method, inputs, labels, sharing=None):
        regularizer = made(method, inputs, labels)
        regularizer.settings = replace(regularizer.settings, tol=1e-13, max_steps=500)
        return regularizer

    monkeypatch.setattr(Method, "regularizer", exact)
    x, y = data(dtype=torch.float64)
    initial = network(torch.float64)
    fitted = run(LDMNET, copy.deepcopy(initial), train=(x, y), settings=settings(epochs=5))

    model = initial
    reference = ReferenceLDMNet(x.numpy(), y.numpy(), 0.1, 0.5, "lumped", k=6, sigma_neighbor=4)
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    draw = generator(0, "batches")
    for epoch in range(5):
        if epoch % 2 == 0:
            target = torch.as_tensor(reference.step(model.features(x).detach().numpy()))
        lr = 0.05 if epoch < 3 else 0.005  # two thirds of five epochs, rounded
        for index in torch.randperm(N, generator=draw).split(16):
            f = model.features(x[index])
            loss = F.cross_entropy(model.head(f), y[index])
            loss = loss + 0.1 / 2 * ((f - target[index]) ** 2).sum(1).mean()
            for p, v, g in zip(
                model.parameters(), velocity, torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                v.mul_(0.9).add_(g)
                p.data.sub_(lr * v)
    for ours, theirs in zip(fitted.model.parameters(), model.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=0, atol=1e-8)
    np.testing.assert_allclose(fitted.regularizer.target.numpy(), reference.target, rtol=0, atol=1e-8)
    np.testing.assert_allclose(fitted.regularizer.Z.numpy(), reference.Z, rtol=0, atol=1e-8)


def test_weight_decay_w_is_2w_in_one_step_by_hand():
    x, y = data()
    model = network()
    before = weights(model)
    grads = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    run(Method("weight_decay", weight_decay_w=0.3), model, settings=settings(epochs=1, batch_size=N, lr_drop_after=2))
    for old, g, new in zip(before, grads, model.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old - 0.05 * (g + 2 * 0.3 * old), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["ldmnet", "control"])
def test_no_weight_decay_beside_the_penalty(name):
    x, y = data()
    model = network()
    with torch.no_grad():
        model.head.bias += 5  # the penalty does not reach the head: its step is that of the softmax loss alone
    before = model.head.bias.detach().clone()
    (g,) = torch.autograd.grad(F.cross_entropy(model(x), y), [model.head.bias])
    run(METHODS[name], model, settings=settings(epochs=1, batch_size=N, lr_drop_after=2))
    torch.testing.assert_close(model.head.bias.detach(), before - 0.05 * g, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_one_forward_pass_a_batch(name):
    model = network()
    training, evaluating = [], []
    model.features.register_forward_pre_hook(lambda m, _: (training if m.training else evaluating).append(1))
    run(METHODS[name], model)
    assert len(training) == 4 * math.ceil(N / 16)
    sweeps = 2 if name in ("control", "ldmnet") else 0
    assert len(evaluating) == sweeps + 2  # one sample to check the outputs first, and the final training loss


@pytest.mark.parametrize("name", METHODS)
def test_every_sample_is_trained_on_once_an_epoch(name):
    x, y = data()
    model = network()
    seen = []
    model.register_forward_pre_hook(lambda m, args: seen.append(args[0]) if m.training else None)
    epochs = []

    def on_epoch(epoch):
        rows = torch.cat(seen)
        seen.clear()
        distance = torch.cdist(rows.double(), x.double())
        assert rows.shape == x.shape
        assert sorted(distance.argmin(1).tolist()) == list(range(N))
        epochs.append(distance.argmin(1).tolist())

    fitted = run(METHODS[name], model, train=(x, y), on_epoch=on_epoch)
    assert len(epochs) == 4
    assert len({tuple(order) for order in epochs}) == 4  # shuffled anew
    if fitted.regularizer is not None:
        assert len(fitted.regularizer.target) == N


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_dual_step_comes_every_m_epochs(monkeypatch, m):
    spy = StepSpy(monkeypatch)
    method = Method("ldmnet", mu=0.1, lambda_tilde=0.5, epochs_per_update=m, **SMALL)
    fitted = run(method, settings=settings(epochs=7), on_epoch=spy.on_epoch)
    assert spy.calls == list(range(0, 7, m))
    assert len(fitted.regularizer.log) == len(spy.calls)


def test_each_step_is_given_the_features_of_that_moment_in_eval_mode(monkeypatch):
    x, y = data()
    model = network()
    spy = StepSpy(monkeypatch)
    now = [model.features(x).detach()]

    def on_epoch(epoch):
        spy.on_epoch(epoch)
        model.eval()
        now.append(model.features(x).detach())
        model.train()

    method = Method("ldmnet", mu=0.1, lambda_tilde=0.5, dropout=0.5, **SMALL)
    run(method, model, train=(x, y), settings=settings(epochs=5), on_epoch=on_epoch)
    assert spy.calls == [0, 2, 4]
    for epochs_done, given in zip(spy.calls, spy.features, strict=True):
        torch.testing.assert_close(given, now[epochs_done])


def test_the_control_pulls_to_the_features_of_the_last_update(monkeypatch):
    spy = StepSpy(monkeypatch)
    fitted = run(METHODS["control"], settings=settings(epochs=5))
    assert torch.equal(fitted.regularizer.target, spy.features[-1])
    assert torch.equal(fitted.regularizer.Z, spy.features[-2] - spy.features[-1])


def test_neighbours_are_within_class():
    fitted = run(LDMNET)
    assert torch.equal(fitted.regularizer.groups, data()[1])


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_run_whatever_else_draws_numbers(name):
    models = [network() for _ in range(3)]
    torch.manual_seed(11)
    first = run(METHODS[name], models[0])
    torch.manual_seed(12)
    kept = torch.get_rng_state()
    second = run(METHODS[name], models[1])
    assert torch.equal(torch.get_rng_state(), kept)
    other = run(METHODS[name], models[2], settings=settings(seed=1))
    assert same(weights(first.model), weights(second.model))
    assert first.history == second.history
    assert not same(weights(first.model), weights(other.model))


def test_all_methods_see_the_same_batches():
    orders = []
    for method in METHODS.values():
        model, seen = network(), []
        model.register_forward_pre_hook(lambda m, a, seen=seen: seen.append(a[0]) if m.training else None)
        run(method, model)
        orders.append(torch.cat(seen))
    assert all(torch.equal(order, orders[0]) for order in orders)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns(name):
    fitted = run(METHODS[name], settings=settings(epochs=25), test=data(30))
    assert fitted.history[-1].accuracy > fitted.history[0].accuracy
    assert fitted.train_loss < fitted.history[0].loss
    assert fitted.test_accuracy > 0.8
    assert (fitted.regularizer is None) == (name not in ("control", "ldmnet"))
    assert (fitted.history[-1].penalty > 0) == (name in ("control", "ldmnet"))


def test_validation_is_reported_after_every_epoch_and_test_at_the_end():
    train, held_out = data(), data(21)
    fitted = run(LDMNET, train=train, validation=held_out, test=held_out)
    assert all(e.val_loss is not None and 0 <= e.val_accuracy <= 1 for e in fitted.history)
    assert fitted.test_loss == fitted.history[-1].val_loss
    assert fitted.test_accuracy == fitted.history[-1].val_accuracy
    assert set(fitted.seconds) == {"train", "sweep", "graph", "solve", "other", "test"}
    plain = run(LDMNET, train=train)
    assert plain.history[-1].val_loss is None
    assert plain.test_loss is plain.test_accuracy is None
    assert same(weights(plain.model), weights(fitted.model))  # looking at other data changes nothing


def test_images_are_taken_as_they_are():
    features = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten())
    model = FeatureNet(features, 12, 3)
    initialize(model, "he", 0)
    x = cloud(N, 32, dtype=torch.float32).reshape(N, 2, 4, 4)
    fitted = run(LDMNET, model, train=(x, data()[1]))
    assert fitted.regularizer.target.shape == (N, 12)
    assert torch.equal(fitted.regularizer.inputs, x.flatten(1))


def test_a_data_set_of_pairs_is_the_same_as_its_tensors():
    x, y = data()
    from_set = run(LDMNET, train=TensorDataset(x, y))
    assert same(weights(from_set.model), weights(run(LDMNET, train=(x, y)).model))
    assert same(weights(run(LDMNET, train=(x.numpy(), y.numpy())).model), weights(from_set.model))


def test_dropout_is_set_by_the_method():
    model = network()
    run(METHODS["dropout"], model, settings=settings(epochs=1))
    assert model.dropout.p == 0.5


def test_silent_where_there_is_no_terminal(capsys):
    run(Method(), settings=settings(epochs=1))
    run(Method(), settings=settings(epochs=1), progress=False)
    assert capsys.readouterr().out == ""


def test_lr_too_large_names_lr_and_puts_the_weights_back():
    model = network()
    snapshots = [weights(model)]
    with pytest.raises(DivergenceError) as caught:
        run(Method(), model, settings=settings(lr=1e3, epochs=20), on_epoch=lambda _: snapshots.append(weights(model)))
    epoch = len(snapshots) - 1
    words = f"the loss is not finite in epoch {epoch} (counted from 0). Lower the learning rate: it is 1000."
    assert str(caught.value) == words
    assert same(weights(model), snapshots[-1])
    assert all(p.isfinite().all() for p in model.parameters())


def linear_network():
    model = FeatureNet(nn.Linear(6, 4), 4, 3)
    initialize(model, "xavier", 0)
    return model


def test_mu_too_large_names_mu_and_the_last_good_checkpoint(tmp_path):
    model, path = linear_network(), tmp_path / "run.pt"
    method = Method("ldmnet", mu=100.0, lambda_tilde=500.0, **SMALL)
    snapshots = [weights(model)]
    with pytest.raises(DivergenceError) as caught:
        run(
            method,
            model,
            settings=settings(epochs=20, checkpoint_every=1, lr_drop_after=1.0),
            checkpoint=path,
            on_epoch=lambda _: snapshots.append(weights(model)),
        )
    epoch = len(snapshots) - 1
    assert epoch > 0
    words = (
        f"the loss is not finite in epoch {epoch} (counted from 0). Lower mu, which is 100 and tied to the scale of "
        "the features, or leave mu and lambda_tilde out: the default strength has no unit. Or lower the learning rate. "
        f"The last good checkpoint is {path}."
    )
    assert str(caught.value) == words
    assert same(weights(model), snapshots[-1])
    saved = torch.load(path, weights_only=True)
    assert saved["epoch"] == epoch
    assert all(value.isfinite().all() for value in saved["model"].values())


def leaky_network():
    features = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 4), nn.LeakyReLU())
    model = FeatureNet(features, 4, 3)
    initialize(model, "xavier", 0)
    return model


@pytest.mark.parametrize(
    ("mu", "m", "batch_size", "lr"),
    [(10, 2, 10, 0.1), (1000, 1, 40, 0.01), (1000, 2, 40, 0.001), (1000, 2, 20, 0.01), (1e6, 2, 40, 1.0)],
)
def test_divergence_is_always_a_divergence_error_that_names_mu(mu, m, batch_size, lr):
    model = leaky_network()
    method = Method("ldmnet", mu=mu, lambda_tilde=5 * mu, epochs_per_update=m, **SMALL)
    x = 3 * cloud(N, 6, dtype=torch.float32)
    with pytest.raises(DivergenceError, match=re.escape(f"Lower mu, which is {mu:g} and")):
        run(method, model, train=(x, data()[1]), settings=settings(epochs=40, lr=lr, batch_size=batch_size))
    assert all(p.isfinite().all() for p in model.parameters())


def test_weights_that_overflow_in_the_last_batch_of_an_epoch_are_not_kept(tmp_path):
    model, path = leaky_network(), tmp_path / "run.pt"
    method = Method("ldmnet", mu=1e4, lambda_tilde=5e4, **SMALL)
    with pytest.raises(DivergenceError):
        run(
            method,
            model,
            settings=settings(epochs=20, lr=3e38, batch_size=N, checkpoint_every=1),
            checkpoint=path,
        )
    assert all(p.isfinite().all() for p in model.parameters())
    if path.exists():
        assert all(value.isfinite().all() for value in torch.load(path, weights_only=True)["model"].values())


class FloatLabels(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.zeros(6), 0.5 + i


X, Y = data()
NAN_X = X.clone()
NAN_X[3, 2] = float("nan")


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ((X[0], Y), "data: inputs must have shape (n, ...) with n at least 1, got (6,)."),
        ((X[:0], Y[:0]), "data: inputs must have shape (n, ...) with n at least 1, got (0, 6)."),
        ((X.to(torch.uint8), Y), "data: inputs must be floating point, got torch.uint8. Convert with .float()."),
        ((X, Y + 0.5), "data: labels must be integers, got torch.float32."),
        ((X, Y > 0), "data: labels must be integers, got torch.bool."),
        ((X, Y[:39]), "data: there are 40 inputs but labels has shape (39,)."),
        ((X, Y[:, None]), "data: there are 40 inputs but labels has shape (40, 1)."),
        ((NAN_X, Y), "data: inputs has NaN or infinite values."),
        ((X, Y - 2), "data: labels must be 0 or above, or -1 for a sample without a label, got -2."),
        ((X.long(), Y), "data: inputs must be floating point, got torch.int64."),
        ((X, torch.eye(3)[Y]), "data: there are 40 inputs but labels has shape (40, 3)."),
    ],
)
def test_data_that_cannot_be_used(train, words, says):
    with says(InputError):
        run(LDMNET, train=train)
    words = words.replace("data:", "validation:").replace(", or -1 for a sample without a label", "")
    with says(InputError):
        run(LDMNET, validation=train)


def test_a_data_set_with_labels_that_are_no_integers():
    with pytest.raises(InputError, match=re.escape("data: labels must be integers")):
        run(Method(), train=FloatLabels())


def test_a_label_beyond_the_models_outputs(says):
    with says(InputError):
        run(LDMNET, train=(X, Y + 1))


def test_no_layer_of_that_name(says):
    with says(InputError):
        run(LDMNET, network(hidden=(4,)), layer="conv5")


def test_dropout_without_a_layer_for_it(says):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    with says(InputError):
        run(METHODS["dropout"], model, layer="1")


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"checkpoint_every": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
    ],
)
def test_settings_out_of_range(changes, says):
    with says(InputError):
        settings(**changes)


@pytest.mark.parametrize("name", METHODS)
def test_bfloat16_trains_close_to_float32_and_keeps_single_precision_where_it_matters(name):
    single = run(METHODS[name], settings=settings(epochs=8))
    half = run(METHODS[name], settings=settings(epochs=8, precision="bfloat16"))
    assert not same(weights(single.model), weights(half.model))  # it did something
    assert half.train_loss == pytest.approx(single.train_loss, rel=0.1)
    assert all(w.dtype == torch.float32 for w in weights(half.model))
    if half.regularizer is not None:
        assert half.regularizer.target.dtype == torch.float32


def test_an_unknown_precision_is_refused(says):
    with says(InputError):
        TrainSettings(precision="half")


@pytest.mark.parametrize("part", ["validation", "test"])
def test_data_to_report_on_is_checked_before_training(part, says):
    x, y = data()
    seen = []
    for bad in ((x.byte(), y), (x, y + 5)):
        with says(InputError):
            fit(network(), (x, y), settings=settings(), on_epoch=seen.append, **{part: bad})
    assert seen == []


@pytest.mark.parametrize(("n", "batches"), [(33, [16, 17]), (17, [17]), (34, [16, 16, 2]), (3, [3])])
def test_a_last_batch_of_one_joins_the_one_before(n, batches):
    layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
    model, sizes = FeatureNet(layers, 8, 3), []
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])) if module.training else None)
    fit(model, data(n), settings=settings(epochs=1), progress=False)
    assert sizes == batches


# ---- the default strength, and ends that are of no use


def normalised():
    layers = [nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU()]
    model = FeatureNet(nn.Sequential(*layers), 8, 3)
    initialize(model, "he", 0)
    return model


@pytest.mark.parametrize("name", ["ldmnet", "control"])
@pytest.mark.parametrize(
    ("lr", "optimizer"),
    [(0.5, None), (0.01, None), (0.1, partial(torch.optim.AdamW, lr=0.02))],
    ids=["fast SGD", "SGD", "AdamW"],
)
def test_the_default_strength_needs_no_tuning_beside_batch_normalisation(name, lr, optimizer):
    train, chosen = data(120), settings(epochs=40, lr=lr, batch_size=20)
    options = {"train": train, "test": train, "settings": chosen, "optimizer": optimizer, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="the features shrank and the classes came together again")
        found = run(Method(name), normalised(), **options)
        plain = run(Method(), normalised(), **options)
    assert found.test_accuracy >= plain.test_accuracy - 0.05
    strengths = [update.strength for update in found.regularizer.log]
    assert max(strengths) == 0.3
    assert strengths[-1] == found.history[-1].strength > 0
    assert plain.history[-1].strength is None
    assert found.history[-1].penalty > 0


def scoring(weight, bias):
    """A network that is not trained in one epoch at a rate of 1e-9: its scores are what its head makes them."""
    model = linear_network()
    with torch.no_grad():
        model.head.weight.mul_(weight)
        model.head.bias.copy_(torch.tensor(bias))
    return model


@pytest.mark.parametrize(
    ("weight", "bias", "why"),
    [
        (0.0, [0.0, 0.0, 0.0], "the network gives every training sample the same scores"),
        (1e-3, [0.0, 9.0, 0.0], "the network predicts one class for all training samples"),
    ],
)
def test_a_bad_end_is_told(weight, bias, why):
    model = scoring(weight, bias)
    model.requires_grad_(False)
    model.features.bias.requires_grad_(True)
    known = r"\(loss [\d.]+, where guessing by the classes' shares has 1\.09\d*; [\d.]+ % right\)"
    words = rf"training ended badly: {why} {known}"
    with pytest.warns(BadEndWarning) as caught:
        run(Method(), model, settings=settings(epochs=1, lr=1e-9), progress=False)
    (told,) = (str(warning.message) for warning in caught)
    assert re.match(words + r"\. Train longer, or with another learning rate; the result is of no use\.$", told)
    assert caught[0].filename == __file__  # it points at the call of fit


def test_a_loss_above_chance_with_no_more_right_than_by_chance_is_a_bad_end():
    x, y = data(90)
    model = run(Method(), network(), train=(x, y), settings=settings(epochs=25), progress=False).model
    with pytest.warns(
        BadEndWarning, match=r"no better than guessing \(loss [\d.]+, where guessing .* has 1\.099; \d\.\d % right"
    ):
        run(Method(), model, train=(x, (y + 1) % 3), settings=settings(epochs=1, lr=1e-9), progress=False)


def test_relus_that_are_all_at_zero_are_a_bad_end():
    model = mlp(4, 2, (8,))
    with torch.no_grad():
        model.features[1].bias.fill_(-1e3)
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    with pytest.warns(BadEndWarning, match="the same scores"):
        fit(model, (x, y), settings=TrainSettings(epochs=1), progress=False)


@pytest.mark.parametrize("name", [*METHODS, "default"])
def test_a_healthy_end_is_not_told(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run({**METHODS, "default": Method("ldmnet")}[name], settings=settings(epochs=25), progress=False)


@pytest.mark.parametrize(("name", "swapped", "told"), [("ldmnet", 0.25, 1), ("none", 0.25, 0), ("ldmnet", 0.0, 0)])
def test_a_network_that_does_not_fit_its_training_samples_is_told_to_do_without(name, swapped, told):
    x, y = data(300)
    wrong = torch.rand(300, generator=generator(0, "wrong")) < swapped  # labels that only a larger network would learn
    y = torch.where(wrong, (y + 1) % 3, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = run(Method(name), train=(x, y), settings=settings(epochs=60, lr=0.02), progress=False).model
    words = [str(w.message) for w in caught if "does not overfit" in str(w.message)]
    assert len(words) == told
    right = 100 * float((sweep(model, x).argmax(1) == y).double().mean())
    assert all(f"the network has {right:.0f} % of its own training samples right" in word for word in words)


def test_samples_of_one_class_cannot_end_badly():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(Method(), train=(X, 0 * Y), settings=settings(epochs=2), progress=False)


def test_the_mean_over_processes_is_the_whole_batchs_loss_and_penalty():
    y = torch.tensor([0, 1, -1, 2, -1, -1, 1, 0, 2, -1])
    losses, pulls, whole = cloud(10, 1)[:, 0], cloud(10, 1, seed=1)[:, 0], torch.arange(10)
    run = SimpleNamespace(world=SimpleNamespace(size=2), y=y)
    found = []
    for index in (whole[:3], whole[3:]):
        labelled = losses[index][y[index] >= 0].mean()
        found.append(Run.of_all(run, whole, index, labelled, pulls[index].mean()))
    assert float(sum(loss for loss, _ in found) / 2) == pytest.approx(float(losses[y >= 0].mean()))
    assert float(sum(pull for _, pull in found) / 2) == pytest.approx(float(pulls.mean()))
    alone = SimpleNamespace(world=None, y=y)
    assert Run.of_all(alone, whole, whole, torch.tensor(3.0), None) == (torch.tensor(3.0), None)
    nothing = SimpleNamespace(world=run.world, y=torch.full((10,), -1))
    assert float(Run.of_all(nothing, whole, whole[:3], torch.tensor(3.0), None)[0]) == 0
