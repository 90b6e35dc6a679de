"""Numbers of every size: right within the tolerance, or refused in words; what is not solved never counts as solved."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from clouds import cloud
from ldmnet import ManifoldRegularizer, PointIntegralSystem, Status, knn, pcg, self_tuned_weights
from ldmnet.errors import InputError
from ldmnet.graph.groups import Groups
from ldmnet.pim import grouped, solve_grouped

N, D = 30, 3
TYPES = {torch.float32: (-36, 15, 2e-4), torch.float64: (-290, 140, 1e-9)}  # powers of ten, and the tolerance


def graph(n=N, seed=0, dtype=torch.float32):
    return self_tuned_weights(knn(cloud(n, D, seed).to(dtype), 8), 4)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), place=st.floats(0, 1), dtype=st.sampled_from(list(TYPES)))
def test_neighbours_and_weights_at_every_scale_are_those_of_the_reference(seed, place, dtype):
    low, high, tol = TYPES[dtype]
    points = (cloud(N, D, seed) * 10.0 ** (low + place * (high - low))).to(dtype)
    found = knn(points, 8)
    rows = reference.nearest(points.double().numpy() / float(points.abs().max()), 8)
    truth = np.array([[d for d, _ in row] for row in rows])
    scaled = found.distance.double().numpy() / float(points.abs().max())
    np.testing.assert_allclose(scaled, truth, rtol=tol, atol=0)
    W = self_tuned_weights(found, 4).to_dense().double().numpy()
    true_W = reference.weights(points.double().numpy() / float(points.abs().max()), k=8, sigma_neighbor=4)
    np.testing.assert_allclose(W, true_W, rtol=0, atol=10 * tol)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    place=st.floats(0, 1),
    power=st.floats(-9, 6),
    dtype=st.sampled_from(list(TYPES)),
    dense=st.booleans(),
)
def test_solutions_at_every_scale_and_coupling_are_those_of_the_reference(seed, place, power, dtype, dense):
    low, high, _ = TYPES[dtype]
    c, W = 10.0**power, graph(seed=seed, dtype=dtype)
    v = (cloud(N, 2, seed + 1) * 10.0 ** (low + place * (high - low))).to(dtype)
    before, grouped.DENSE_UP_TO = grouped.DENSE_UP_TO, grouped.DENSE_UP_TO if dense else 0
    try:
        found = solve_grouped(PointIntegralSystem(W, c, "lumped"), v, Groups(torch.zeros(N)), max_steps=3000)
    finally:
        grouped.DENSE_UP_TO = before
    size = float(v.abs().max())
    truth = reference.solve(W.to_dense().double().numpy(), v.double().numpy() / size, c, "lumped")
    assert found.status in (Status.CONVERGED, Status.ROUNDING)
    assert found.status is Status.CONVERGED or c < 1e-8
    assert bool(found.residual.isfinite().all())
    apart = np.abs(found.value.double().numpy() / size - truth).max()
    assert apart < 1e-3


@pytest.mark.parametrize("c", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("dense", [True, False])
def test_a_small_coupling_in_float32_is_solved_in_float64(c, dense, monkeypatch):
    monkeypatch.setattr(grouped, "DENSE_UP_TO", grouped.DENSE_UP_TO if dense else 0)
    W, v = graph(), cloud(N, 4, 1).float()
    kept = v.clone()
    found = solve_grouped(PointIntegralSystem(W, c, "lumped"), v, Groups(torch.zeros(N)), max_steps=2000)
    truth = reference.solve(W.to_dense().double().numpy(), v.double().numpy(), c, "lumped")
    assert found.status is Status.CONVERGED
    assert found.value.dtype == found.residual.dtype == torch.float32
    assert torch.equal(v, kept)
    np.testing.assert_allclose(found.value.numpy(), truth, rtol=0, atol=1e-4)
    again = solve_grouped(
        PointIntegralSystem(W, c, "lumped"), v, Groups(torch.zeros(N)), max_steps=2000, overwrite=True
    )
    assert again.value is v
    assert torch.equal(again.value, found.value)


def test_of_two_solutions_the_one_with_the_smaller_residual_is_kept(monkeypatch):
    W, v = graph(dtype=torch.float64), cloud(N, 4, 1)
    system = PointIntegralSystem(W, 1e-3, "lumped")
    found = solve_grouped(system, v, Groups(torch.zeros(N)), tol=1e-17, max_steps=2)  # no solution is so exact
    assert found.status is Status.ROUNDING
    assert float(found.residual.max()) < 1e-10 < float(pcg(system, v, tol=1e-17, max_steps=2).residual.max())
    assert "max_steps" not in found.status.value  # more steps would not help


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, 0.0], ids=["NaN", "infinity", "a row of zeros"])
def test_weights_that_cannot_be_solved_with_are_refused(wrong):
    W = graph().to_dense()
    W[3] = W[:, 3] = wrong
    for form in (W, W.to_sparse_csr()):
        with pytest.raises(
            InputError,
            match=r"W sums to (nan|inf|0\.0), as do \d+ other rows that cannot be solved for: sums must be above",
        ):
            PointIntegralSystem(form, 0.5)


@pytest.mark.parametrize("c", [1e-13, 1e13])
def test_a_coupling_that_float64_cannot_serve_is_refused(c):
    words = "float64 cannot tell what it does beyond 1e-12 to 1e"
    with pytest.raises(InputError, match=words):
        PointIntegralSystem(graph(), c)


@pytest.mark.parametrize("size", [1e-30, 1e-19, 1e19, 1e30])
def test_conjugate_gradients_in_float32_at_every_scale(size):
    W, v = graph(), cloud(N, 3, 1).float()
    system = PointIntegralSystem(W, 0.2, "lumped")
    found, plain = pcg(system, v * size, max_steps=200), pcg(system, v, max_steps=200)
    assert found.status is plain.status is Status.CONVERGED
    assert found.steps > 3
    torch.testing.assert_close(found.value / size, plain.value, rtol=1e-4, atol=1e-5)
    mixed = torch.stack([v[:, 0], v[:, 1] * size], 1)  # each column has its own scale
    found = pcg(system, mixed, max_steps=200)
    torch.testing.assert_close(found.value[:, 1] / size, plain.value[:, 1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.value[:, 0], plain.value[:, 0], rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_is_not_solved(monkeypatch):
    system = PointIntegralSystem(graph(), 0.2, "lumped")
    matrix, S = system.scaled()
    matrix.values()[5] = torch.nan
    monkeypatch.setattr(system, "scaled", lambda: (matrix, S))
    found = pcg(system, cloud(N, 2, 1).float())
    assert found.status is not Status.CONVERGED


@pytest.mark.parametrize("size", [1e-30, 1e-21, 1e-15, 1e15])
def test_the_regulariser_at_every_scale_gives_the_scaled_targets(size):
    x, f, y = cloud(40, 4).float(), cloud(40, 3, 1).float(), torch.arange(40) % 2
    options = {"mu": 1.0, "lambda_tilde": 2.0, "n_neighbors": 8, "sigma_neighbor": 4}
    plain, scaled = ManifoldRegularizer(x, y, **options), ManifoldRegularizer(x * size, y, **options)
    for move in (1.0, 1.1):
        plain.step(f * move)
        assert scaled.step(f * move * size).status == "CONVERGED"
    torch.testing.assert_close(scaled.target / size, plain.target, rtol=1e-4, atol=1e-5)


def test_inputs_that_do_not_fit_the_features_type_are_refused():
    regularizer = ManifoldRegularizer(cloud(40, 4) * 1e19, mu=1.0, lambda_tilde=1.0)
    with pytest.raises(InputError, match=r"^inputs has values up to \d\.\de\+19: too large for distances in torch"):
        regularizer.step(cloud(40, 3).float())
