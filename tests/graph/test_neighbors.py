import math

import numpy as np
import pytest
import torch

from clouds import cloud, uneven_groups
from ldmnet import knn
from ldmnet.errors import InputError
from ldmnet.graph import neighbors as module
from ldmnet.graph.groups import Groups
from ldmnet.graph.points import largest, power_of_two
from reference import distances, nearest


def true_distances(points):
    """Float64 distances of the very numbers in `points`, inf to itself."""
    d = distances(points.double().numpy())
    np.fill_diagonal(d, np.inf)
    return d


def assert_exact(points, k, *, rtol):
    """The found neighbours are as near as the nearest there are, and their distances are right."""
    found = knn(points, k)
    true = true_distances(points)
    best = np.sort(true, axis=1)[:, :k]
    np.testing.assert_allclose(np.take_along_axis(true, found.index.numpy(), axis=1), best, rtol=rtol)
    np.testing.assert_allclose(found.distance.numpy(), best, rtol=rtol)


def pixels(n=120, d=196, seed=0):
    return torch.randint(0, 256, (n, d), generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_float32_pixels_agree_with_float64_brute_force(offset):
    assert_exact(pixels() + offset, 20, rtol=2e-6)


def test_float32_near_copies_keep_their_digits():
    points = pixels(60)
    noise = torch.randn(60, 196, generator=torch.Generator().manual_seed(1)) * 0.01
    assert_exact(torch.cat([points, points + noise]), 3, rtol=1e-4)


@pytest.mark.parametrize("separation", [1e2, 1e3, 1e4])
def test_float32_tight_clusters_far_apart(separation):
    points = cloud(60, 20, dtype=torch.float32)
    points[30:] += separation
    assert_exact(points, 5, rtol=1e-3)


def test_float32_one_far_outlier_does_not_blur_the_others():
    points = cloud(60, 20, dtype=torch.float32)
    points[0] = 1e5
    found, true = knn(points, 5), true_distances(points)
    best = np.sort(true, axis=1)[1:, :5]
    np.testing.assert_allclose(np.take_along_axis(true, found.index.numpy(), axis=1)[1:], best, rtol=1e-3)


def test_float64_agrees_with_the_reference_in_uneven_groups():
    inputs, labels, _ = uneven_groups()
    points = inputs.reshape(len(inputs), -1)
    found = knn(torch.as_tensor(points), 8, torch.as_tensor(labels))
    for i, row in enumerate(nearest(points, 8, labels)):
        there = found.index[i] >= 0
        assert int(there.sum()) == len(row)
        np.testing.assert_allclose(found.distance[i, there].numpy(), [d for d, _ in row], rtol=1e-12, atol=0)
        assert (labels[found.index[i, there].numpy()] == labels[i]).all()
        far = [d for d, _ in row]
        if len(set(far)) == len(far):  # no ties: the indices agree too
            assert found.index[i, there].tolist() == [j for _, j in row]


def test_ascending_unsquared_and_never_itself():
    points = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    found = knn(points, 3)
    assert found.index.dtype == torch.int64
    assert found.index.tolist() == [[1, 2, 3], [0, 2, 3], [1, 0, 3], [2, 1, 0]]
    assert found.distance.tolist() == [[1, 3, 7], [1, 2, 6], [2, 3, 4], [4, 6, 7]]
    found = knn(cloud(80), 12)
    assert (found.distance.diff(dim=1) >= 0).all()
    assert (found.index != torch.arange(80)[:, None]).all()


@pytest.mark.parametrize("k", [4, 5, 9])
def test_k_of_the_group_size_or_more_pads_with_minus_one_and_inf(k):
    groups = torch.tensor([5, 5, 5, 5, 7])  # three others; none
    found = knn(cloud(5), k, groups)
    assert found.index.shape == found.distance.shape == (5, k)
    others = (found.index >= 0).sum(1)
    assert others.tolist() == [3, 3, 3, 3, 0]
    assert (found.index[:4, 3:] == -1).all()
    assert found.distance[:4, 3:].isinf().all()
    assert found.distance[:4, :3].isfinite().all()
    assert found.distance[4].isinf().all()


def test_one_point():
    found = knn(torch.zeros(1, 3), 2)
    assert found.index.tolist() == [[-1, -1]]
    assert found.distance.isinf().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_are_at_distance_zero_and_not_the_point_itself(dtype):
    points = pixels(40).to(dtype)
    points[10] = points[20] = points[30]
    found = knn(points, 2)
    for i in (10, 20, 30):
        assert set(found.index[i].tolist()) == {10, 20, 30} - {i}
        assert found.distance[i].tolist() == [0, 0]


@pytest.mark.parametrize("value", [0.0, 0.1, 255.0, 1e6])
def test_constant_features(value):
    found = knn(torch.full((30, 7), value), 20)
    assert (found.distance == 0).all()
    assert (found.index != torch.arange(30)[:, None]).all()
    assert all(len(set(row)) == 20 for row in found.index.tolist())


@pytest.mark.parametrize("block_bytes", [1, 200 * 8, 3 * 200 * 8 + 5, 64 * 200 * 8])
def test_blocks_do_not_change_the_answer(monkeypatch, block_bytes):
    points = cloud(200, 6)
    points[50] = points[60]
    groups = torch.arange(200) % 3
    whole = knn(points, 9, groups)
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    blocks = knn(points, 9, groups)
    assert torch.equal(whole.index, blocks.index)
    torch.testing.assert_close(whole.distance, blocks.distance, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cached", [True, False])
def test_a_repeated_search_is_knn_on_inputs_and_features(monkeypatch, dtype, cached):
    if not cached:
        monkeypatch.setattr(module, "CACHE_BYTES", 0)
    labels = torch.tensor([3] * 50 + [1] * 30 + [7] * 30 + [2] + [5] * 4)[
        torch.randperm(115, generator=torch.Generator().manual_seed(0))
    ]
    groups = Groups(labels)
    inputs = pixels(115, 30).to(dtype)
    search = module.NeighborSearch(groups, 8, inputs)
    for seed in range(3):
        features = cloud(115, 6, seed=seed, dtype=dtype) * 50
        found = search(features[groups.order])
        points = torch.cat([inputs, features], dim=1)[groups.order].double()
        true = knn(points, 8, labels[groups.order])
        torch.testing.assert_close(found.distance.double(), true.distance, rtol=2e-6, atol=0)
        assert torch.equal(found.index < 0, true.index < 0)
        if dtype == torch.float64:
            assert torch.equal(found.index, true.index)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_repeated_search_keeps_the_digits_of_duplicates_and_near_copies(scale):
    inputs = pixels(40, 30)
    features = cloud(40, 6, dtype=torch.float32) * scale
    inputs[20:] = inputs[:20]
    features[20:30] = features[:10]
    features[30:] = features[10:20] * (1 + 1e-3)
    found = module.NeighborSearch(Groups(torch.zeros(40, dtype=torch.int64)), 1, inputs)(features)
    true = true_distances(torch.cat([inputs, features], dim=1))
    assert found.index.flatten().tolist() == [*range(20, 40), *range(20)]
    np.testing.assert_allclose(found.distance.flatten().numpy(), true.min(axis=1), rtol=1e-3, atol=0)


def test_permutation_equivariance():
    points, groups = cloud(90, 5), torch.arange(90) % 4
    order = torch.randperm(90, generator=torch.Generator().manual_seed(2))
    straight, mixed = knn(points, 7, groups), knn(points[order], 7, groups[order])
    assert torch.equal(order[mixed.index], straight.index[order])
    torch.testing.assert_close(mixed.distance, straight.distance[order], rtol=1e-12, atol=0)


def test_translation_leaves_the_neighbours():
    points = cloud(90, 5)
    assert torch.equal(knn(points, 7).index, knn(points + 100, 7).index)


def test_dtype_is_kept_and_lists_are_taken():
    assert knn(cloud(10, dtype=torch.float32), 3).distance.dtype == torch.float32
    assert knn(cloud(10, dtype=torch.float64), 3).distance.dtype == torch.float64
    assert knn([[0.0], [2.0], [3.0]], 1, [0, 0, 0]).index.tolist() == [[1], [2], [1]]


def test_points_with_gradient_are_not_followed():
    assert not knn(cloud(10).requires_grad_(), 3).distance.requires_grad


@pytest.mark.parametrize("k", [0, -3])
def test_k_below_one(k, says):
    with says(InputError):
        knn(cloud(), k)


def test_wrong_shape(says):
    with says(InputError):
        knn(torch.zeros(2, 3, 4), 1)
    with says(InputError):
        knn(torch.zeros(0, 4), 1)


def test_integers_for_points(says):
    with says(InputError):
        knn(torch.zeros(4, 4, dtype=torch.int64), 1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_points_not_finite(bad, says):
    points = cloud(10)
    points[[2, 7], 1] = bad
    with says(InputError):
        knn(points, 1)


@pytest.mark.parametrize("size", [2e17, 1e20])  # a distance squares and adds: there must be room for it
def test_points_too_large_for_their_type(says, size):
    points = torch.tensor([[0.0, size], [0.0, 0.0]])
    with says(InputError):
        knn(points, 1)
    assert knn(points.double(), 1).distance.flatten().tolist() == pytest.approx([size, size], rel=1e-6)


def test_groups_that_are_no_labels(says):
    with says(InputError):
        knn(cloud(4), 1, torch.tensor([0.0, 0.5, 1.0, 1.0]))


def test_groups_of_another_length(says):
    with says(InputError):
        knn(cloud(4), 1, torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("once", [True, False])
def test_inputs_in_double_keep_their_digits_beside_features_in_single(once):
    draw = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(200, 3, dtype=torch.float64, generator=draw)
    features = 0.01 * torch.randn(200, 4, generator=draw)
    groups = Groups(torch.zeros(200, dtype=torch.int64))
    near, far = (module.NeighborSearch(groups, 10, inputs, once=once)(features) for inputs in (z, z + 2.0**31))
    assert torch.equal(near.index, far.index)
    torch.testing.assert_close(near.distance, far.distance, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("dtype", "exponents"), [(torch.float32, (-42, -64, -100)), (torch.float64, (-500, -900))])
def test_very_small_points_are_brought_to_about_one_by_a_power_of_two(dtype, exponents):
    for exponent in exponents:
        factor = power_of_two(torch.tensor([[2.0**exponent, 0.0]], dtype=dtype), 0.0)
        assert math.frexp(factor)[0] == 0.5  # no digit is lost
        assert 2.0**-16 <= factor * 2.0**exponent <= 2.0**16
    assert power_of_two(torch.ones(1, 2, dtype=dtype), 0.0) == 1.0
    assert power_of_two(torch.full((1, 2), 2.0 ** exponents[0], dtype=dtype), 1.0) == 1.0  # the inputs are not small


def test_the_largest_absolute_value():
    assert largest(torch.empty(0, 3)) == 0
    assert largest(torch.tensor([[-3.0, 2.0]])) == 3
    assert math.isnan(largest(torch.tensor([[1.0, math.nan]])))
