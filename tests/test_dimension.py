import math
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import torch

from ldmnet import dimension, heat_weights, knn
from ldmnet.dimension import METHODS, estimate, live, spread
from ldmnet.errors import InputError
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch

EVERY_METHOD = pytest.mark.parametrize("method", METHODS)


def ball(n, d, seed=0):
    """Even in a ball: flat, with a boundary."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True) * draw.uniform(size=(n, 1)) ** (1 / d)


def torus(n, d, seed=0, ambient=None):
    """A product of d circles, in `ambient` dimensions."""
    draw = np.random.default_rng(seed)
    angle = draw.uniform(0, 2 * np.pi, (n, d))
    x = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    return x if ambient is None else x @ np.linalg.qr(draw.normal(size=(ambient, 2 * d)))[0].T


def sphere(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def brute_distances(x, k):
    squared = ((x[:, None] - x[None]) ** 2).sum(2)
    return np.sqrt(np.sort(squared, 1)[:, 1 : k + 1])


# ---- the truth


@EVERY_METHOD
@pytest.mark.parametrize(
    ("points", "truth"),
    [
        (np.outer(np.random.default_rng(0).uniform(size=2000), [1.0, 2.0, 3.0]), 1),
        (torus(2000, 1), 1),
        (sphere(2000), 2),
        (torus(2000, 5, ambient=100), 5),
    ],
    ids=["segment", "circle", "sphere", "5-torus in 100 dimensions"],
)
def test_known_manifolds_come_out_within_a_tenth(method, points, truth):
    found = estimate(points, method)
    assert found.value == pytest.approx(truth, rel=0.1)
    assert 0 < found.error < 0.1 * truth
    assert found.n_points == 2000
    assert found.by_group == {}


@EVERY_METHOD
def test_the_error_is_the_spread_of_repeated_draws(method):
    found = [estimate(torus(200, 2, seed), method) for seed in range(150)]
    assert np.mean([each.error for each in found]) == pytest.approx(np.std([each.value for each in found]), rel=0.12)


@EVERY_METHOD
def test_noise_raises_the_dimension_of_small_scales_most(method):
    rough = torus(1000, 1, ambient=20) + 0.005 * np.random.default_rng(1).normal(size=(1000, 20))
    assert estimate(rough, method).value > 2
    if method != "two_nn":
        assert estimate(rough, method, n_neighbors=100).value < 0.7 * estimate(rough, method, n_neighbors=5).value


# ---- the methods, each against another way to compute it


@pytest.mark.parametrize("ambient", [6, 40])
def test_two_nn_and_mle_agree_with_scikit_dimension(ambient):
    skdim = pytest.importorskip("skdim", reason="scikit-dimension is not installed")
    x = torus(400, 3, ambient=ambient)
    assert estimate(x, "two_nn").value == pytest.approx(skdim.id.TwoNN().fit(x).dimension_, rel=1e-6)
    for k in (5, 10, 20):
        theirs = skdim.id.MLE().fit(x, n_neighbors=k).dimension_
        assert estimate(x, "mle", n_neighbors=k).value == pytest.approx(theirs, rel=1e-6)


def test_two_nn_is_the_slope_through_the_origin():
    r = brute_distances(ball(200, 3), 2)
    x = np.sort(np.log(r[:, 1] / r[:, 0]))[:180]
    y = -np.log(1 - np.arange(1, 181) / 200)
    slope = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]
    assert estimate(ball(200, 3), "two_nn").value == pytest.approx(slope, rel=1e-9)


def test_mle_maximises_the_likelihood():
    """Inside the ball that ends at the k-th neighbour, the others' distances have density d r^(d - 1) / R^d."""
    r = brute_distances(ball(200, 3), 10)
    inside = np.log(r[:, :-1] / r[:, -1:])
    found = estimate(ball(200, 3), "mle").value

    def likelihood(d):
        return (math.log(d) + (d - 1) * inside).sum()

    assert likelihood(found) > max(likelihood(0.99 * found), likelihood(1.01 * found))


