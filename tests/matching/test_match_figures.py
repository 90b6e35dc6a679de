import pytest
import torch
from made_up import people_table

from ldmnet.matching.embeddings import plane
from ldmnet.records.figures import cmc_figure, people_figure


def test_points_that_spread_in_no_direction_lie_at_zero():
    assert torch.equal(plane(torch.zeros(4, 3)), torch.zeros(4, 2, dtype=torch.float64))


def test_the_pictures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    table = people_table()
    x, y = plane(table.x).T.tolist()
    points = {"x": x, "y": y, "person": table.identity.tolist(), "modality": table.modality.tolist()}
    pictures = [
        people_figure({"one": points, "two": points}, ("A", "B"), tmp_path / "new" / "figure2.png", title="people"),
        cmc_figure({"ldmnet": ("one", [50.0, 75.0, 100.0]), "pca": ("two", [100.0])}, tmp_path / "cmc.png"),
    ]
    assert all(picture.read_bytes()[:4] == b"\x89PNG" for picture in pictures)
