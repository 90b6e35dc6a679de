import pytest
import torch

from clouds import cloud
from ldmnet import knn
from ldmnet.graph import neighbors as module
from ldmnet.graph.candidates import ROUNDING, CandidateSearch
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch

N = 300
GROUPS = torch.arange(N) // 150


@pytest.fixture(autouse=True)
def lists_for_small_groups(monkeypatch):
    monkeypatch.setattr(module, "CANDIDATES_FROM", 100)


@pytest.fixture
def full_searches(monkeypatch):
    """How many rows were searched in full, call by call."""
    rows = []
    full = module._full

    def spy(points, base, k, some):
        rows.append(len(points) if some is None else len(some))
        return full(points, base, k, some)

    monkeypatch.setattr(module, "_full", spy)
    return rows


def same_as_a_full_search(found, features, inputs=None):
    points = features if inputs is None else torch.cat([inputs, features], 1)
    expected = knn(points, 10, GROUPS)
    assert torch.equal(found.index, expected.index)
    torch.testing.assert_close(found.distance, expected.distance, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("with_inputs", [False, True])
def test_small_moves_need_no_second_full_search(full_searches, with_inputs):
    inputs = cloud(N, 4, seed=5) if with_inputs else None
    search = NeighborSearch(Groups(GROUPS), 10, inputs)
    features = cloud(N, 6)
    for step in range(4):
        same_as_a_full_search(search(features), features, inputs)
        features = features + 0.005 * cloud(N, 6, seed=10 + step)
    assert full_searches == [150, 150]


def test_a_point_that_jumps_is_found_by_those_it_came_to(full_searches):
    search = NeighborSearch(Groups(GROUPS), 10)
    features = cloud(N, 6)
    search(features)
    features = features.clone()
    features[7] = features[120] + 0.01
    same_as_a_full_search(search(features), features)
    assert len(full_searches) > 2


def test_the_rows_in_doubt_alone_are_searched_again(full_searches):
    search = NeighborSearch(Groups(GROUPS), 10)
    features = cloud(N, 6)
    search(features)
    features = features + 0.08 * cloud(N, 6, seed=3)
    same_as_a_full_search(search(features), features)
    again = full_searches[2:]
    assert again
    assert all(0 < rows < 15 for rows in again)


def test_a_common_drift_is_no_move(full_searches):
    search = NeighborSearch(Groups(GROUPS), 10)
    features = cloud(N, 6)
    search(features)
    drifted = features + 100 * cloud(2, 6, seed=4)[GROUPS]
    same_as_a_full_search(search(drifted), drifted)
    assert full_searches == [150, 150]


def test_everything_moved_everything_is_searched_again(full_searches):
    search = NeighborSearch(Groups(GROUPS), 10)
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
    search = NeighborSearch(Groups(GROUPS), 60)
    features = cloud(N, 6)
    found = search(features)
    assert torch.equal(found.index, knn(features, 60, GROUPS).index)
    assert full_searches == []


def test_the_proof_leaves_room_for_rounding():
    points = cloud(150, 4)
    search = CandidateSearch(module._full)
    search(points, None, 10)
    search._reach = torch.ones(150, dtype=torch.float64)
    assert len(search._doubtful(points, search._reach * (1 - ROUNDING / 2))) == 150
    assert len(search._doubtful(points, search._reach * (1 - 2 * ROUNDING))) == 0
