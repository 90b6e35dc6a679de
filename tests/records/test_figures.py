from dataclasses import replace

import pytest
import torch

from ldmnet.errors import DataError

pytest.importorskip("matplotlib")

from ldmnet.matching.embeddings import plane
from ldmnet.records import Record
from ldmnet.records.figures import error_figure, feature_figure


def test_pca_keeps_the_directions_of_most_variance():
    draw = torch.Generator().manual_seed(0)
    points = torch.randn(200, 6, generator=draw) * torch.tensor([5.0, 3, 0.1, 0.1, 0.1, 0.1])
    flat = plane(points)
    assert flat.shape == (200, 2)
    share = flat.var(0).sum() / points.double().var(0).sum()
    assert share > 0.99


def test_feature_figure_draws_a_panel_a_method(tmp_path, monkeypatch):
    drawn = []
    from matplotlib.axes import Axes

    monkeypatch.setattr(Axes, "set_title", lambda self, title, **_: drawn.append(title))
    points, labels = torch.randn(60, 5), torch.arange(60) % 3
    path = feature_figure({"a": points, "b": points.view(60, 1, 5)}, labels, tmp_path / "new" / "figure.png")
    assert drawn == ["a", "b"]
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_error_figure_needs_records(tmp_path):
    record = Record(
        table="mnist",
        method="ldmnet",
        seed=0,
        per_class=50,
        hash="h",
        settings={},
        n_train=500,
        accuracy=95.0,
        more={"test_loss": 0.2, "train_loss": 0.1},
    )
    more = replace(record, per_class=100, n_train=1000)
    path = error_figure([record, more, replace(more, method="dropout_tuned")], "mnist", tmp_path / "figure.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
    for records in (
        [replace(record, table="svhn")],  # another table's
        [replace(record, accuracy=None)],  # it diverged
        [replace(record, method="a variation")],
        [replace(record, more={})],  # matching has none
    ):
        with pytest.raises(DataError, match="there are no records of a table 'mnist' with a test loss"):
            error_figure(records, "mnist", path)
