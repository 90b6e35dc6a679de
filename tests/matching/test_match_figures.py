import pytest
import torch
from made_up import people_table

from ldmnet.matching.figures import cmc_figure, people_figure, scatter_points


def test_five_people_in_two_dimensions():
    table = people_table()
    points = scatter_points(table.x, table.identity, table.modality)
    assert set(points["person"]) == set(range(5))
    assert {len(column) for column in points.values()} == {5 * 6}
    assert set(points["modality"]) == {0, 1}
    flat = scatter_points(torch.zeros(4, 3), torch.arange(4), torch.arange(4) % 2)
    assert flat["x"] == flat["y"] == [0.0] * 4


def test_the_pictures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    table = people_table()
    points = scatter_points(table.x, table.identity, table.modality)
    pictures = [
        people_figure({"one": points, "two": points}, ("A", "B"), tmp_path / "new" / "figure2.png", title="people"),
        cmc_figure({"one": [50.0, 75.0, 100.0], "two": [100.0]}, tmp_path / "cmc.png"),
    ]
    assert all(picture.read_bytes()[:4] == b"\x89PNG" for picture in pictures)
