import numpy as np
import pytest
import torch

from clouds import cloud
from ldmnet import PointIntegralSystem, Status, knn, pcg, self_tuned_weights
from ldmnet.graph.groups import Groups
from ldmnet.pim import grouped, solve_grouped
from reference import solve

MASSES = ("consistent", "lumped")
SIZES = (25, 25, 40, 1, 1, 2, 12, 40)


def sorted_problem(dtype=torch.float64, sizes=SIZES, columns=5):
    """A graph within groups whose rows are sorted by group, and a right-hand side."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    W = self_tuned_weights(knn(cloud(len(labels), 4, dtype=dtype), 10, labels), 5)
    return W, cloud(len(labels), columns, seed=3, dtype=dtype) + 2, Groups(labels)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("dense_up_to", [0, 1, 12, 30, 800])
def test_direct_and_iterative_agree_with_a_dense_solve(monkeypatch, mass, dense_up_to):
    monkeypatch.setattr(grouped, "DENSE_UP_TO", dense_up_to)
    W, v, groups = sorted_problem()
    solution = solve_grouped(PointIntegralSystem(W, 0.2, mass), v, groups, tol=1e-13, max_steps=500)
    assert solution.status is Status.CONVERGED
    assert (solution.steps == 0) == (dense_up_to >= max(SIZES))
    assert solution.residual.max() <= 1e-13
    expected = solve(W.to_dense().numpy(), v.numpy(), 0.2, mass)
    np.testing.assert_allclose(solution.value.numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("triangle", [1, 7, 40, 64])
def test_triangular_solves_by_blocks_agree_with_a_dense_solve(monkeypatch, mass, triangle):
    monkeypatch.setattr(grouped, "INVERT_UP_TO", 0)
    monkeypatch.setattr(grouped, "TRIANGLE", triangle)
    W, v, groups = sorted_problem()
    solution = solve_grouped(PointIntegralSystem(W, 0.2, mass), v, groups, tol=1e-13)
    assert solution.steps == 0
    expected = solve(W.to_dense().numpy(), v.numpy(), 0.2, mass)
    np.testing.assert_allclose(solution.value.numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("columns", "measured"), [(5, 5), (31, 31), (64, 32), (70, 35)])
def test_a_direct_solve_measures_the_residual_of_columns_all_over(columns, measured):
    W, v, _ = sorted_problem(sizes=(25, 25), columns=columns)
    v *= torch.arange(1, columns + 1)
    system = PointIntegralSystem(W, 0.2, "lumped")
    rows = torch.arange(50).view(2, 25)
    found, again, _ = grouped._DenseBlocks(system).solve(rows, v, 1e-12)
    assert found.residual.shape == (2, measured)
    assert not again.any()
    assert grouped._DenseBlocks(system).solve(rows, v, 0.0)[1].all()  # nothing is exact


def test_factorising_pays_for_small_groups_and_hard_systems():
    assert grouped.dense_pays(50, 500, 3)
    assert grouped.dense_pays(1000, 500, 15)
    assert not grouped.dense_pays(1000, 500, 3)
    assert not grouped.dense_pays(5400, 500, 1000)


@pytest.mark.parametrize("most", [1, 700, 2000])
def test_batches_do_not_change_the_answer(monkeypatch, most):
    W, v, groups = sorted_problem()
    system = PointIntegralSystem(W, 0.2, "lumped")
    whole = solve_grouped(system, v, groups)
    monkeypatch.setattr(grouped, "BATCH_ELEMENTS", most)
    torch.testing.assert_close(solve_grouped(system, v, groups).value, whole.value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("dense_up_to", [0, 800])
def test_a_group_of_one_keeps_its_value(monkeypatch, mass, dense_up_to):
    monkeypatch.setattr(grouped, "DENSE_UP_TO", dense_up_to)
    W, v, groups = sorted_problem()
    solution = solve_grouped(PointIntegralSystem(W, 0.2, mass), v, groups, tol=1e-13, max_steps=500)
    torch.testing.assert_close(solution.value[90:92], v[90:92], rtol=1e-12, atol=0)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("c", [0.2, 1e-2, 1e-3])
def test_constants_are_kept_in_float32(mass, c):
    W, v, groups = sorted_problem(torch.float32)
    v = torch.full_like(v, 5.0)
    solution = solve_grouped(PointIntegralSystem(W, c, mass), v, groups)
    torch.testing.assert_close(solution.value, v, rtol=1e-5, atol=0)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("c", [0.2, 1e-2, 1e-3])
def test_converged_means_that_the_tolerance_is_met_in_float32(mass, c):
    W, v, groups = sorted_problem(torch.float32)
    solution = solve_grouped(PointIntegralSystem(W, c, mass), v, groups, tol=1e-5, max_steps=200)
    if solution.status is Status.CONVERGED:
        assert solution.residual.max() <= 1e-5
    exact = solve_grouped(PointIntegralSystem(W.double(), c, mass), v.double(), groups).value
    iterated = torch.cat(
        [
            pcg(PointIntegralSystem(W, c, mass).block(start, start + size), v[start : start + size]).value
            for start, size in zip(groups.starts, groups.sizes, strict=True)
        ]
    )
    far = (iterated.double() - exact).abs().max()
    assert (solution.value.double() - exact).abs().max() <= 10 * far.clamp(min=1e-6)


def test_blocks_that_are_not_positive_definite_are_stopped_at_negative_curvature_the_others_solved():
    W, v, groups = sorted_problem()
    system = PointIntegralSystem(W, 200.0, "consistent")
    A = system.to_dense()
    solution = solve_grouped(system, v, groups, tol=1e-10, max_steps=200)
    assert solution.status is Status.NEGATIVE_CURVATURE
    assert 1 <= solution.negative_curvature <= v.shape[1]
    assert solution.value.isfinite().all()
    bent = 0
    for start, size in zip(groups.starts, groups.sizes, strict=True):
        rows = slice(start, start + size)
        block = A[rows, rows]
        if torch.linalg.eigvalsh(block)[0] > 0:
            expected = torch.linalg.solve(block, system.rhs(v)[rows])
        else:
            bent += 1
            expected = pcg(system.block(start, start + size), v[rows], tol=1e-10, max_steps=200).value
        torch.testing.assert_close(solution.value[rows], expected, rtol=0, atol=1e-8)
    assert 0 < bent < len(SIZES)


def test_step_limit_is_reported(monkeypatch):
    monkeypatch.setattr(grouped, "DENSE_UP_TO", 0)
    W, v, groups = sorted_problem()
    solution = solve_grouped(PointIntegralSystem(W, 0.05, "lumped"), v, groups, tol=1e-13, max_steps=3)
    assert solution.status is Status.STEP_LIMIT
    assert solution.steps == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    W, v, groups = sorted_problem(dtype)
    assert solve_grouped(PointIntegralSystem(W, 0.2, "lumped"), v, groups).value.dtype == dtype


@pytest.mark.parametrize("coupling", [0.2, 50.0])
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("dense_up_to", [0, 30, 800])
def test_the_solution_in_the_place_of_v_is_the_same(monkeypatch, mass, dense_up_to, coupling):
    """At 50 the consistent system is indefinite: blocks that cannot be factorised must find v as it was."""
    monkeypatch.setattr(grouped, "DENSE_UP_TO", dense_up_to)
    W, v, groups = sorted_problem()
    system, given = PointIntegralSystem(W, coupling, mass), v.clone()
    apart = solve_grouped(system, v, groups)
    assert torch.equal(v, given)
    inside = solve_grouped(system, v, groups, overwrite=True)
    assert inside.value.data_ptr() == v.data_ptr()
    assert torch.equal(inside.value, apart.value)
    assert inside.status is apart.status


def test_a_block_that_float32_cannot_solve_is_solved_in_float64(monkeypatch):
    """Where it was not foreseen: conjugate gradients themselves find that rounding stops them."""
    monkeypatch.setattr(grouped, "rounding_beyond", lambda *_, **__: False)
    monkeypatch.setattr(grouped, "DENSE_UP_TO", 0)
    W, v, groups = sorted_problem(torch.float32, sizes=(200, 300))
    solution = solve_grouped(PointIntegralSystem(W, 0.05, "consistent"), v, groups, tol=1e-9, max_steps=500)
    assert solution.status is Status.CONVERGED
    assert solution.value.dtype == torch.float32
    assert float(solution.residual.max()) <= 1e-9
    expected = solve(W.to_dense().double().numpy(), v.double().numpy(), 0.05, "consistent")
    np.testing.assert_allclose(solution.value.numpy(), expected, rtol=0, atol=1e-6)
    cut = solve_grouped(PointIntegralSystem(W, 0.05, "consistent"), v, groups, tol=1e-9, max_steps=20)
    assert cut.status is Status.STEP_LIMIT
    assert cut.steps == 20


def test_rows_that_follow_each_other_are_a_slice():
    assert grouped._span(torch.tensor([[3, 4], [5, 6]])) == slice(3, 7)
    assert grouped._span(torch.tensor([[0]])) == slice(0, 1)
    assert grouped._span(torch.tensor([[3, 4], [6, 7]])) is None