def test_a_kernel_without_an_end_gives_the_squared_gradients_of_the_coordinates(monkeypatch):
    """With all others as neighbours and a sharp kernel, Theorem 1's sum by W and L is the raw number and the value."""
    n, sharpness = 400, 50.0
    x = torus(n, 1)
    monkeypatch.setattr(dimension, "SHARPNESS", sharpness)
    farthest = brute_distances(x, n - 1)[:, -1]
    gradients, mass = 0.0, 0.0
    for i in range(0, n, 20):
        t = farthest[i] ** 2 / (4 * sharpness)
        W = heat_weights(knn(torch.tensor(x), n - 1), t).to_dense().numpy()
        np.fill_diagonal(W, 0)  # the point itself adds mass and no gradient
        L = np.diag(W.sum(1)) - W
        # the product rule: |grad u|^2 = (u L u - L (u^2) / 2) / t, up to the kernel's mass
        for u in x.T:
            gradients += (u[i] * (L @ u)[i] - (L @ u**2)[i] / 2) / t
        mass += W[i].sum()
    assert estimate(x, "theorem1", n_neighbors=n - 1).value == pytest.approx(gradients / mass, rel=0.02)
    assert gradients / mass == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("d", [0.3, 1.0, 2.0, 5.0, 17.5, 300.0])
@pytest.mark.parametrize("sharpness", [1.0, 8.0])
def test_the_correction_is_that_of_a_ball(d, sharpness, monkeypatch):
    monkeypatch.setattr(dimension, "SHARPNESS", sharpness)
    c, a = sharpness, d / 2

    def over_the_ball(power):  # v is the share of the ball's volume within a radius of v^(1 / d)
        return scipy.integrate.quad(lambda v: math.exp(-c * v ** (2 / d)) * v ** (power / d), 0, 1, limit=200)[0]

    raw = dimension._truncated(d)
    assert raw == pytest.approx(2 * c * over_the_ball(2) / over_the_ball(0), rel=1e-6)
    if d < 100:  # gamma itself overflows later
        lost = 2 * c**a * math.exp(-c) / (scipy.special.gammainc(a, c) * scipy.special.gamma(a))
        assert raw == pytest.approx(d - lost, rel=1e-6)
    assert dimension._untruncated(raw) == pytest.approx(d, rel=1e-6)


def test_without_the_correction_many_dimensions_look_like_few():
    x = np.random.default_rng(0).normal(size=(1000, 20))
    r = torch.tensor(brute_distances(x, 10))
    squared = (r[:, :-1] / r[:, -1:]).square()
    kernel = torch.exp(-8 * squared)
    raw = float(16 * (kernel * squared).sum() / kernel.sum())
    assert estimate(x).value == pytest.approx(dimension._untruncated(raw), rel=1e-9)
    assert raw < 0.75 * estimate(x).value


# ---- what must not matter


@EVERY_METHOD
def test_size_place_order_and_type_do_not_matter(method):
    x = ball(150, 3)
    first = estimate(x, method)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 3)))[0]
    for same in (1e-3 * x, x @ turn.T + 5, x[::-1].copy(), torch.tensor(x)):
        again = estimate(same, method)
        assert (again.value, again.error) == pytest.approx((first.value, first.error), rel=1e-6)
    assert estimate(torch.tensor(x).float(), method).value == pytest.approx(first.value, rel=1e-4)


@EVERY_METHOD
def test_copies_count_once(method):
    x = ball(100, 3)
    copied = np.concatenate([x, x[:30], x[:5]])
    assert estimate(copied, method).value == pytest.approx(estimate(x, method).value, rel=1e-12)
    assert estimate(copied, method).n_points == 100


@EVERY_METHOD
def test_one_point_many_times_has_dimension_zero(method):
    collapsed = np.concatenate([ball(100, 2), np.full((50, 2), 0.1)])
    found = estimate(collapsed, method, groups=[0] * 100 + [1] * 50)
    assert (found.by_group[1].value, found.by_group[1].error) == (0, 0)
    assert found.value == pytest.approx(found.by_group[0].value * 100 / 150)


# ---- groups


