import numpy as np
import pytest
import torch

from clouds import cloud
from ldmnet import PointIntegralSystem, knn, self_tuned_weights
from ldmnet.errors import InputError
from reference import laplacian, matrices

MASSES = ("consistent", "lumped")


def graph(n=70, seed=0, dtype=torch.float64, k=10, groups=None):
    return self_tuned_weights(knn(cloud(n, 4, seed, dtype), k, groups), 5)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("c", [0.2, 1.0, 2.0, 50.0])
def test_to_dense_is_the_reference_matrix(mass, c):
    W = graph()
    system = PointIntegralSystem(W, c, mass)
    A, M = matrices(W.to_dense().numpy(), c, mass)
    np.testing.assert_allclose(system.to_dense().numpy(), A, rtol=1e-12, atol=1e-12)
    v = cloud(70, 3, seed=5)
    np.testing.assert_allclose(system.rhs(v).numpy(), c * M @ v.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("dense", [False, True])
def test_matvec_and_diagonal_are_those_of_to_dense(mass, dense):
    W = graph()
    system = PointIntegralSystem(W.to_dense() if dense else W, 3.7, mass)
    A, u = system.to_dense(), cloud(70, 6, seed=3)
    torch.testing.assert_close(system.matvec(u), A @ u, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(system.matvec(u[:, 0]), A @ u[:, 0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(system.diagonal(), A.diagonal(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mass", MASSES)
def test_the_residual_at_v_comes_with_the_right_hand_side(mass):
    system, v = PointIntegralSystem(graph(), 0.4, mass), cloud(70, 3, seed=1)
    b, r = system.rhs_and_residual_at(v)
    torch.testing.assert_close(b, system.rhs(v), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(r, b - system.matvec(v), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("dense", [False, True])
def test_scaled_has_a_unit_diagonal(mass, dense):
    W = graph()
    system = PointIntegralSystem(W.to_dense() if dense else W, 0.4, mass)
    matrix, S = system.scaled()
    matrix = matrix if dense else matrix.to_dense()
    torch.testing.assert_close(matrix * S * S[:, None], system.to_dense(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(matrix.diagonal(), torch.ones_like(S), rtol=1e-12, atol=0)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("dense", [False, True])
def test_a_block_is_the_system_of_its_rows(mass, dense):
    W = graph(60, groups=torch.arange(60) // 20)
    system = PointIntegralSystem(W.to_dense() if dense else W, 0.4, mass)
    block = system.block(20, 40)
    torch.testing.assert_close(block.to_dense(), system.to_dense()[20:40, 20:40])
    v = cloud(20, 3, seed=1)
    torch.testing.assert_close(block.matvec(v), block.to_dense() @ v, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("c", [0.2, 5.0, 1e4])
def test_constants_solve_the_system(mass, c):
    system = PointIntegralSystem(graph(), c, mass)
    one = torch.ones(70, dtype=torch.float64)
    torch.testing.assert_close(system.matvec(one), system.rhs(one), rtol=1e-12, atol=0)


def test_l_kills_constants():
    system = PointIntegralSystem(graph(), 1.0, "lumped")
    assert system.dirichlet_energy(torch.ones(70, 2, dtype=torch.float64)) == pytest.approx(0, abs=1e-11)


@pytest.mark.parametrize("columns", [3, 40])
def test_dirichlet_energy_is_the_sum_over_edges(columns):
    W, u = graph(), cloud(70, columns, seed=1)
    dense = W.to_dense()
    by_edges = 0.5 * (dense[:, :, None] * (u[:, None] - u[None]) ** 2).sum()
    system = PointIntegralSystem(W, 1.0)
    energy = system.dirichlet_energy(u)
    assert energy == pytest.approx(float(by_edges), rel=1e-12)
    assert system.dirichlet_energies(u[:, 0], u) == [system.dirichlet_energy(u[:, 0]), energy]
    assert PointIntegralSystem(dense, 1.0).dirichlet_energy(u) == pytest.approx(energy, rel=1e-12)
    assert energy == pytest.approx(np.trace(u.numpy().T @ laplacian(dense.numpy()) @ u.numpy()), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("c", [1e-3, 0.2, 1.0, 1.9, 2.0])
def test_consistent_is_positive_definite_up_to_c_of_two(seed, c):
    system = PointIntegralSystem(graph(60, seed, k=3 + 3 * seed if seed > 0 else 5), c, "consistent")
    assert torch.linalg.eigvalsh(system.to_dense())[0] > 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("c", [1e-3, 0.2, 2.0, 10.0, 100.0, 1e5])
def test_lumped_is_positive_definite_for_every_c(seed, c):
    system = PointIntegralSystem(graph(60, seed), c, "lumped")
    assert torch.linalg.eigvalsh(system.to_dense())[0] > 0


def test_consistent_is_indefinite_exactly_above_one_plus_one_over_m():
    W = graph(80)
    D = W.to_dense().sum(1)
    root = D.sqrt()
    m = float(torch.linalg.eigvalsh(W.to_dense() / root / root[:, None])[0])
    assert m < 0
    edge = 1 + 1 / abs(m)
    for c, sign in ((0.99 * edge, 1), (1.01 * edge, -1)):
        lowest = float(torch.linalg.eigvalsh(PointIntegralSystem(W, c, "consistent").to_dense())[0])
        assert lowest * sign > 0


def test_at_c_of_one_the_consistent_matrix_is_d():
    system = PointIntegralSystem(graph(), 1.0, "consistent")
    assert torch.equal(system.to_dense(), torch.diag(system.D))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mass", MASSES)
def test_dtype_is_kept(dtype, mass):
    system, u = PointIntegralSystem(graph(dtype=dtype), 0.3, mass), cloud(70, 2, dtype=dtype)
    for out in (system.matvec(u), system.rhs(u), system.diagonal(), system.to_dense()):
        assert out.dtype == dtype


def test_w_not_square(says):
    with says(InputError):
        PointIntegralSystem(torch.ones(3, 4), 1.0)


@pytest.mark.parametrize("c", [0.0, -1.0, float("inf"), float("nan")])
def test_coupling_out_of_range(c, says):
    with says(InputError):
        PointIntegralSystem(torch.eye(3), c)


def test_mass_unknown(says):
    with says(InputError):
        PointIntegralSystem(torch.eye(3), 1.0, "diagonal")
