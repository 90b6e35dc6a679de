import pytest
import torch

import ldmnet.graph.approximate as module
from clouds import cloud
from ldmnet import ManifoldRegularizer
from ldmnet.errors import InputError, StateError
from ldmnet.graph import neighbors
from ldmnet.graph.approximate import ApproximateSearch
from ldmnet.graph.candidates import squared_lengths
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch

K = 10


def sheet(m, d, seed=0):
    """Points near a curved sheet of four dimensions."""
    draw = torch.Generator().manual_seed(seed)
    place = torch.rand(m, 4, generator=draw)
    bent = torch.cat([place, torch.sin(3 * place)], 1)
    return bent @ torch.randn(8, d, generator=torch.Generator().manual_seed(9))


def brute(points, k):
    """All neighbours by differences, in double precision."""
    distance = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(torch.inf)
    return distance.topk(k, dim=1, largest=False)


def share_found(index, points, k=K):
    truth = brute(points, k).indices
    return float((index[:, :, None] == truth[:, None]).any(2).double().mean())


@pytest.fixture
def small_cells(monkeypatch):
    """A partition already at a few hundred points."""
    monkeypatch.setattr(module, "FULL_UP_TO", 100)
    monkeypatch.setattr(module, "CELL", 40)
    monkeypatch.setattr(module, "SAMPLE", 100)


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("with_inputs", [True, False])
def test_the_partition_finds_almost_all_and_the_sample_tells_how_many(with_inputs):
    inputs, features = (sheet(1500, 6) if with_inputs else None), sheet(1500, 5)
    search = ApproximateSearch(inputs)
    index, _ = search(features, K)
    points = features if inputs is None else torch.cat([inputs, features], 1)
    found = share_found(index, points)
    assert found >= 0.95
    assert search.recall == pytest.approx(found, abs=0.03)


@pytest.mark.usefixtures("small_cells")
def test_what_is_found_is_true():
    inputs, features = 100 + sheet(700, 6), sheet(700, 5)
    index, distance = ApproximateSearch(inputs)(features, K)
    points = torch.cat([inputs, features], 1).double()
    direct = (points[:, None] - points[index]).square().sum(2).sqrt()
    torch.testing.assert_close(distance.double(), direct, rtol=1e-4, atol=1e-5)
    assert bool((distance.diff(dim=1) >= 0).all())
    assert bool((index != torch.arange(700)[:, None]).all())
    ordered = index.sort(1).values
    assert bool((ordered[:, 1:] != ordered[:, :-1]).all())  # nobody twice


@pytest.mark.usefixtures("small_cells")
def test_lists_follow_points_that_move_a_little_without_a_new_partition(monkeypatch):
    inputs, features = sheet(800, 6), sheet(800, 5)
    search = ApproximateSearch(inputs)
    search(features, K)
    monkeypatch.setattr(search, "_start", lambda moving: pytest.fail("a new partition"))
    for step in range(4):
        features = features + 0.01 * torch.randn(features.shape, generator=torch.Generator().manual_seed(step))
        index, _ = search(features, K)
        assert share_found(index, torch.cat([inputs, features], 1)) >= 0.95


@pytest.mark.usefixtures("small_cells")
def test_points_that_jump_get_new_lists():
    search = ApproximateSearch(None)
    search(sheet(800, 5), K)
    features = sheet(800, 5, seed=1)  # nobody is where he was
    index, _ = search(features, K)
    assert search.recall >= 0.9
    assert share_found(index, features) >= 0.9


@pytest.mark.usefixtures("small_cells")
def test_a_poor_recall_is_told(monkeypatch):
    search = ApproximateSearch(None)
    search(sheet(800, 5), K)
    for repair in ("_widen", "_restart"):
        monkeypatch.setattr(search, repair, lambda moving: None)
    features = sheet(800, 5, seed=1)
    index, _ = search(features, K)
    assert search.recall == pytest.approx(share_found(index, features), abs=0.1)
    assert search.recall < 0.5


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("rows", [600, 40])
def test_widening_puts_the_neighbours_of_neighbours_on_the_lists(monkeypatch, rows):
    monkeypatch.setattr(module, "BLOCK", rows * (module.HOP**2 + module.LISTED))  # so many at a time
    features = sheet(600, 5)
    search = ApproximateSearch(None)
    search(features, K)
    draw = torch.Generator().manual_seed(0)
    poor = torch.stack([torch.randperm(599, generator=draw)[:48] for _ in range(600)])
    poor[:, :3] = brute(features, 3).indices  # three true ones lead to the others
    search._take(poor.sort(1).values)
    moving = features - features.mean(0)
    before = share_found(search._nearest(moving, squared_lengths(moving), K)[0], features)
    for _ in range(4):
        search._widen(moving)
    assert before < 0.5
    assert share_found(search._nearest(moving, squared_lengths(moving), K)[0], features) > 0.95


