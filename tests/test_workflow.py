"""The public workflow and the pre-commit hooks name versions, commands and targets that are there."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")
ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text()


def workflow():
    return yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]


def commands(job):
    return [step["run"] for step in workflow()[job]["steps"] if "run" in step]


def test_every_python_from_the_oldest_on_is_tested():
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', PROJECT)[1]
    versions = workflow()["python"]["strategy"]["matrix"]["python"]
    assert versions == [f"3.{minor}" for minor in range(int(oldest), 14)]
    assert {"3.10"} == {step["with"]["python-version"] for step in workflow()["oldest"]["steps"] if "with" in step}


def test_the_oldest_versions_are_the_lower_bounds():
    install, tests = commands("oldest")
    given = dict(re.findall(r"(\w+)==([\d.]+)", install))
    assert set(given) == {"torch", "numpy", "scipy"}
    for name, version in given.items():
        bound = re.search(rf'"{name}>=([\d.]+)"', PROJECT)[1]
        assert version.startswith(bound + "."), name
    assert all((ROOT / path).exists() for path in re.findall(r"tests/\S+", tests))


def test_its_make_targets_are_there():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    used = [word for job in workflow() for line in commands(job) for word in re.findall(r"make ([\w-]+)", line)]
    assert used == ["test", "docs"]
    assert set(used) <= set(targets)


def test_the_hooks_are_the_tools_of_make_lint():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tools = [hook["entry"].removeprefix(".venv/bin/").split(" --")[0] for hook in local["hooks"]]
    assert tools == ["ruff check", "ruff format", "mypy"]
    lint = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    assert all(f"$(BIN)/{tool}" in lint for tool in tools)
    pins = (ROOT / "constraints.txt").read_text().split()
    assert {"ruff", "mypy"} <= {pin.split("==")[0] for pin in pins}
