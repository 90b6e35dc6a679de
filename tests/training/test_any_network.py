"""`fit` takes any module and ordinary data: what networks do that are not ours."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from ldmnet import IndexedDataset, Method, TrainSettings, fit, sweep
from ldmnet.errors import DivergenceError, InputError
from ldmnet.networks import mlp
from ldmnet.training.checkpoint import load_weights, save_weights

Y = torch.arange(60) % 3
X = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(8)[Y]
IMAGES = X[:, None, :, None].expand(60, 1, 8, 8).contiguous()
SETTINGS = TrainSettings(epochs=2, lr=0.02, batch_size=20)
LDMNET = Method("ldmnet", mu=0.05, lambda_tilde=0.05)
DEFAULT = Method("ldmnet")


def net(**options):
    torch.manual_seed(0)
    return mlp(8, 3, (6,), **options)


class Named(nn.Module):
    """What is before the feature layer, a feature layer and a head."""

    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(width, 6), nn.ReLU())
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.features(self.before(x)))


class Attention(Named):
    def __init__(self):
        super().__init__(8)
        self.qkv = nn.Linear(1, 6)

    def before(self, x):
        q, k, v = self.qkv(x[..., None]).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0].mean(2)


class Viewed(Named):
    def __init__(self):
        super().__init__(4 * 8 * 8)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)

    def before(self, x):
        h = self.conv(x)
        return h.view(h.size(0), -1)


class Flattened(Viewed):
    def before(self, x):
        return self.conv(x).flatten(1)


class WithExtraState(Named):
    def __init__(self):
        super().__init__(8)
        self.counts = {"calls": 0}

    def before(self, x):
        return x

    def get_extra_state(self):
        return self.counts

    def set_extra_state(self, state):
        self.counts = dict(state)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(8, 8)
        self.again = nn.Linear(8, 8)
        self.again.weight = self.features.weight
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.again(self.features(x)))


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.LazyLinear(6), nn.ReLU())
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.features(x))


class WithMore(Dataset):
    """Samples of three things, as many a data set has them."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return X[i], int(Y[i]), f"image {i}"


def seeded(kind):
    torch.manual_seed(0)
    return kind()


@pytest.mark.slow
def test_the_default_strength_for_a_network_with_attention():
    settings = TrainSettings(epochs=40, lr=0.02, batch_size=20)
    found = fit(seeded(Attention), (X, Y), method=DEFAULT, settings=settings, progress=False)
    assert 0 < found.regularizer.mu < float("inf")


def test_a_network_that_diverges_gets_its_last_good_weights_back():
    model, weights = net(), []
    settings = TrainSettings(epochs=60, lr=0.05, lr_decay=10, batch_size=20)
    with pytest.raises(DivergenceError, match=r"[Ll]ower the learning rate"):
        fit(model, (X, Y), method=LDMNET, settings=settings,
            on_epoch=lambda _: weights.append(model.head.weight.detach().clone()))  # fmt: skip
    assert len(weights) > 1
    assert torch.equal(model.head.weight, weights[-1])


def test_features_that_are_not_trained_are_never_pulled_apart():
    model = net()
    model.features.requires_grad_(False)
    before = model.features[1].weight.clone()
    found = fit(model, (X, Y), method=DEFAULT, settings=SETTINGS, progress=False)
    assert torch.equal(model.features[1].weight, before)
    assert found.history[-1].loss < found.history[0].loss


@pytest.mark.parametrize("method", [Method(), LDMNET], ids=["none", "ldmnet"])
def test_a_network_that_views_its_activations_keeps_the_usual_layout(method):
    viewed, flattened = seeded(Viewed), seeded(Flattened)
    for model in (viewed, flattened):
        fit(model, (IMAGES, Y), method=method, settings=SETTINGS, progress=False)
        assert model.conv.weight.is_contiguous()
        assert model(IMAGES).shape == (60, 3)
    torch.testing.assert_close(viewed.head.weight, flattened.head.weight)  # but for the order of sums
    flattened.conv(IMAGES).view(60, -1)  # as it did before


def test_a_model_has_its_layout_back_after_divergence():
    model = seeded(Flattened)
    with pytest.raises(DivergenceError):
        fit(model, (IMAGES, Y), settings=TrainSettings(epochs=40, lr=1.0, lr_decay=100, batch_size=20), progress=False)
    model.conv(IMAGES).view(60, -1)


