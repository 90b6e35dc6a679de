import pytest
import torch

import ldmnet.pim.chebyshev as iteration
from clouds import cloud
from ldmnet import PointIntegralSystem, Status, knn, pcg, self_tuned_weights
from ldmnet.graph.groups import Groups
from ldmnet.pim import grouped
from ldmnet.pim import solve as solving
from ldmnet.pim.chebyshev import COUPLING_FROM, chebyshev, chebyshev_pays
from ldmnet.pim.grouped import solve_grouped
from reference import solve


def system(c, n=70, dtype=torch.float64, diagonal=1.0):
    W = self_tuned_weights(knn(cloud(n, 4, 0, dtype), 10), 5)
    if diagonal != 1:  # what a caller's own W may have
        W = (W.to_dense().fill_diagonal_(diagonal)).to_sparse_csr()
    return PointIntegralSystem(W, c, "lumped")


def columns(n=70, m=9, dtype=torch.float64):
    return torch.randn(n, m, generator=torch.Generator().manual_seed(1), dtype=dtype)


def norm(A, r):
    """(sum_i r_i^2 / D_i)^(1/2), by column: the norm that the bound is in."""
    return (r.square() / A.D[:, None]).sum(0).sqrt()


def true_residual(A, u, v):
    """|c D v - A u| over |c D v| of the whole and of the centred columns, the larger, by column."""
    b = A.coupling * A.D[:, None] * v
    mean = (A.D @ v) / A.D.sum()
    centred = A.coupling * A.D[:, None] * (v - mean)
    return norm(A, b - A.to_dense() @ u) / torch.minimum(norm(A, b), norm(A, centred))


@pytest.mark.parametrize("diagonal", [1.0, 0.0, 7.0])
@pytest.mark.parametrize("c", [0.5, 4.0, 10.0, 1e3, 1e8])
@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-12])
def test_it_solves_the_system_to_the_tolerance(c, tol, diagonal):
    A, v = system(c, diagonal=diagonal), columns()
    found = chebyshev(A, v, tol=tol, max_steps=500)
    assert found.status is Status.CONVERGED
    residual = true_residual(A, found.value, v)
    assert float(residual.max()) <= tol * (1 + 1e-3)
    exact = torch.linalg.solve(A.to_dense(), A.rhs(v))
    error = (A.D @ (found.value - exact).square()).sqrt()
    assert (error <= tol * (A.D @ v.square()).sqrt() * (1 + 1e-3)).all()


def test_it_agrees_with_the_reference():
    A, v = system(6.0), columns()
    expected = solve(A.W.to_dense().numpy(), v.numpy(), 6.0, "lumped")
    found = chebyshev(A, v, tol=1e-13, max_steps=200).value
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-10, atol=1e-11)


def test_the_reported_residual_is_never_below_the_true_one():
    A, v = system(5.0), columns() + 3
    for steps in range(6):
        found = chebyshev(A, v, tol=1e-14, max_steps=steps)
        assert found.status is Status.STEP_LIMIT
        assert found.steps == steps
        assert (true_residual(A, found.value, v) <= found.residual).all()


def test_the_bound_is_chebyshevs_and_is_met_at_the_ends_of_the_spectrum():
    two = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64).to_sparse_csr()  # P has eigenvalues 1 and -1
    A, v = PointIntegralSystem(two, 9.0, "lumped"), torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    for steps, polynomial in enumerate([10, 199, 3970]):  # T_1, T_2, T_3 at 1 + c = 10
        found = chebyshev(A, v, tol=1e-14, max_steps=steps)
        torch.testing.assert_close(found.residual, torch.full((1,), 1 / polynomial, dtype=torch.float64))
        torch.testing.assert_close(true_residual(A, found.value, v), found.residual)


def test_no_more_products_than_the_tolerance_needs():
    A, v = system(10.0), columns()
    assert [chebyshev(A, v, tol=tol, max_steps=50).steps for tol in (0.1, 1 / 241, 1e-3, 1e-5)] == [0, 1, 2, 3]


def test_constants_and_zeros_stay_and_a_large_mean_costs_no_digits():
    A = system(8.0, dtype=torch.float32)
    v = columns(m=4, dtype=torch.float32)
    v[:, 0], v[:, 1] = 7.0, 0.0
    found = chebyshev(A, v, tol=1e-5, max_steps=50)
    assert found.status is Status.CONVERGED
    torch.testing.assert_close(found.value[:, :2], v[:, :2])
    shifted = chebyshev(A, v + 1000, tol=1e-5, max_steps=50)
    torch.testing.assert_close(shifted.value - 1000, found.value, rtol=0, atol=3e-4)  # of float32 at 1000


def test_columns_in_chunks_are_the_same(monkeypatch):
    A, v = system(8.0), columns(m=9)
    whole = chebyshev(A, v, tol=1e-9, max_steps=50)
    monkeypatch.setattr(iteration, "CHUNK_BYTES", 1)
    monkeypatch.setattr(solving, "LEAST_CHUNK", 2)
    torch.testing.assert_close(chebyshev(A, v, tol=1e-9, max_steps=50).value, whole.value, rtol=0, atol=1e-8)


def test_where_it_is_taken(monkeypatch):
    assert chebyshev_pays(system(COUPLING_FROM), 1e-5)
    assert not chebyshev_pays(system(COUPLING_FROM / 2), 1e-5)
    assert not chebyshev_pays(system(COUPLING_FROM), 1e-15)
    assert not chebyshev_pays(PointIntegralSystem(system(5.0).W, 5.0, "consistent"), 1e-5)
    taken = []
    monkeypatch.setattr(grouped, "DENSE_UP_TO", 0)
    monkeypatch.setattr(grouped, "chebyshev", lambda *a, **k: taken.append(1) or chebyshev(*a, **k))
    A, v = system(10.0), columns()
    found = solve_grouped(A, v, Groups(torch.zeros(70, dtype=torch.int64)), tol=1e-10)
    assert taken == [1]
    torch.testing.assert_close(found.value, pcg(A, v, tol=1e-12).value, rtol=0, atol=1e-8)
