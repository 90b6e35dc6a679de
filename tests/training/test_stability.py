import pytest
import torch
from torch import nn

from clouds import cloud
from ldmnet import ManifoldRegularizer
from ldmnet.networks import FeatureNet, initialize, mlp, set_dropout
from ldmnet.training.stability import feature_curvature, largest_stable_mu


def jacobian(model, x, layer):
    """Features (b d_feat) by weights of the whole model, one row at a time."""
    weights = list(model.parameters())
    f = model.get_submodule(layer)(x).flatten()
    rows = []
    for value in f:
        grads = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    torch.zeros_like(w).flatten() if g is None else g.flatten()
                    for g, w in zip(grads, weights, strict=True)
                ]
            )
        )
    return torch.stack(rows)


def tiny(seed=0):
    model = mlp(4, 3, (6, 5)).double()
    initialize(model, "he", seed)
    return model


@pytest.mark.parametrize("seed", range(3))
def test_feature_curvature_is_the_largest_eigenvalue_of_jtj(seed):
    model, x = tiny(seed), cloud(7, 4, seed=seed)
    J = jacobian(model, x, "features")
    largest = float(torch.linalg.eigvalsh(J.T @ J)[-1]) / len(x)
    assert feature_curvature(model, x, "features", rounds=300) == pytest.approx(largest, rel=1e-6)
    estimate = feature_curvature(model, x, "features")
    assert 0.7 * largest < estimate <= largest * (1 + 1e-9)  # power iteration comes from below


def test_feature_curvature_leaves_the_model_as_it_was():
    model, x = tiny(), cloud(7, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    kept = torch.get_rng_state()
    feature_curvature(model, x, "features")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert [m.training for m in model.modules()] == modes
    assert not model.features._forward_hooks
    assert torch.equal(torch.get_rng_state(), kept)


def test_feature_curvature_does_not_touch_running_statistics():
    features = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU())
    model = FeatureNet(features, 5, 3).train()
    feature_curvature(model, cloud(7, 4, dtype=torch.float32), "features")
    assert int(model.features[1].num_batches_tracked) == 0
    assert torch.equal(model.features[1].running_mean, torch.zeros(5))


def test_feature_curvature_works_where_gradients_are_off_and_with_dropout():
    model = tiny()
    set_dropout(model, 0.5)
    with torch.no_grad():
        assert feature_curvature(model, cloud(7, 4), "features") > 0


def linear(h, d_feat=3):
    features = nn.Linear(h.shape[1], d_feat, bias=False).double()
    model = FeatureNet(features, d_feat, 2).double()
    initialize(model, "xavier", 0)
    return model


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_on_a_linear_layer_the_largest_mu_is_that_of_the_inputs_norm(momentum):
    h = cloud(1, 8, seed=1)
    curvature = feature_curvature(linear(h), h, "features")
    expected = 2 * (1 + momentum) / (0.05 * float(h.square().sum()))
    assert largest_stable_mu(curvature, 0.05, momentum) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("share", "stable"), [(0.95, True), (1.05, False)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_follows_the_penalty_exactly_below_the_largest_mu(momentum, share, stable):
    x, lr = cloud(5, 4, seed=2), 0.03
    model = linear(x)
    mu = share * largest_stable_mu(feature_curvature(model, x, "features", rounds=500), lr, momentum)
    regularizer = ManifoldRegularizer(x, mu=mu, lambda_tilde=0.0)
    regularizer.step(torch.zeros(5, 3, dtype=torch.float64))
    optimizer = torch.optim.SGD(model.features.parameters(), lr=lr, momentum=momentum)
    first = None
    for _ in range(600):
        optimizer.zero_grad()
        penalty = regularizer.penalty(model.features(x), torch.arange(5))
        first = penalty.item() if first is None else first
        penalty.backward()
        optimizer.step()
    assert (penalty.item() < first) is stable


def test_a_network_without_curvature_bears_any_mu():
    assert largest_stable_mu(0.0, 0.1, 0.9) > 1e20
