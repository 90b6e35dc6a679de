import pytest

from ldmnet.records.ranks import alike, average_ranks, critical_difference, draw_ranks, friedman_p


def test_ranks_are_shared_by_equals_and_sum_to_a_constant():
    scores = {"a": {"x": 3.0, "y": 2.0, "z": 2.0}, "b": {"x": 1.0, "y": 5.0, "z": 4.0, "only here": 9.0}}
    ranks = average_ranks(scores)
    assert ranks == {"x": 2.0, "y": 1.75, "z": 2.25}
    assert list(ranks) == ["y", "x", "z"]
    assert sum(ranks.values()) == 6
    assert average_ranks({}) == {}


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_has_the_printed_values(k, q):
    """Demšar (2006), table 5(a), at 0.05."""
    assert critical_difference(k, 14) == pytest.approx(q * (k * (k + 1) / (6 * 14)) ** 0.5, abs=2e-3)


def test_friedmans_p_is_of_the_ranks():
    """Where there are no ties, from the average ranks, as Demšar (2006) writes it."""
    stats, numpy = pytest.importorskip("scipy.stats"), pytest.importorskip("numpy")
    values, n, k = numpy.random.default_rng(0).normal(size=(9, 4)) + numpy.arange(4) * 0.5, 9, 4
    scores = {str(i): dict(zip("abcd", row, strict=True)) for i, row in enumerate(values.tolist())}
    ranks = average_ranks(scores)
    statistic = 12 * n / (k * (k + 1)) * (sum(r * r for r in ranks.values()) - k * (k + 1) ** 2 / 4)
    assert friedman_p(scores, list(ranks)) == pytest.approx(float(stats.chi2.sf(statistic, k - 1)), rel=1e-6)


def test_groups_are_the_largest_runs_within_the_difference():
    ranks = {"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0, "e": 9.0}
    assert alike(ranks, 1.0) == [("a", "b"), ("b", "c")]
    assert alike(ranks, 3.0) == [("a", "b", "c", "d")]
    assert alike(ranks, 0.1) == []


def test_the_plot_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    draw_ranks({"none": 3.0, "ldmnet": 1.2, "mixup": 1.8}, 10, tmp_path / "deep" / "ranks.png")
    assert (tmp_path / "deep" / "ranks.png").stat().st_size > 1000