@pytest.mark.parametrize("method", [Method(), LDMNET, DEFAULT], ids=["none", "ldmnet", "default"])
def test_weights_that_wait_for_the_first_sample(method):
    found = fit(Lazy(), (X, Y), method=method, settings=SETTINGS, progress=False)
    assert found.model.features[0].weight.shape == (6, 8)
    assert found.history[1].loss < found.history[0].loss


def test_a_state_that_is_no_tensor_is_kept_and_put_back():
    model = seeded(WithExtraState)
    fit(model, (X, Y), settings=SETTINGS, progress=False)
    model.counts["calls"] = 7
    with pytest.raises(DivergenceError):
        fit(model, (X, Y), settings=TrainSettings(epochs=40, lr=1.0, lr_decay=100, batch_size=20), progress=False)
    assert model.counts == {"calls": 7}


def test_weights_that_two_layers_share_are_saved(tmp_path):
    model, other = seeded(Tied), Tied()
    fit(model, (X, Y), settings=SETTINGS, progress=False)
    save_weights(model, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(other(X), model(X))
    assert other.again.weight is other.features.weight


def test_a_model_without_weights_is_refused():
    with pytest.raises(InputError, match="the model has no weights"):
        fit(nn.Sequential(nn.ReLU()), (X, Y), layer="0")


def test_numbers_of_numpy_make_checkpoints_that_can_be_read(tmp_path):
    mu = np.logspace(-3, -2, 2)[0]
    method = Method("ldmnet", mu=mu, lambda_tilde=5 * mu, n_neighbors=np.int64(15))
    settings = TrainSettings(epochs=np.int64(2), lr=np.float32(0.02), batch_size=20, checkpoint_every=1)
    assert type(method.mu) is float
    assert type(settings.epochs) is int
    results = [
        fit(net(), (X, Y), method=method, settings=settings, checkpoint=tmp_path / "a.pt", progress=False)
        for _ in range(2)
    ]
    assert results[0].history == results[1].history


@pytest.mark.parametrize(("x", "y"), [
    (X.double(), Y), (X.double().numpy(), Y.numpy()), (X.half(), Y), (X, Y.to(torch.uint8)), (X, Y.to(torch.uint16)),
], ids=["float64", "NumPy", "float16", "uint8", "uint16"])  # fmt: skip
def test_inputs_and_labels_of_other_types(x, y):
    expected = fit(net(), (torch.as_tensor(x).float(), Y), method=LDMNET, settings=SETTINGS, progress=False)
    found = fit(net(), (x, y), method=LDMNET, settings=SETTINGS, validation=(x, y), test=(x, y), progress=False)
    assert [e.loss for e in found.history] == [e.loss for e in expected.history]


def test_samples_that_hold_more_than_two_things():
    expected = fit(net(), (X, Y), settings=SETTINGS, progress=False)
    assert fit(net(), WithMore(), settings=SETTINGS, progress=False).history == expected.history
    index, x, y, name = IndexedDataset(WithMore())[5]
    assert (index, y, name) == (5, int(Y[5]), "image 5")
    assert torch.equal(x, X[5])


def test_a_sample_that_is_no_tuple_is_left_whole():
    index, sample = IndexedDataset([{"x": 1, "y": 2}])[0]
    assert (index, sample) == (0, {"x": 1, "y": 2})


def test_an_epoch_in_half_precision_is_counted_in_full():
    x, y = X.repeat_interleave(100, 0), Y.repeat_interleave(100)
    model = net().bfloat16()
    before = [p.detach().clone() for p in model.parameters()]
    settings = TrainSettings(epochs=1, lr=1e-30, batch_size=500)  # the weights stay
    found = fit(model, (x, y), settings=settings, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with torch.no_grad():
        logits = model(X.bfloat16()).float()
    assert found.history[0].accuracy == pytest.approx(float((logits.argmax(1) == Y).double().mean()), abs=1e-6)
    assert found.history[0].loss == pytest.approx(float(F.cross_entropy(logits, Y)), rel=1e-3)


def test_a_penalty_under_the_name_none_is_refused(says):
    with says(InputError):
        Method("none", mu=0.01, lambda_tilde=0.05)


@pytest.mark.slow
def test_a_compiled_network_trains_as_it_does_uncompiled():
    plain, compiled = net(), torch.compile(net(), backend="eager")
    for model in (plain, compiled):
        model(X[:20])  # compiles: hooks that are added later do not run
        fit(model, (X, Y), method=DEFAULT, settings=SETTINGS, progress=False)
    features = sweep(compiled, X, layer="features")
    assert torch.equal(features, sweep(plain, X, layer="features"))
    assert not torch.equal(features, sweep(net(), X, layer="features"))
