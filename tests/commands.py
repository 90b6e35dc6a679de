"""Someone's own data, commands that are run on it within the test, and what they said."""

import shutil
import sys
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.runs import network as network_module

CLASSES = ["<script>", "[red]", "plain"]


QUICK = ["--net", "mlp", "--epochs", "4"]


def invoke(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


UNUSED = "warning: the regulariser was not in force: "


def told_by(result):
    """The lines on the standard error, but for the one that a training too short for the pull ends with."""
    return [line for line in result.stderr.splitlines() if not line.startswith(UNUSED)]


def done(*words):
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words):
    result = invoke(*words)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    return result.output.strip().splitlines()[-1].removeprefix("Error: ")


LOST = "the training loss is 1.2, above chance. Lower lr."


@pytest.fixture
def photos(tmp_path):
    """A bright bar that stands elsewhere in each class, in images of two sizes."""
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    rng = np.random.default_rng(0)
    for c, name in enumerate(CLASSES):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 60, (20, 24 + i % 2, 3), np.uint8)
            pixels[4:16, 3 + 7 * c : 8 + 7 * c] = 200
            image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i:02d}.png")
    return tmp_path / "photos"


@pytest.fixture
def table(tmp_path):
    """Three blobs with names, the label in the middle column."""
    rng = np.random.default_rng(0)
    rows = ["a;species;b;c"]
    for i in range(60):
        a, b, c = 100 + 5 * rng.normal(size=3) + 20 * np.eye(3)[i % 3]
        rows.append(f"{a:.3f};{['oak', 'elm', '<b>ash</b>'][i % 3]};{b:.3f};{c:.3f}")
    path = tmp_path / "trees.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def own_net(tmp_path, monkeypatch):
    """Writes mynets.py with a network, as an editor would between two commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(made):
        lines = ["import random", "from torch import nn", "from ldmnet.networks import FeatureNet, mlp"]
        (tmp_path / "mynets.py").write_text("\n".join([*lines, f"def small(d, c):\n    return {made}\n"]))
        sys.modules.pop("mynets", None)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)

    yield write
    sys.modules.pop("mynets", None)


@pytest.fixture
def ending_badly(monkeypatch):
    """A fit that ends badly for some methods, and warns of something else on the way."""
    plain, methods = network_module.fit_network, []

    def fit(*args, method, **options):
        for _ in range(2):
            warnings.warn("the solver  was\nslow", UserWarning, stacklevel=1)
        found = plain(*args, method=method, **options)
        if method.name in methods:
            found.ended_badly = LOST
        return found

    monkeypatch.setattr(network_module, "fit_network", fit)
    return methods
