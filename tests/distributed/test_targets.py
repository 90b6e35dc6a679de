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
