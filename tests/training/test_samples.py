"""What `fit` takes: loaders and labels of every kind, weights of samples and classes, samples without a label."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from clouds import cloud
from ldmnet import IndexedDataset, Method, TrainSettings, fit
from ldmnet.errors import InputError, StateError
from ldmnet.networks import initialize, mlp
from ldmnet.training.samples import loss_weights

N = 40
Y = torch.arange(N) % 3
X = cloud(N, 6, dtype=torch.float32) + 2 * torch.eye(6)[Y]
LDMNET = Method("ldmnet", mu=0.1, lambda_tilde=0.5, n_neighbors=6, sigma_neighbor=4)


def network():
    model = mlp(6, 3, (16, 8))
    initialize(model, "he", 0)
    return model


def trained(data=(X, Y), method=None, batch_size=16, epochs=3, **options):
    settings = TrainSettings(epochs=epochs, lr=0.05, batch_size=batch_size, lr_drop_after=2)
    return fit(network(), data, method=method, settings=settings, progress=False, **options)


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


def after_one_step(loss):
    """The weights after one step of SGD on all samples."""
    model = network()
    gradient = torch.autograd.grad(loss(model(X)), list(model.parameters()))
    return [p.detach() - 0.05 * g for p, g in zip(model.parameters(), gradient, strict=True)]


def assert_one_step(loss, **options):
    found = trained(batch_size=N, epochs=1, **options)
    for ours, wanted in zip(found.model.parameters(), after_one_step(loss), strict=True):
        torch.testing.assert_close(ours.detach(), wanted, rtol=1e-5, atol=1e-7)
    return found


# ---- weights


def test_sample_weights_are_scaled_to_a_mean_of_one_and_weigh_the_loss():
    weights = torch.linspace(0, 7, N)

    def loss(logits):
        return (weights / weights.mean() * F.cross_entropy(logits, Y, reduction="none")).mean()

    found = assert_one_step(loss, sample_weight=weights)
    assert found.history[0].loss == pytest.approx(loss(network()(X)).item(), rel=1e-5)
    assert_one_step(loss, sample_weight=(100 * weights).tolist())


def test_weights_do_not_touch_the_penalty():
    weights = torch.where(torch.arange(N) < 20, 0.0, 1.0)
    plain, weighted = (trained(method=LDMNET, epochs=1, batch_size=N, sample_weight=w) for w in (None, weights))
    assert weighted.history[0].penalty == plain.history[0].penalty
    assert not same(plain, weighted)


@pytest.mark.parametrize("weights", [np.full(N, 0.3), torch.ones(N)])
def test_equal_weights_change_no_bit(weights):
    assert same(trained(method=LDMNET, sample_weight=weights), trained(method=LDMNET))
    balanced = X[:39], Y[:39]
    assert same(trained(balanced, class_weight="balanced"), trained(balanced))


def test_class_weights():
    y = torch.tensor([0] * 6 + [1] * 3 + [2])
    torch.testing.assert_close(loss_weights(y, class_weight="balanced"), 10 / (3 * torch.tensor([6.0, 3, 1]))[y])
    found = loss_weights(y, torch.arange(10.0), torch.tensor([1.0, 2.0, 0.0, 9.0]))
    wanted = torch.arange(10.0) * torch.tensor([1.0, 2.0, 0.0])[y]
    torch.testing.assert_close(found, wanted / wanted.mean())


def test_a_checkpoint_of_other_weights_is_refused(tmp_path):
    trained(sample_weight=torch.arange(N), checkpoint=tmp_path / "run.pt")
    for other in (None, torch.arange(N) + 1):
        with pytest.raises(StateError, match="was written for other training data"):
            trained(sample_weight=other, checkpoint=tmp_path / "run.pt")


@pytest.mark.parametrize(
    "options",
    [
        {"sample_weight": torch.ones(3)},
        {"sample_weight": ["a"] * N},
        {"class_weight": "even"},
        {"class_weight": [1.0, 2.0]},
        *({"sample_weight": bad} for bad in (torch.arange(N) - 1, torch.zeros(N), torch.full((N,), torch.nan))),
    ],
)
def test_weights_that_do_not_do(options, says):
    with says(InputError):
        trained(**options)


# ---- samples without a label


def test_unlabelled_samples_are_left_out_of_the_loss_and_the_accuracy():
    y = torch.where(torch.arange(N) % 4 == 0, -1, Y)

    def loss(logits):
        return F.cross_entropy(logits[y >= 0], y[y >= 0])

    found = assert_one_step(loss, data=(X, y))
    assert found.history[0].loss == pytest.approx(loss(network()(X)).item(), rel=1e-5)
    right = network()(X).argmax(1)[y >= 0] == y[y >= 0]
    assert found.history[0].accuracy == pytest.approx(float(right.double().mean()))
    assert found.train_loss == pytest.approx(loss(found.model(X)).item(), rel=1e-5)


def test_weights_of_the_labelled_alone_are_scaled():
    y = torch.where(torch.arange(N) % 4 == 0, -1, Y)
    weights = torch.arange(N) + 1.0

    def loss(logits):
        w = weights[y >= 0] / weights[y >= 0].mean()
        return (w * F.cross_entropy(logits[y >= 0], y[y >= 0], reduction="none")).mean()

    assert_one_step(loss, data=(X, y), sample_weight=weights)


@pytest.mark.parametrize("features", ["sweep", "running"])
def test_a_batch_without_a_label_trains_by_the_penalty_alone(features):
    y = torch.full((N,), -1)
    y[:3] = torch.arange(3)
    method = replace(LDMNET, features=features)
    for weights in (None, torch.arange(N) + 1.0):
        found = trained((X, y), method, batch_size=4, epochs=5, sample_weight=weights)
        assert all(torch.isfinite(p).all() for p in found.model.parameters())
        assert found.history[-1].loss < found.history[0].loss
        pulled = found.regularizer.target.isfinite().all(1)
        assert torch.equal(pulled, y >= 0)


def test_some_label_is_needed_and_reports_need_them_all(says):
    with says(InputError):
        trained((X, torch.full((N,), -1)))
    with says(InputError):
        trained(test=(X, Y - 1))


# ---- kinds of data


class Pictures(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return X[i].numpy(), Y[i].item(), f"file{i}.png"


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(TensorDataset(X, Y), batch_size=7, shuffle=True),
        DataLoader(IndexedDataset(TensorDataset(X, Y))),
        IndexedDataset(TensorDataset(X, Y)),
        Subset(IndexedDataset(TensorDataset(X.flip(0), Y.flip(0))), range(len(X) - 1, -1, -1)),
        [(i, X[i], Y[i]) for i in range(N)],
        Pictures(),
        (X.numpy(), Y.numpy().astype(np.uint16)),
        (X.numpy()[::-1][::-1], Y.double()),
        (X.tolist(), Y.tolist()),
    ],
    ids=[
        "loader",
        "indexed loader",
        "indexed",
        "part of indexed",
        "triples",
        "more",
        "arrays",
        "views and floats",
        "lists",
    ],
)
def test_the_same_samples_in_other_clothes(data):
    if isinstance(data, list):
        data = DataLoader(data)
    assert same(trained(data), trained())


def test_tables_of_pandas():
    pandas = pytest.importorskip("pandas")
    index = np.arange(N)[::-1] + 7
    table = pandas.DataFrame(X.numpy(), index=index), pandas.Series(Y.numpy(), index=index)
    assert same(trained(table), trained())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


WORDS = (
    "data: labels must be whole numbers from 0, got {}. Number the classes, as with "
    "numpy.unique(labels, return_inverse=True)[1], or use ldmnet.integrations.sklearn.LDMClassifier, which takes "
    "labels of any kind."
)


@pytest.mark.parametrize(
    "data",
    [
        (X, ["cat"] * N),
        (X, np.array(["cat"] * N, object)),
        DataLoader([(x, "cat") for x in X]),
        X,
        (X, Y, Y),
        Stream(),
        DataLoader(list(X)),
        TensorDataset(X),
        TensorDataset(X[:0], Y[:0]),
        DataLoader([(torch.zeros(2, 3), 0), (torch.zeros(2, 4), 1)]),
        (["a"] * N, Y),
    ],
)
def test_data_that_does_not_do_is_refused_in_words(data, says):
    with says(InputError):
        trained(data)


def test_a_device_is_where_the_model_goes():
    assert same(trained(device="cpu"), trained())
    for device in ("nowhere", "cuda:99"):
        with pytest.raises(InputError, match=f"^the device {device} cannot be used: "):
            trained(device=device)
