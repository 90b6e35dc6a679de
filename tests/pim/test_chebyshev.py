import pytest
import torch

from clouds import cloud
from ldmnet import PointIntegralSystem, Status, knn, pcg, self_tuned_weights
from ldmnet.graph.groups import Groups
from ldmnet.pim import grouped
from ldmnet.pim import solve as solving
from ldmnet.pim.chebyshev import COUPLING_FROM, chebyshev, chebyshev_pays
from ldmnet.pim.grouped import solve_grouped
from reference import solve


def system(c, n=70, dtype=torch.float64, **more):
    W = self_tuned_weights(knn(cloud(n, 4, 0, dtype), 10), 5, **more)
    return PointIntegralSystem(W, c, "lumped")


def columns(n=70, m=9, dtype=torch.float64):
    return torch.randn(n, m, generator=torch.Generator().manual_seed(1), dtype=dtype)


def true_residual(A, u, v):
    """|c D v - A u| over |c D v| of the whole and of the centred columns, the larger, by column."""
    b = A.coupling * A.D[:, None] * v
    centred = A.coupling * A.D[:, None] * (v - v.mean(0))
    error = torch.linalg.vector_norm(b - A.to_dense() @ u, dim=0)
    sizes = torch.minimum(torch.linalg.vector_norm(b, dim=0), torch.linalg.vector_norm(centred, dim=0))
    return error / sizes


@pytest.mark.parametrize("more", [{}, {"self_weight": 0.0}, {"symmetrize": "mean"}])
@pytest.mark.parametrize("c", [0.5, 4.0, 10.0, 1e3, 1e8])
@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-12])
def test_it_solves_the_system_to_the_tolerance(c, tol, more):
    A, v = system(c, **more), columns()
    found = chebyshev(A, v, tol=tol, max_steps=500)
    assert found.status is Status.CONVERGED
    residual = true_residual(A, found.value, v)
    assert float(residual.max()) <= tol * (1 + 1e-3)
    assert (residual <= true_residual(A, v, v) * (1 + 1e-6)).all()
    torch.testing.assert_close(found.value, torch.linalg.solve(A.to_dense(), A.rhs(v)), rtol=0, atol=50 * tol)


def test_it_agrees_with_the_reference():
    A, v = system(6.0), columns()
    expected = solve(A.W.to_dense().numpy(), v.numpy(), 6.0, "lumped")
    found = chebyshev(A, v, tol=1e-13, max_steps=200).value
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-10, atol=1e-11)


def test_the_reported_residual_is_never_below_the_true_one():
    A, v = system(5.0), columns() + 3
    for steps in range(1, 6):
        found = chebyshev(A, v, tol=1e-14, max_steps=steps)
        assert found.status is Status.STEP_LIMIT
        assert found.steps == steps
        b = A.rhs(v)
        true = torch.linalg.vector_norm(b - A.matvec(found.value), dim=0) / torch.linalg.vector_norm(b, dim=0)
        assert (true <= found.residual).all()


def test_each_step_divides_the_residual_as_the_bound_says():
    A, v = system(9.0), columns(m=3)
    one, two = (chebyshev(A, v, tol=1e-14, max_steps=steps).residual for steps in (1, 2))
    torch.testing.assert_close(one / two, torch.full((3,), (2 * 10**2 - 1) / 10, dtype=torch.float64))


def test_constants_and_zeros_stay_and_a_large_mean_costs_no_digits():
    A = system(8.0, dtype=torch.float32)
    v = columns(m=4, dtype=torch.float32)
    v[:, 0], v[:, 1] = 7.0, 0.0
    found = chebyshev(A, v)
    assert found.status is Status.CONVERGED
    torch.testing.assert_close(found.value[:, :2], v[:, :2])
    shifted = chebyshev(A, v + 1000)
    torch.testing.assert_close(shifted.value - 1000, found.value, rtol=0, atol=3e-4)  # of float32 at 1000


def test_columns_in_chunks_are_the_same(monkeypatch):
    A, v = system(8.0), columns(m=9)
    whole = chebyshev(A, v, tol=1e-9)
    monkeypatch.setattr(solving, "CHUNK_BYTES", 1)
    monkeypatch.setattr(solving, "LEAST_CHUNK", 2)
    torch.testing.assert_close(chebyshev(A, v, tol=1e-9).value, whole.value, rtol=0, atol=1e-8)


def test_where_it_is_taken(monkeypatch):
    assert chebyshev_pays(system(COUPLING_FROM), 1e-5)
    assert not chebyshev_pays(system(COUPLING_FROM - 0.1), 1e-5)
    assert not chebyshev_pays(system(COUPLING_FROM), 1e-15)
    assert not chebyshev_pays(PointIntegralSystem(system(5.0).W, 5.0, "consistent"), 1e-5)
    taken = []
    monkeypatch.setattr(grouped, "DENSE_UP_TO", 0)
    monkeypatch.setattr(grouped, "chebyshev", lambda *a, **k: taken.append(1) or chebyshev(*a, **k))
    A, v = system(10.0), columns()
    found = solve_grouped(A, v, Groups(torch.zeros(70, dtype=torch.int64)), tol=1e-10)
    assert taken == [1]
    torch.testing.assert_close(found.value, pcg(A, v, tol=1e-12).value, rtol=0, atol=1e-8)