@EVERY_METHOD
def test_groups_are_estimated_apart(method):
    parts = {"curve": torus(60, 1, 1, 12), "left out": ball(9, 12), "sheet": torus(120, 2, 2, 12)}
    labels = np.repeat([0, -1, 1], [60, 9, 120])
    mixed = np.random.default_rng(0).permutation(len(labels))
    x = np.concatenate(list(parts.values()))
    found = estimate(x[mixed], method, groups=labels[mixed])
    assert list(found.by_group) == [0, 1]
    for name, label in (("curve", 0), ("sheet", 1)):
        alone = estimate(parts[name], method)
        assert (found.by_group[label].value, found.by_group[label].error) == pytest.approx((alone.value, alone.error))
    curve, sheet = found.by_group.values()
    assert found.value == pytest.approx((60 * curve.value + 120 * sheet.value) / 180)
    assert found.error == pytest.approx(math.hypot(60 * curve.error, 120 * sheet.error) / 180)
    assert found.n_points == 180


def test_groups_keep_their_names():
    x = ball(40, 2)
    assert list(estimate(x, groups=["b", "a"] * 20).by_group) == ["a", "b"]
    assert list(spread(x, groups=torch.tensor([4, 2] * 20)).participation.by_group) == [2, 4]


# ---- bad input


@pytest.mark.parametrize(
    ("points", "options", "words"),
    [
        ([[math.nan, 0.0]] * 9, {}, "NaN or infinite"),
        (np.zeros((3, 2, 2)), {}, "shape"),
        (np.ones((20, 2), int), {}, "floating point"),
        (ball(4, 2), {}, "4 different points"),
        (np.repeat(ball(3, 2), 10, 0), {}, "3 different points"),
        (ball(20, 2), {"groups": [0] * 17 + [7] * 3}, "group 7 has 3"),
        (ball(20, 2), {"groups": [-1] * 20}, "labelled -1"),
        (ball(20, 2), {"groups": [0] * 19}, "one label per point"),
        (ball(20, 2), {"method": "pca"}, "'theorem1', 'two_nn', 'mle', got 'pca'"),
        (ball(20, 2), {"n_neighbors": 2}, "at least 3"),
    ],
)
def test_bad_input_is_named(points, options, words):
    with pytest.raises(InputError, match=words):
        estimate(points, **options)


@EVERY_METHOD
def test_points_that_are_all_equally_far_have_no_dimension(method):
    with pytest.raises(InputError, match="equally far"):
        estimate(np.eye(12), method)


# ---- the live estimate


def test_live_is_mle_within_groups():
    x = torch.tensor(np.concatenate([torus(200, 1, 1, 8), torus(90, 3, 2, 8), ball(7, 8)]))
    labels = torch.tensor([0] * 200 + [1] * 90 + [2] * 7)
    groups = Groups(labels)
    found = NeighborSearch(groups, 20, once=True)(x)  # as an update has them: 20, with inf in the group of seven
    assert bool(found.distance.isinf().any())
    assert live(found.distance, groups.sizes) == pytest.approx(estimate(x, "mle", labels).value, rel=1e-9)
    twenty = estimate(x, "mle", labels, n_neighbors=20).value
    assert live(found.distance.float(), groups.sizes, 20) == pytest.approx(twenty, rel=1e-5)


def test_live_leaves_out_what_has_no_dimension():
    distance = knn(torch.tensor(ball(50, 2)), 10).distance
    alone = torch.full((1, 10), math.inf, dtype=distance.dtype)
    copies = torch.zeros(4, 10, dtype=distance.dtype)
    value = live(distance, [50])
    assert value is not None
    assert live(torch.cat([alone, distance, copies]), [1, 50, 4]) == pytest.approx(value)
    assert live(torch.cat([alone, copies]), [1, 4]) is None
    assert live(torch.ones(6, 10), [6]) is None


# ---- the variance


def test_the_spread_of_a_cloud_with_known_axes():
    signs = np.array([[a, b, c] for a in (-1.0, 1) for b in (-1.0, 1) for c in (-1.0, 1)])
    x = np.tile(signs, (10, 1)) * [3.0, 1.0, 0.1]  # eigenvalues 9, 1, 0.01
    found = spread(x)
    assert found.participation.value == pytest.approx(10.01**2 / (81 + 1 + 0.0001))
    assert found.components.value == 2  # 90 %, 99.9 %
    assert (found.within_share.value, found.within_share.error) == pytest.approx((1, 0), abs=1e-12)
    wide = np.concatenate([x, np.zeros((80, 200))], 1)  # fewer points than columns: the other Gram matrix
    assert spread(wide).participation.value == pytest.approx(found.participation.value)


