import numpy as np
import pytest
import torch

from clouds import cloud
from ldmnet import PointIntegralSystem, Status, knn, pcg, self_tuned_weights
from ldmnet.errors import InputError
from ldmnet.pim import solve as module
from reference import solve

MASSES = ("consistent", "lumped")


def graph(n=70, seed=0, dtype=torch.float64, k=10, groups=None):
    return self_tuned_weights(knn(cloud(n, 4, seed, dtype), k, groups), 5)


def textbook(A, b, x, max_steps):
    """One column of Jacobi-preconditioned CG; stops at the iterate before p'Ap <= 0."""
    r = b - A @ x
    z = r / np.diag(A)
    p = z.copy()
    for step in range(max_steps):
        curvature = p @ A @ p
        if curvature <= 0:
            return x, step
        length = (r @ z) / curvature
        x, r_next = x + length * p, r - length * (A @ p)
        z_next = r_next / np.diag(A)
        p = z_next + (r_next @ z_next) / (r @ z) * p
        r, z = r_next, z_next
    return x, None


def functional(system, x, v):
    """What CG makes smaller with every step, column by column: x'Ax / 2 - b'x."""
    return 0.5 * (x * system.matvec(x)).sum(0) - (system.rhs(v) * x).sum(0)


@pytest.mark.parametrize(
    ("mass", "c"),
    [("consistent", 0.05), ("consistent", 0.2), ("consistent", 1.0), ("consistent", 2.0)]
    + [("lumped", c) for c in (0.05, 0.2, 1.0, 10.0, 1e5)],
)
def test_agrees_with_a_dense_solve(mass, c):
    W, v = graph(), cloud(70, 6, seed=9) + 3
    solution = pcg(PointIntegralSystem(W, c, mass), v, tol=1e-13, max_steps=500)
    assert solution.status is Status.CONVERGED
    assert (solution.residual <= 1e-13).all()
    np.testing.assert_allclose(
        solution.value.numpy(), solve(W.to_dense().numpy(), v.numpy(), c, mass), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("mass", MASSES)
def test_the_default_tolerance_is_met_in_a_dozen_or_so_steps(mass):
    W, v = graph(400), cloud(400, 20, seed=9)
    system = PointIntegralSystem(W, 0.2, mass)
    solution = pcg(system, v)
    assert solution.status is Status.CONVERGED
    assert solution.steps <= 30
    b = system.rhs(v)
    true = torch.linalg.vector_norm(b - system.matvec(solution.value), dim=0) / torch.linalg.vector_norm(b, dim=0)
    assert (true <= 1.01e-5).all()
    torch.testing.assert_close(solution.residual, true, rtol=1e-6, atol=0)


def test_at_c_of_one_the_consistent_solution_takes_exactly_one_step():
    W, v = graph(), cloud(70, 5, seed=2)
    system = PointIntegralSystem(W, 1.0, "consistent")
    solution = pcg(system, v, tol=1e-12, max_steps=50)
    assert solution.steps == 1
    assert solution.status is Status.CONVERGED
    torch.testing.assert_close(solution.value, (W @ v) / system.D[:, None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_c_of_one_nothing_is_divided_by_zero_when_steps_go_on(dtype):
    W, v = graph(dtype=dtype), cloud(70, 5, seed=2, dtype=dtype)
    solution = pcg(PointIntegralSystem(W, 1.0, "consistent"), v, tol=0.0, max_steps=50)
    assert solution.value.isfinite().all()
    assert solution.residual.isfinite().all()
    assert solution.residual.max() < 1e-6


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("c", [0.2, 1.0, 100.0])
def test_constants_are_kept(mass, c):
    v = torch.full((70, 2), 5.0, dtype=torch.float64)
    v[:, 1] = -1e4
    solution = pcg(PointIntegralSystem(graph(), c, mass), v, tol=1e-12)
    assert solution.status is Status.CONVERGED
    assert solution.steps == 0
    torch.testing.assert_close(solution.value, v, rtol=1e-14, atol=0)


@pytest.mark.parametrize("mass", MASSES)
def test_groups_are_solved_as_if_alone(mass):
    points, v = cloud(90), cloud(90, 4, seed=8)
    groups = torch.arange(90) % 3
    together = pcg(
        PointIntegralSystem(self_tuned_weights(knn(points, 10, groups), 5), 0.2, mass), v, tol=1e-13, max_steps=500
    )
    for g in range(3):
        own = groups == g
        W = self_tuned_weights(knn(points[own], 10), 5)
        alone = pcg(PointIntegralSystem(W, 0.2, mass), v[own], tol=1e-13, max_steps=500)
        torch.testing.assert_close(together.value[own], alone.value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mass", MASSES)
def test_a_group_of_one_keeps_its_value(mass):
    groups = torch.tensor([0] * 29 + [1])
    v = cloud(30, 3, seed=4)
    solution = pcg(PointIntegralSystem(graph(30, groups=groups), 0.2, mass), v, tol=1e-13, max_steps=500)
    torch.testing.assert_close(solution.value[29], v[29], rtol=1e-12, atol=0)


@pytest.mark.parametrize("mass", MASSES)
def test_a_block_is_solved_as_its_columns_one_by_one(mass):
    W, v = graph(), cloud(70, 6, seed=7)
    v[:, 0] = 1.0  # solved at the start
    v[:, 1] = 0.0  # a zero right-hand side
    v[:, 2] = W @ (W @ (W @ v[:, 2]))  # smooth
    v[:, 3] *= 1e6
    v[:, 4] *= 1e-9
    system = PointIntegralSystem(W, 0.3, mass)
    block = pcg(system, v, tol=1e-8, max_steps=200)
    assert block.status is Status.CONVERGED
    slowest = 0
    for j in range(6):
        column = pcg(system, v[:, j], tol=1e-8, max_steps=200)
        slowest = max(slowest, column.steps)
        scale = float(v[:, j].abs().max())
        torch.testing.assert_close(block.value[:, j], column.value, rtol=0, atol=1e-12 * scale)
        torch.testing.assert_close(block.residual[j], column.residual[0], rtol=1e-3, atol=1e-15)
    assert block.steps == slowest


def test_chunks_of_columns_do_not_change_the_answer(monkeypatch):
    system, v = PointIntegralSystem(graph(), 0.2, "lumped"), cloud(70, 50, seed=7)
    whole = pcg(system, v, tol=1e-9)
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    monkeypatch.setattr(module, "LEAST_CHUNK", 7)
    chunks = pcg(system, v, tol=1e-9)
    torch.testing.assert_close(chunks.value, whole.value, rtol=0, atol=1e-12)
    torch.testing.assert_close(chunks.residual, whole.residual, rtol=1e-3, atol=1e-15)
    assert (chunks.status, chunks.steps) == (whole.status, whole.steps)


def test_zero_right_hand_side():
    solution = pcg(PointIntegralSystem(graph(), 0.2, "lumped"), torch.zeros(70, 3, dtype=torch.float64))
    assert solution.status is Status.CONVERGED
    assert solution.steps == 0
    assert (solution.value == 0).all()
    assert (solution.residual == 0).all()


def test_one_column_keeps_its_shape():
    system, v = PointIntegralSystem(graph(), 0.2, "lumped"), cloud(70, 1, seed=7)
    flat, column = pcg(system, v[:, 0], tol=1e-10), pcg(system, v, tol=1e-10)
    assert flat.value.shape == (70,)
    assert column.value.shape == (70, 1)
    torch.testing.assert_close(flat.value, column.value[:, 0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mass", MASSES)
def test_dtype_is_kept(dtype, mass):
    solution = pcg(PointIntegralSystem(graph(dtype=dtype), 0.2, mass), cloud(70, 2, dtype=dtype))
    assert solution.value.dtype == solution.residual.dtype == dtype


def test_neither_v_nor_x0_is_written_to():
    system, v, x0 = PointIntegralSystem(graph(), 0.2, "lumped"), cloud(70, 2), cloud(70, 2, seed=1)
    kept_v, kept_x0 = v.clone(), x0.clone()
    pcg(system, v)
    pcg(system, v, x0=x0)
    assert torch.equal(v, kept_v)
    assert torch.equal(x0, kept_x0)


def test_any_start_reaches_the_same_solution_and_the_solution_is_a_fixed_point():
    system, v = PointIntegralSystem(graph(), 0.2, "lumped"), cloud(70, 3)
    from_v = pcg(system, v, tol=1e-12, max_steps=200)
    elsewhere = pcg(system, v, x0=torch.zeros_like(v), tol=1e-12, max_steps=200)
    torch.testing.assert_close(from_v.value, elsewhere.value, rtol=0, atol=1e-10)
    assert pcg(system, v, x0=from_v.value, tol=1e-11).steps == 0


def test_step_limit_is_reported():
    system, v = PointIntegralSystem(graph(), 0.05, "lumped"), cloud(70, 3)
    solution = pcg(system, v, tol=1e-12, max_steps=3)
    assert solution.status is Status.STEP_LIMIT
    assert solution.steps == 3
    assert (solution.residual > 1e-12).all()
    assert (functional(system, solution.value, v) < functional(system, v, v)).all()


def test_negative_curvature_stops_at_the_last_iterate_before_it():
    W = graph(80)
    system = PointIntegralSystem(W, 200.0, "consistent")
    A = system.to_dense().numpy()
    assert np.linalg.eigvalsh(A)[0] < 0
    v = cloud(80, 5, seed=3)
    solution = pcg(system, v, tol=1e-10, max_steps=200)
    assert solution.status is Status.NEGATIVE_CURVATURE
    assert solution.value.isfinite().all()
    assert solution.negative_curvature == 5
    assert (functional(system, solution.value, v) <= functional(system, v, v)).all()
    for j in range(5):
        expected, met_at = textbook(A, system.rhs(v[:, j]).numpy(), v[:, j].numpy(), 200)
        assert met_at is not None
        np.testing.assert_allclose(solution.value[:, j].numpy(), expected, rtol=0, atol=1e-8)


def test_negative_curvature_in_the_first_step_leaves_v_and_the_other_columns_go_on():
    W = torch.tensor([[0.1, 1.0, 0, 0], [1.0, 0.1, 0, 0], [0, 0, 1.0, 0.5], [0, 0, 0.5, 1.0]], dtype=torch.float64)
    system = PointIntegralSystem(W, 5.0, "consistent")
    v = torch.tensor([[1.0, 0, 3], [-1, 0, 3], [0, 1, 3], [0, -2, 3]], dtype=torch.float64)
    solution = pcg(system, v, tol=1e-12)
    assert solution.status is Status.NEGATIVE_CURVATURE
    assert solution.negative_curvature == 1
    torch.testing.assert_close(solution.value[:, 0], v[:, 0], rtol=1e-14, atol=0)
    np.testing.assert_allclose(solution.value.numpy()[:, 1:], solve(W.numpy(), v.numpy(), 5.0, "consistent")[:, 1:])
    assert solution.residual[0] > 1e-12
    assert (solution.residual[1:] <= 1e-12).all()


def test_every_status_has_its_remedy_in_words():
    assert "max_steps" in Status.STEP_LIMIT.value
    assert "mass='lumped'" in Status.NEGATIVE_CURVATURE.value


@pytest.mark.parametrize("mass", MASSES)
def test_a_very_small_coupling_with_a_point_alone_gives_no_nan(mass):
    W = graph(30, dtype=torch.float32, groups=torch.tensor([0] * 29 + [1]))
    solution = pcg(PointIntegralSystem(W, 1e-8, mass), cloud(30, 2, dtype=torch.float32))
    assert solution.value.isfinite().all()
    if solution.status is Status.CONVERGED:
        assert (solution.residual <= 1e-5).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_v_not_finite(bad, says):
    v = cloud(70, 2)
    v[3, 0] = bad
    with says(InputError):
        pcg(PointIntegralSystem(graph(), 0.2, "lumped"), v)


def test_wrong_shapes(says):
    system = PointIntegralSystem(graph(), 0.2, "lumped")
    with says(InputError):
        pcg(system, cloud(69, 2))
    with says(InputError):
        pcg(system, cloud(70, 2), x0=cloud(70, 3))


def test_a_start_that_is_not_a_number_is_not_solved():
    W = self_tuned_weights(knn(cloud(30, 3), 8), 4)
    v = cloud(30, 2)
    start = v.clone()
    start[3, 1] = torch.nan
    assert pcg(PointIntegralSystem(W, 0.5, "lumped"), v, x0=start).status is not Status.CONVERGED


@pytest.mark.parametrize("mass", ["lumped", "consistent"])
@pytest.mark.parametrize("coupling", [0.05, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_the_expected_number_of_steps_is_about_what_it_takes(mass, coupling, tol):
    """The choice between a factorisation and conjugate gradients rests on it."""
    system = PointIntegralSystem(self_tuned_weights(knn(cloud(600, 8), 10), 5), coupling, mass)
    taken = pcg(system, cloud(600, 5, seed=3), tol=tol, max_steps=500).steps
    assert 0.5 * taken <= module.expected_steps(system, tol) <= 1.7 * taken + 0.5


@pytest.mark.parametrize(("dtype", "smallest"), [(torch.float32, 1e-44), (torch.float64, 1e-320)])
def test_the_smallest_numbers_there_are_have_finite_factors(dtype, smallest):
    system = PointIntegralSystem(self_tuned_weights(knn(cloud(30, 4, dtype=dtype), 10), 5), 0.2)
    v = torch.full((30, 3), smallest, dtype=dtype)
    v[:, 1], v[:, 2] = torch.finfo(dtype).max, 1
    factors = module.column_factors(v, system)
    assert bool(factors.isfinite().all())
    assert float(factors[0]) > 1e30
    assert 0.1 < float(factors[1] * v[0, 1]) < 1e10
    assert float(factors[2]) == 1
