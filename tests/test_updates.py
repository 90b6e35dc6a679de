import math

import pytest
import torch

from clouds import cloud
from ldmnet import ManifoldRegularizer
from ldmnet.errors import NumericalWarning
from ldmnet.updates import SCALARS


def made(**options):
    x, y = cloud(30, 6, dtype=torch.float32), torch.arange(30) % 3
    return ManifoldRegularizer(x, y, mu=0.1, lambda_tilde=0.5, n_neighbors=6, sigma_neighbor=4, **options)


def test_the_numbers_of_an_update_by_name():
    regularizer = made()
    first = regularizer.step(cloud(30, 8, seed=1, dtype=torch.float32))
    numbers = first.scalars()
    assert "ldmnet/penalty" not in numbers  # nothing came before the first
    assert "ldmnet/strength" not in numbers  # the paper's numbers have a unit
    assert (numbers["ldmnet/energy"], numbers["ldmnet/mu"], numbers["ldmnet/status"]) == (first.energy, 0.1, 0.0)
    assert numbers["ldmnet/seconds"] == sum(first.seconds.values())
    regularizer.penalty(cloud(30, 8, seed=2, dtype=torch.float32), torch.arange(30))
    second = regularizer.step(cloud(30, 8, seed=2, dtype=torch.float32)).scalars()
    assert second["ldmnet/penalty"] > 0
    assert set(second) == {f"ldmnet/{name}" for name in (*SCALARS, "status", "seconds")} - {"ldmnet/strength"}
    assert all(isinstance(value, float) and math.isfinite(value) for value in second.values())
    without_unit = ManifoldRegularizer(groups=torch.arange(30) % 3, n_neighbors=6, sigma_neighbor=4)
    assert without_unit.step(cloud(30, 8)).scalars()["ldmnet/strength"] == 0


def test_a_solve_that_ended_early_has_another_status():
    with pytest.warns(NumericalWarning, match="STEP_LIMIT"):
        limited = made(max_steps=1, tol=1e-9).step(cloud(30, 8, dtype=torch.float32))
    assert limited.scalars()["ldmnet/status"] == 1


@pytest.mark.parametrize("offset", [0.0, 3e3, 1e4])
def test_the_energy_does_not_depend_on_where_the_features_are(offset):
    f, moved = cloud(60, 8, seed=1), cloud(60, 8, seed=2)
    energies = []
    for shift, dtype in ((0.0, torch.float64), (offset, torch.float32)):
        regularizer = ManifoldRegularizer(groups=torch.arange(60) % 3, mu=1.0, lambda_tilde=5.0)
        energies.append([regularizer.step((part + shift).to(dtype)).energy for part in (f, moved)])
    assert energies[1] == pytest.approx(energies[0], rel=0.02)


def test_the_dimension_of_every_update_is_that_of_the_graphs_points():
    draw = torch.Generator().manual_seed(0)
    place = torch.rand(200, generator=draw)
    curves = torch.stack([place.sin(), place.cos(), place], 1)
    sheets = torch.cat([torch.rand(200, 2, generator=draw), torch.zeros(200, 1)], 1)
    for points, truth in ((curves, 1), (sheets, 2)):
        regularizer = ManifoldRegularizer(groups=torch.arange(200) % 2, mu=0.1, lambda_tilde=0.5)
        update = regularizer.step(points)
        assert update.dimension == pytest.approx(truth, rel=0.15)
        assert update.scalars()["ldmnet/dimension"] == update.dimension
    control = ManifoldRegularizer(groups=torch.arange(200) % 2, mu=0.1, lambda_tilde=0.0)
    assert control.step(curves).dimension is None
