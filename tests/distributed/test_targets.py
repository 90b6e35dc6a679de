"""The same targets from one, two, three and four processes."""

import math

import jobs
import pytest
import torch

CASES = list(jobs.cases())


def close(a, b, within=1e-5):
    assert torch.equal(a.isnan(), b.isnan())
    a, b = a.nan_to_num(), b.nan_to_num()
    assert float((a - b).norm() / b.norm()) < within


@pytest.mark.parametrize("mass", ["lumped", "consistent"])
@pytest.mark.parametrize("name", CASES)
def test_targets_do_not_depend_on_the_number_of_processes(pool, name, mass):
    [(alone, mu, log)] = pool(1, jobs.updates, name, mass)
    for size in (2, 3, 4):
        for target, their_mu, their_log in pool(size, jobs.updates, name, mass):
            close(target, alone)
            assert their_mu == mu
            for mine, theirs in zip(log, their_log, strict=True):
                for key in ("status", "solver_steps", "negative_curvature"):
                    if "sharded" not in name and "no groups" not in name and "large" not in name:
                        assert theirs[key] == mine[key]
                for key in ("move", "dual", "energy", "dimension", "penalty"):
                    assert (mine[key] is None) == (theirs[key] is None)
                    assert mine[key] is None or math.isclose(mine[key], theirs[key], rel_tol=2e-3, abs_tol=1e-6), key


@pytest.mark.parametrize("mass", ["lumped", "consistent"])
@pytest.mark.parametrize("classes", [True, False], ids=["owned", "sharded"])
def test_digits_have_the_same_targets_by_any_number_of_processes(pool, mass, classes):
    [alone] = pool(1, jobs.digits_updates, mass, classes, jobs.SHARDED)
    for size in (2, 3, 4):
        for target in pool(size, jobs.digits_updates, mass, classes, jobs.SHARDED):
            close(target, alone)


@pytest.mark.parametrize("name", ["five classes", "a large class and small ones"])
def test_with_inputs_and_features_in_the_graph(pool, name):
    [(alone, *_)] = pool(1, jobs.updates, name, "lumped", 2, True)
    for size in (2, 3):
        for target, *_ in pool(size, jobs.updates, name, "lumped", 2, True):
            close(target, alone)


def test_the_strength_is_one_number_in_all_processes(pool):
    """The rule without a unit: its spread, its share within classes and what penalty saw, over all processes."""
    [(_, alone, log)] = pool(1, jobs.updates, "five classes", "lumped", 4, False, {"strength": 0.3}, True)
    assert alone > 0
    for size in (2, 3, 4):
        answers = pool(size, jobs.updates, "five classes", "lumped", 4, False, {"strength": 0.3}, True)
        assert len({mu for _, mu, _ in answers}) == 1
        assert math.isclose(answers[0][1], alone, rel_tol=1e-2)  # the batches' spread is of smaller batches
        assert [u["strength"] for u in answers[0][2]] == [u["strength"] for u in log]
