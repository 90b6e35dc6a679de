import pytest
from rich.console import Console

from ldmnet.paper import figure1


@pytest.mark.slow
def test_a_method_that_diverged_has_no_panel(monkeypatch, tmp_path, capsys):
    seen = []
    monkeypatch.setattr(figure1, "execute", lambda run, **more: {"diverged": "the loss is not finite in epoch 3."})
    monkeypatch.setattr(figure1, "feature_figure", lambda panels, labels, output, title: seen.append(list(panels)))
    where = {"runs_dir": tmp_path, "data_dir": None, "console": Console()}
    figure1.draw_features("digits5k", 50, 0, tmp_path / "f.png", **where)
    assert seen == [["test images"]]
    assert "LDMNet is left out: the loss is not finite in epoch 3." in capsys.readouterr().out