def test_the_share_within_groups():
    x = np.array([[0.0], [2.0], [0.0], [2.0], [1.0], [10.0], [14.0], [10.0], [14.0], [12.0]])
    found = spread(x, groups=[0] * 5 + [1] * 5).within_share
    total = x.var()
    assert found.value == pytest.approx((0.8 + 3.2) / 2 / total)
    assert found.by_group[1].value == pytest.approx(3.2 / total)


def test_the_errors_of_the_spread_are_those_of_repeated_draws():
    labels = np.arange(200) % 2
    found = []
    for seed in range(40):
        x = np.random.default_rng(seed).normal(size=(200, 5)) * [3, 2, 1, 1, 0.5] + 3 * labels[:, None]
        found.append(spread(x, groups=labels, seed=seed))
    for name in ("within_share", "participation"):
        drawn = [getattr(each, name) for each in found]
        assert np.mean([d.error for d in drawn]) == pytest.approx(np.std([d.value for d in drawn]), rel=0.35)


def test_the_spread_of_a_group_that_is_one_point():
    x = np.concatenate([ball(30, 3), np.full((10, 3), 0.1)])
    found = spread(x, groups=[0] * 30 + [1] * 10)
    assert (found.participation.by_group[1].value, found.components.by_group[1].value) == (0, 0)
    with pytest.raises(InputError, match="all the same"):
        spread(np.full((10, 3), 0.1))


def test_the_seed_decides_the_folds():
    x = ball(60, 3)
    assert spread(x, seed=3) == spread(x, seed=3)
    assert spread(x, seed=3).participation.error != spread(x, seed=4).participation.error


# ---- the page


@pytest.mark.slow
def test_the_tables_of_the_page_are_those_of_the_records():
    root = Path(__file__).parents[1]
    command = [sys.executable, "benchmarks/dimension.py", "tables", "--check"]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@EVERY_METHOD
@pytest.mark.parametrize("n", [8, 11, 15, 30])
def test_the_error_of_a_small_group_is_that_of_repeated_draws_or_up_to_twice_it(method, n):
    draws = [estimate(torch.randn(n, 2, generator=torch.Generator().manual_seed(i)), method) for i in range(40)]
    told, true = statistics.fmean(draw.error for draw in draws), statistics.stdev(draw.value for draw in draws)
    least = 0.55 if method == "two_nn" else 0.9  # its neighbourhoods are three points: no jackknife above nine
    assert least * true < told < 2.5 * true


def test_half_precision_odd_scales_and_odd_numbers(says):
    cloud = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    whole = estimate(cloud.half().float()).value
    assert estimate(cloud.half()).value == estimate(cloud.half().numpy()).value == whole
    for scale in (1e-100, 1e-81, 1e80):
        found, plain = spread(cloud.double() * scale), spread(cloud)
        assert found.participation.value == pytest.approx(plain.participation.value, rel=1e-6)
    with says(InputError):
        estimate(torch.zeros(10, 0))
    with says(InputError):
        estimate(cloud, n_neighbors=3.5)
    assert estimate(cloud, n_neighbors=np.int64(12)) == estimate(cloud, n_neighbors=12)


def test_a_tiny_group_beside_a_large_one_has_its_own_spread():
    cloud = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone = spread(cloud[:10]).participation.value
    groups = [0] * 10 + [1] * 10
    for scale in (1.0, 1e-80, 1e-100):
        found = spread(torch.cat([scale * cloud[:10], cloud[10:]]), groups)
        assert found.participation.by_group[0].value == pytest.approx(alone)
    assert found.within_share.by_group[0].value < 1e-90


@EVERY_METHOD
def test_the_error_of_a_group_of_hundreds_with_as_many_neighbours(method):
    """A tenth is left out at a time; the error is that of repeated draws, or up to twice it."""
    draws = [torch.randn(150, 2, generator=torch.Generator().manual_seed(i)) for i in range(20)]
    found = [estimate(draw, method, n_neighbors=60) for draw in draws]
    told, true = statistics.fmean(each.error for each in found), statistics.stdev(each.value for each in found)
    assert 0.5 * true < told < 2.5 * true
