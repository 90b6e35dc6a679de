import pytest
import torch

from clouds import cloud
from ldmnet.graph import candidates, distances
from ldmnet.graph import neighbors as module
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch

N = 300
GROUPS = torch.arange(N) // 150
NOWHERE = torch.zeros(N, 1)  # inputs that add nothing to a distance


@pytest.fixture(autouse=True)
def lists_for_small_groups(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 100)


@pytest.fixture
def full_searches(monkeypatch):
    """How many rows were searched in full, call by call."""
    rows = []
    blocks = distances.blocks

    def spy(points, base, square, some=None, room=None):
        rows.append(len(points) if some is None else len(some))
        return blocks(points, base, square, some, room)

    monkeypatch.setattr(distances, "blocks", spy)
    monkeypatch.setattr(candidates, "blocks", spy)
    return rows


def search_with_inputs(inputs=NOWHERE, k=10):
    return NeighborSearch(Groups(GROUPS), k, inputs)


def dense(points, k=10):
    """Neighbours from all differences, in float64."""
    apart = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    apart[GROUPS[:, None] != GROUPS] = torch.inf
    return apart.fill_diagonal_(torch.inf).topk(k, largest=False)


def same_as_a_full_search(found, features, inputs=None):
    expected = dense(features if inputs is None else torch.cat([inputs, features], 1))
    assert torch.equal(found.index, expected.indices)
    torch.testing.assert_close(found.distance, expected.values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("with_inputs", [False, True])
def test_small_moves_need_no_second_full_search(full_searches, with_inputs):
    inputs = cloud(N, 4, seed=5) if with_inputs else NOWHERE
    search = search_with_inputs(inputs)
    features = cloud(N, 6)
    for step in range(4):
        same_as_a_full_search(search(features), features, inputs)
        features = features + 0.005 * cloud(N, 6, seed=10 + step)
    assert full_searches == [150, 150]


def test_a_point_that_jumps_is_found_by_those_it_came_to(full_searches):
    search = search_with_inputs()
    features = cloud(N, 6)
    search(features)
    features = features.clone()
    features[7] = features[120] + 0.01
    same_as_a_full_search(search(features), features)
    assert len(full_searches) > 2


def test_the_rows_in_doubt_alone_are_searched_again(full_searches):
    search = search_with_inputs()
    features = cloud(N, 6)
    search(features)
    features = features + 0.06 * cloud(N, 6, seed=3)
    same_as_a_full_search(search(features), features)
    again = full_searches[2:]
    assert again
    assert all(0 < rows < 15 for rows in again)


def test_a_common_drift_is_no_move(full_searches):
    search = search_with_inputs()
    features = cloud(N, 6)
    search(features)
    drifted = features + 100 * cloud(2, 6, seed=4)[GROUPS]
    same_as_a_full_search(search(drifted), drifted)
    assert full_searches == [150, 150]


def test_everything_moved_everything_is_searched_again(full_searches):
    search = search_with_inputs()
    search(cloud(N, 6))
    other = cloud(N, 6, seed=9)
    same_as_a_full_search(search(other), other)
    assert full_searches == [150] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("step", [0.0, 0.003, 0.05, 1.0])
def test_the_answer_does_not_depend_on_the_way_bit_for_bit(dtype, step):
    inputs = cloud(N, 4, seed=5, dtype=dtype)
    warm = NeighborSearch(Groups(GROUPS), 10, inputs)
    features = cloud(N, 6, dtype=dtype)
    features[20] = features[30] = features[40]
    warm(features)
    features = features + step * cloud(N, 6, seed=8, dtype=dtype)
    found, fresh = warm(features), NeighborSearch(Groups(GROUPS), 10, inputs)(features)
    assert torch.equal(found.index, fresh.index)
    assert torch.equal(found.distance, fresh.distance)


def test_more_neighbours_than_candidates_are_searched_in_full(full_searches):
    search = search_with_inputs(k=60)
    features = cloud(N, 6)
    found = search(features)
    assert torch.equal(found.index, dense(features, 60).indices)
    search(features)
    assert full_searches == [150] * 4  # no lists


def test_features_alone_are_searched_in_full_every_time(full_searches):
    search = NeighborSearch(Groups(GROUPS), 10)
    features = cloud(N, 6)
    for _ in range(2):
        same_as_a_full_search(search(features), features)
    assert full_searches == [150] * 4


@pytest.mark.parametrize("with_inputs", [False, True])
@pytest.mark.parametrize("once_from", [0, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("some", [None, torch.tensor([250, 3, 77])])
def test_blocks_of_distances(monkeypatch, once_from, with_inputs, dtype, some):
    monkeypatch.setattr(distances, "ONCE_FROM", once_from)
    monkeypatch.setattr(distances, "STRIP", 70)
    monkeypatch.setattr(distances, "BLOCK_BYTES", 70 * N * dtype.itemsize)
    points = cloud(N, 6, dtype=dtype)
    base = torch.cdist(*[cloud(N, 4, seed=5)] * 2).square().to(dtype) if with_inputs else None
    expected = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    expected += 0 if base is None else base
    expected.fill_diagonal_(torch.inf)
    room, seen = distances.Room(), []
    for here, apart, own in distances.blocks(points, base, points.square().sum(1), some, room):
        torch.testing.assert_close((apart + own).double(), expected[here], rtol=1e-4, atol=1e-4)
        seen.append(here)
    assert torch.equal(torch.cat(seen), torch.arange(N) if some is None else some)


@pytest.mark.parametrize("k", [1, 10, 40])
@pytest.mark.parametrize("equal", [False, True])
def test_smallest_are_all_up_to_a_bound(k, equal):
    values = cloud(50, 700)
    if equal:
        values[:20, 100:] = values[:20, 100:101]
    columns, found = distances.smallest(values, k)
    for row, column, value in zip(values, columns, found, strict=True):
        there = column[~value.isinf()]
        assert torch.equal(there, there.unique())
        assert len(there) >= k
        assert torch.equal(row[there], value[~value.isinf()])
        others = torch.ones(700, dtype=torch.bool)
        others[there] = False
        assert row[others].min() >= row[there].max()


@pytest.mark.parametrize("k", [1, 7, 40])
def test_the_kth_smallest_of_each_row(k):
    values = cloud(9, 3000)
    assert torch.equal(distances._kth(values, k), values.sort(1).values[:, k - 1])


def test_differences_in_many_blocks(monkeypatch):
    monkeypatch.setattr(distances, "BLOCK_BYTES", 3 * 6 * 8)  # three pairs at a time
    points, draw = cloud(N, 6).view(2, -1, 6), torch.Generator().manual_seed(0)
    g, i, j = (torch.randint(0, high, (40,), generator=draw) for high in (2, N // 2, N // 2))
    torch.testing.assert_close(distances.differences(points, g, i, j), (points[g, i] - points[g, j]).square().sum(1))


@pytest.mark.parametrize("copies", [30, 120])
def test_many_points_that_are_the_same(copies):
    features = cloud(N, 6, dtype=torch.float32)
    features[:copies] = features[0]
    for search in (search_with_inputs(), NeighborSearch(Groups(GROUPS), 10)):
        for moved in (features, features + 0.001):
            found = search(moved)
            torch.testing.assert_close(found.distance.double(), dense(moved).values, rtol=1e-5, atol=1e-6)
            assert (found.index != torch.arange(N)[:, None]).all()
            assert all(len(set(row)) == 10 for row in found.index.tolist())


def test_points_nearer_to_each_other_than_float32_can_tell(full_searches):
    features = cloud(N, 6, dtype=torch.float32)
    features[:60] = features[0] + 1e-4 * cloud(60, 6, seed=2, dtype=torch.float32)
    found = search_with_inputs()(features)
    assert full_searches == [150, 60, 150]  # the sixty are searched again
    expected = dense(features)
    torch.testing.assert_close(found.distance.double(), expected.values, rtol=1e-3, atol=1e-7)


def test_whoever_is_not_on_a_list_is_beyond_its_reach_whatever_was_rounded():
    turned = torch.linalg.qr(cloud(150, 150))[0].float()  # all as far from each other, but for rounding
    search = candidates.CandidateSearch(distances.Room())
    search(turned, None, 10)
    points = (turned - turned.mean(0)).double()
    apart = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    beyond = apart.scatter(1, search._lists, torch.inf).amin(1)
    assert (search._reach.double() < beyond).all()
