"""Without any of the extras the core works, and whatever needs one names it and the line that installs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ldmnet

pytestmark = pytest.mark.slow  # an environment without extras

SOURCE = Path(ldmnet.__file__).parents[1]
EXTRAS = {
    "integrations.sklearn": ("scikit-learn 1.6 or newer", "sklearn"),
    "integrations.lightning": ("lightning", "lightning"),
    "integrations.transformers": ("transformers with accelerate", "transformers"),
    "integrations.tensorboard": ("tensorboard", "tensorboard"),
}
COMMANDS = {
    "tune table.csv --epochs 4": ("optuna", "tune"),
    "export run": ("onnx with onnxscript", "onnx"),
    "train table.csv --epochs 4 --tensorboard --output other": ("tensorboard", "tensorboard"),
    "train photos": ("Pillow", "demo"),
    "train table.csv --encoder model --text a --output encoded": ("transformers with accelerate", "transformers"),
    "compare table.csv --methods svm --epochs 1 --splits 1": ("scikit-learn 1.6 or newer", "sklearn"),
    "demo --quick": ("mlxtend", "demo"),
    "demo --faces": ("mlxtend", "demo"),
    "figure 3": ("matplotlib", "demo"),
    "report run": ("plotly", "report"),
}
# hides every package that is not a requirement of the core, then says what happens
BARE = """
import importlib, json, sys
from importlib.machinery import PathFinder

HIDDEN = {"mlxtend", "matplotlib", "sklearn", "pandas", "PIL", "lightning", "pytorch_lightning", "transformers",
          "accelerate", "optuna", "onnx", "onnxscript", "onnxruntime", "tensorboard", "plotly", "mkdocs"}

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in HIDDEN else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
import ldmnet
from click.testing import CliRunner
from ldmnet.cli import main
said = {}
for command in json.loads(sys.argv[1]):
    result = CliRunner().invoke(main, command.split())
    said[command] = [result.exit_code, result.output]
for module in json.loads(sys.argv[2]):
    try:
        importlib.import_module(f"ldmnet.{module}")
        said[module] = "it was imported"
    except ldmnet.errors.MissingExtraError as error:
        said[module] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    (folder / "table.csv").write_text("a,b,label\n" + "\n".join(f"{i},{i % 3},{'uv'[i // 6]}" for i in range(12)))
    for name in ("u", "v"):
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "photos" / name / "0.png").write_bytes(b"not looked at")
    (folder / "results").mkdir()
    row = {
        "table": "mnist",
        "per_class": 50,
        "method": "none",
        "seed": 0,
        "accuracy": 90.0,
        "n_test": 9,
        "n_train": 500,
        "hash": "h",
        "settings": {},
    }
    record = {**row, "selection": "printed", "paper": None, "train_loss": 0.1, "test_loss": 0.2, "format": 1}
    (folder / "results" / "mnist.jsonl").write_text(json.dumps(record) + "\n")
    commands = ["train table.csv --epochs 4", "predict run table.csv", "table mnist", *COMMANDS]
    words = [sys.executable, "-c", BARE, json.dumps(commands), json.dumps(list(EXTRAS))]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", ["train table.csv --epochs 4", "predict run table.csv", "table mnist"])
def test_the_core_needs_no_extra(said, command):
    code, output = said[command]
    assert code == 0, output


@pytest.mark.parametrize(("module", "missing"), EXTRAS.items())
def test_an_integration_names_its_extra(said, module, missing):
    package, extra = missing
    assert said[module] == f"{package} is not installed. Install it with: pip install 'ldmnet[{extra}]'"


@pytest.mark.parametrize(("command", "missing"), COMMANDS.items())
def test_a_command_names_its_extra(said, command, missing):
    package, extra = missing
    code, output = said[command]
    assert code == 2, output
    assert output.endswith(f"Error: {package} is not installed. Install it with: pip install 'ldmnet[{extra}]'\n")


def test_every_extra_is_in_pyproject_and_the_other_way_round():
    text = (SOURCE.parent / "pyproject.toml").read_text()
    part = text.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    listed = {line.split(" = ")[0] for line in part.splitlines() if " = [" in line}
    named = {extra for _, extra in (*EXTRAS.values(), *COMMANDS.values())}
    assert named == listed - {"dev", "docs"}
