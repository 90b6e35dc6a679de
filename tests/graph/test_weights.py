import itertools

import numpy as np
import pytest
import torch

from clouds import circle, cloud, sphere, uneven_groups
from ldmnet import heat_weights, knn, self_tuned_weights
from ldmnet.errors import InputError
from ldmnet.graph import Neighbors
from ldmnet.graph.weights import local_scale
from reference import laplacian, weights


def dense(W):
    assert W.layout == torch.sparse_csr
    return W.to_dense()


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_reference_in_uneven_groups_with_duplicates(seed):
    inputs, labels, features = uneven_groups(seed)
    points = np.hstack([inputs.reshape(len(inputs), -1), features[0]])
    W = dense(self_tuned_weights(knn(torch.as_tensor(points), 8, torch.as_tensor(labels)), 3))
    np.testing.assert_allclose(W.numpy(), weights(points, labels, 8, 3), rtol=1e-10, atol=1e-14)


def test_agrees_with_the_reference_at_the_papers_numbers():
    points = cloud(100, 6)
    W = dense(self_tuned_weights(knn(points)))
    np.testing.assert_allclose(W.numpy(), weights(points.numpy()), rtol=1e-10, atol=1e-14)


def test_by_hand():
    points = torch.tensor([[0.0], [1.0], [3.0], [7.0]])  # first neighbours at 1, 1, 2, 4
    W = dense(self_tuned_weights(knn(points, 1), 1))
    a, b, c = np.exp([-1 / (1 * 1), -4 / (2 * 1), -16 / (4 * 2)])
    expected = [[1, a, 0, 0], [a, 1, b, 0], [0, b, 1, c], [0, 0, c, 1]]  # 2 -> 1 and 3 -> 2 are one-way edges
    np.testing.assert_allclose(W.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("build", [self_tuned_weights, lambda nb: heat_weights(nb, 0.3)])
def test_symmetric_with_a_unit_diagonal_and_weights_of_at_most_one(build):
    found = knn(cloud(150, 3), 12, torch.arange(150) % 4)
    W = dense(build(found))
    torch.testing.assert_close(W, W.T, rtol=0, atol=1e-14)
    assert torch.equal(W.diagonal(), torch.ones(150, dtype=W.dtype))
    assert ((W >= 0) & (W <= 1)).all()
    rows = torch.arange(150)[:, None].expand_as(found.index)
    assert (W[rows, found.index] > 0).all()
    assert (W != 0).sum() > 150 * 13  # some edges are one-way: the union is larger than one direction


def test_the_laplacian_kills_constants():
    W = dense(self_tuned_weights(knn(cloud(80), 20))).numpy()
    assert np.abs(laplacian(W) @ np.ones(80)).max() < 1e-13


def test_no_edge_between_groups():
    groups = torch.arange(60) % 3
    W = dense(self_tuned_weights(knn(cloud(60), 15, groups)))
    assert (W[groups[:, None] != groups[None]] == 0).all()


def test_groups_give_the_blocks_of_separate_graphs():
    points, groups = cloud(90), torch.arange(90) % 3
    W = dense(self_tuned_weights(knn(points, 8, groups), 5))
    for g in range(3):
        own = groups == g
        alone = dense(self_tuned_weights(knn(points[own], 8), 5))
        torch.testing.assert_close(W[own][:, own], alone, rtol=1e-12, atol=1e-15)


def test_permutation_equivariance():
    points, groups = cloud(90, 5), torch.arange(90) % 4
    order = torch.randperm(90, generator=torch.Generator().manual_seed(2))
    W = dense(self_tuned_weights(knn(points, 10, groups), 6))
    mixed = dense(self_tuned_weights(knn(points[order], 10, groups[order]), 6))
    torch.testing.assert_close(mixed, W[order][:, order], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_self_tuned_weights_do_not_feel_the_scale(factor):
    points = cloud(50)
    points[5] = points[6]
    W, scaled = (dense(self_tuned_weights(knn(p, 10), 5)) for p in (points, points * factor))
    torch.testing.assert_close(scaled, W, rtol=1e-10, atol=1e-14)


def test_a_point_alone_has_only_its_diagonal():
    W = dense(self_tuned_weights(knn(cloud(6), 5, torch.tensor([0, 0, 0, 0, 0, 1])), 3))
    assert W[5].tolist() == [0, 0, 0, 0, 0, 1]
    assert dense(self_tuned_weights(knn(cloud(1), 3), 2)).tolist() == [[1.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_have_weight_one_and_nothing_is_nan(dtype):
    points = cloud(60, dtype=dtype)
    points[:15] = points[0]  # more alike than the sigma neighbour: sigma is zero before its floor
    W = dense(self_tuned_weights(knn(points, 20)))
    assert W.dtype == dtype
    assert W.isfinite().all()
    assert torch.equal(W[:15, :15], torch.ones(15, 15, dtype=dtype))
    assert (W[:15, 15:] < 1e-6).all()


@pytest.mark.parametrize("value", [0.0, 1.0, 1e6])
def test_constant_features_have_weight_one(value):
    W = dense(self_tuned_weights(knn(torch.full((12, 3), value), 20)))
    assert torch.equal(W, torch.ones(12, 12))


def test_sigma_is_the_distance_to_the_neighbour_the_point_itself_not_counted():
    points = torch.tensor([[0.0], [1.0], [3.0], [7.0], [20.0]])
    found = knn(points, 4, torch.tensor([0, 0, 0, 0, 1]))
    sigma = local_scale(found, 2)
    np.testing.assert_allclose(sigma[:4].numpy(), [3, 2, 3, 6], rtol=1e-6)
    assert 0 < sigma[4] < 1e-6  # alone: no scale, but nothing is divided by zero
    np.testing.assert_allclose(local_scale(found, 4)[:4].numpy(), [7, 6, 4, 7], rtol=1e-6)  # the farthest there is


def test_sigma_among_duplicates_is_a_small_part_of_the_neighbourhood():
    points = torch.tensor([[0.0], [0.0], [0.0], [5.0]], dtype=torch.float64)
    np.testing.assert_allclose(local_scale(knn(points, 3), 2).numpy(), [5e-4, 5e-4, 5e-4, 5], rtol=1e-12)


def test_a_groups_weights_do_not_depend_on_the_scale_of_another():
    small, groups = cloud(40, 3), torch.arange(80) // 40
    alone = dense(self_tuned_weights(knn(small, 10), 5))
    beside = dense(self_tuned_weights(knn(torch.cat([small, 1e7 * cloud(40, 3, seed=1)]), 10, groups), 5))
    torch.testing.assert_close(beside[:40, :40], alone, rtol=1e-9, atol=1e-12)


def test_an_edge_that_one_side_chose_has_its_whole_weight():
    points = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    W = dense(self_tuned_weights(knn(points, 1), 1))  # 0-1 both ways, 2 -> 1, 3 -> 2; sigma 1, 1, 2, 4
    expected = torch.eye(4, dtype=torch.float64)
    for i, j, scaled in ((0, 1, 1 / 1), (1, 2, 4 / 2), (2, 3, 16 / 8)):
        expected[i, j] = expected[j, i] = np.exp(-scaled)
    torch.testing.assert_close(W, expected)


def test_heat_weights_by_hand_and_for_all_pairs():
    points = cloud(30, 3)
    W = dense(heat_weights(knn(points, 29), 0.7))
    torch.testing.assert_close(W, torch.exp(-(torch.cdist(points, points) ** 2) / 2.8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    found = knn(cloud(20, dtype=dtype), 12)
    assert self_tuned_weights(found).dtype == heat_weights(found, 1.0).dtype == dtype


@pytest.mark.parametrize(
    ("points", "t", "dimension"), [(circle(400)[1], 0.01, 1), (sphere(1000), 0.04, 2)], ids=["circle", "sphere"]
)
def test_theorem_1_the_local_dimension_is_the_sum_of_squared_gradients(points, t, dimension):
    # sum_i |grad alpha_i|^2 at p by the heat kernel: its variance is 2t along each tangent direction, so the mean of
    # |p - q|^2 under R_t is 2t dim; with W_ii counted, as the integral over q counts p itself
    W = dense(heat_weights(knn(points, len(points) - 1), t))
    squared = torch.cdist(points, points) ** 2
    local = (W * squared).sum(1) / W.sum(1) / (2 * t)
    assert ((local - dimension).abs() < 0.1 * dimension).all()


def test_theorem_2_the_residual_of_the_integral_approximation_falls_with_t():
    n = 600
    angle, points = circle(n)
    found = knn(points, n - 1)
    u, laplace_u = angle.cos(), -angle.cos()  # u'' on the unit circle; a closed curve has no boundary term
    residuals = []
    for t in (0.16, 0.04, 0.01, 0.0025):  # sqrt(t) from 0.4 to 0.05, the spacing is 0.0105
        R = dense(heat_weights(found, t)) * (2 * torch.pi / n / (4 * torch.pi * t) ** 0.5)
        residual = R @ laplace_u + (R.sum(1) * u - R @ u) / t
        residuals.append(float(residual.square().mean().sqrt()))
    for larger, smaller in itertools.pairwise(residuals):
        assert smaller < larger / 2**0.5  # the theorem's O(t^(1/4)) for every factor of four; in truth O(t)
    assert residuals[-1] < 0.01


@pytest.mark.parametrize("t", [0.0, -1.0, float("nan")])
def test_t_not_above_zero(t, says):
    with says(InputError):
        heat_weights(knn(cloud(5), 2), t)


def test_sigma_neighbor_out_of_range(says):
    found = knn(cloud(30), 5)
    with says(InputError):
        self_tuned_weights(found, 0)
    with says(InputError):
        self_tuned_weights(found)


def test_neighbors_made_by_hand_are_welcome():
    found = Neighbors(torch.tensor([[1], [-1]]), torch.tensor([[2.0], [torch.inf]]))
    W = dense(heat_weights(found, 1.0))
    np.testing.assert_allclose(W.numpy(), [[1, np.exp(-1)], [np.exp(-1), 1]], rtol=1e-6)


def test_a_graph_made_in_parts_is_the_same(monkeypatch):
    groups = torch.tensor([0] * 9 + [1] * 3 + [2] + [3] * 14 + [4] * 6)
    found = knn(cloud(len(groups)), 5, groups)
    cuts = [9, 12, 13, 27]
    whole = self_tuned_weights(found, 3)
    for least in (1, 4, 10):
        monkeypatch.setattr("ldmnet.graph.weights.BLOCK", least)
        parts = self_tuned_weights(found, 3, cuts=cuts)
        assert torch.equal(parts.crow_indices(), whole.crow_indices())
        assert torch.equal(parts.col_indices(), whole.col_indices())
        torch.testing.assert_close(parts.values(), whole.values(), rtol=1e-14, atol=0)