def test_a_cell_without_points_ends_nothing():
    clumps = cloud(3, 5) * 100  # copies of three points: most of the eight centres are somebody else's copy
    points = clumps.repeat_interleave(60, 0)
    lists, short = module._search_cells(points, 8, 8, torch.Generator().manual_seed(0))
    assert not len(short)
    own = (lists // 60 == (torch.arange(180) // 60)[:, None]).sum(1)
    assert int(own.min()) >= module.KEPT  # a cell gives so many


@pytest.mark.parametrize("with_inputs", [False, True])
def test_recall_is_judged_by_the_true_distances(with_inputs):
    features, inputs = sheet(300, 5), sheet(300, 6) if with_inputs else None
    search = ApproximateSearch(inputs)
    rows, farthest = search._farthest(features, squared_lengths(features), K)
    whole = features if inputs is None else torch.cat([inputs, features], 1)
    torch.testing.assert_close(farthest.double(), brute(whole, K).values[rows].amax(1), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small_cells")
def test_a_restored_search_goes_on_bit_for_bit():
    inputs, features = sheet(600, 6), sheet(600, 5)
    whole = ApproximateSearch(inputs)
    whole(features, K)
    cut = ApproximateSearch(inputs)
    cut.load(whole.state())
    assert whole.state()["lists"].dtype == torch.int32  # half the room
    for step in range(2):
        features = features + 0.1 * torch.randn(features.shape, generator=torch.Generator().manual_seed(step))
        for mine, theirs in zip(whole(features, K), cut(features, K), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.usefixtures("small_cells")
def test_copies_of_one_point_are_neighbours_at_distance_zero():
    index, distance = ApproximateSearch(None)(torch.ones(300, 4), K)
    assert float(distance.max()) == 0
    assert bool((index != torch.arange(300)[:, None]).all())


@pytest.mark.usefixtures("small_cells")
def test_cells_too_small_to_fill_a_list(monkeypatch):
    monkeypatch.setattr(module, "CELL", 3)
    features = sheet(400, 5)
    index, _ = ApproximateSearch(None)(features, K)
    assert share_found(index, features) == 1.0


def test_auto_leaves_small_groups_exact(monkeypatch):
    monkeypatch.setattr(neighbors, "AUTO_FROM", 200)
    labels = torch.arange(400) // 250  # 250 and 150
    groups, features = Groups(labels), sheet(400, 5)
    auto, exact = NeighborSearch(groups, K, kind="auto"), NeighborSearch(groups, K)
    assert list(auto._approximate) == [0]
    assert torch.equal(auto(features).index[250:], exact(features).index[250:])
    assert exact.recall == 1.0
    assert exact.state() == {}


def test_the_regulariser_logs_the_recall_and_keeps_the_lists_in_its_state(monkeypatch):
    monkeypatch.setattr(neighbors, "AUTO_FROM", 200)
    monkeypatch.setattr(neighbors, "LARGE", 200)  # or groups of 300 are searched in full
    monkeypatch.setattr(module, "FULL_UP_TO", 100)
    monkeypatch.setattr(module, "CELL", 20)
    inputs, features = sheet(600, 6), sheet(600, 5)
    options = {"mu": 0.1, "lambda_tilde": 0.5, "n_neighbors": K, "sigma_neighbor": 5}
    labels = torch.arange(600) % 2
    auto = ManifoldRegularizer(inputs, labels, neighbors="auto", **options)
    exact = ManifoldRegularizer(inputs, labels, **options)
    update = auto.step(features)
    assert 0.9 <= update.recall <= 1
    assert exact.step(features).recall == 1.0
    close = torch.linalg.vector_norm(auto.target - exact.target) / torch.linalg.vector_norm(exact.target - features)
    assert float(close) < 0.1
    again = ManifoldRegularizer(inputs, labels, neighbors="auto", **options)
    again.load_state_dict(auto.state_dict())
    auto.step(features * 1.1)
    again.step(features * 1.1)
    assert torch.equal(auto.target, again.target)


@pytest.fixture(scope="module")
def large():
    """A group that "auto" searches approximately and one that it does not, features at two updates, and options."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.tensor([neighbors.AUTO_FROM + 3, 600])
    labels = torch.repeat_interleave(torch.arange(2), sizes)[torch.randperm(int(sizes.sum()), generator=draw)]
    inputs = torch.randn(len(labels), 3, generator=draw)
    moved = inputs + 0.4 * torch.randn(len(labels), 3, generator=draw)
    options = {"mu": 1.0, "lambda_tilde": 2.0, "tol": 1e-6, "n_neighbors": K, "sigma_neighbor": 5}
    return inputs, labels, (inputs * 0.5, moved), options


@pytest.fixture(scope="module")
def two_updates(large):
    """The regulariser after two updates with each search, and the state of the approximate one after the first."""
    inputs, labels, features, options = large
    auto = ManifoldRegularizer(inputs, labels, neighbors="auto", **options)
    exact = ManifoldRegularizer(inputs, labels, **options)
    first = [regularizer.step(features[0]) for regularizer in (auto, exact)]
    agree = float((auto.target - exact.target).abs().max())
    state = auto.state_dict()
    second = [regularizer.step(features[1]) for regularizer in (auto, exact)]
    return auto, exact, state, first, second, agree


@pytest.mark.slow
def test_auto_in_the_regulariser_agrees_with_exact_on_groups_that_it_searches_approximately(large, two_updates):
    _, labels, features, _ = large
    auto, exact, state, first, second, agree = two_updates
    (lists,) = (kept["lists"] for kept in state["search"].values())
    assert lists.shape == (neighbors.AUTO_FROM + 3, module.LISTED)
    assert agree < 1e-5  # the first lists come from a full search
    assert first[0].recall == 1.0
    assert 0.97 <= second[0].recall < 1  # the second update ranks the lists of the first
    assert [update.recall for update in (first[1], second[1])] == [1.0, 1.0]
    small = labels == 1
    torch.testing.assert_close(auto.target[small], exact.target[small], rtol=0, atol=1e-5)
    apart = torch.linalg.vector_norm(auto.target - exact.target)
    assert 0 < float(apart) < 0.1 * float(torch.linalg.vector_norm(exact.alpha - features[1]))


def test_auto_resumes_with_its_lists_to_the_same_bits(large, two_updates):
    inputs, labels, features, options = large
    auto, _, state, *_ = two_updates
    again, anew = (ManifoldRegularizer(inputs, labels, neighbors="auto", **options) for _ in range(2))
    again.load_state_dict(state)
    again.step(features[1])
    assert torch.equal(again.target, auto.target)
    (start,) = state["search"]
    anew.load_state_dict({**state, "search": {start: {"lists": None, "probes": 8}}})
    anew.step(features[1])
    assert not torch.equal(anew.target, auto.target)  # the lists made the difference


DAMAGED_LISTS = {
    "beyond the points": lambda kept: kept["lists"][7].fill_(10**6),
    "below zero": lambda kept: kept["lists"][7, 3].fill_(-1),
    "not ascending": lambda kept: kept["lists"][7].copy_(kept["lists"][7].flip(0)),
    "the point itself": lambda kept: kept["lists"][7, 0].fill_(7),
    "too short": lambda kept: kept.update(lists=kept["lists"][:, :5]),
    "no whole numbers": lambda kept: kept.update(lists=kept["lists"].float()),
    "no tensor": lambda kept: kept.update(lists=[[1, 2]]),
    "no probes at all": lambda kept: kept.update(probes=0),
    "probes in words": lambda kept: kept.update(probes="8"),
    "half a probe": lambda kept: kept.update(probes=8.5),
    "without probes": lambda kept: kept.pop("probes"),
}


@pytest.mark.parametrize("damage", DAMAGED_LISTS)
def test_damaged_lists_are_refused(large, two_updates, damage, says):
    inputs, labels, _, options = large
    (start,), state = two_updates[2]["search"], dict(two_updates[2])
    kept = {"lists": state["search"][start]["lists"].clone(), "probes": 8}
    DAMAGED_LISTS[damage](kept)
    regularizer = ManifoldRegularizer(inputs, labels, neighbors="auto", **options)
    for search in ({start: kept}, {}, 3):
        with says(StateError):
            regularizer.load_state_dict({**state, "search": search})


def test_an_unknown_search_is_refused(says):
    with says(InputError):
        ManifoldRegularizer(torch.randn(30, 3), mu=1.0, lambda_tilde=1.0, neighbors="fast")
