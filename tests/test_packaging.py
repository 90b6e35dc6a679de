"""The wheel installs into an empty environment and runs the quick demo.

The largest packages are not unpacked anew, which would take minutes: `LINKED` are linked from the environment of the
tests, with their metadata, so that pip takes them for installed and checks their versions. Everything else is installed
by pip, by the wheel's own requirements and the versions of constraints.txt.
"""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_string
from importlib.metadata import distribution
from pathlib import Path

import pytest

import ldmnet

ROOT = Path(__file__).parents[1]
LINKED = ("torch", "numpy", "scipy", "pandas", "scikit-learn", "matplotlib", "fonttools", "sympy", "networkx", "pillow")
pytestmark = pytest.mark.slow


def run(*words, cwd, **env):
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(word) for word in words]
    return subprocess.run(command, cwd=cwd, env={**clean, **env}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source archive, the wheel built from the archive."""
    pytest.importorskip("build", reason="the package build is not installed")
    folder = tmp_path_factory.mktemp("dist")
    asked = run(
        sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder / "asked", "hatchling", cwd=folder
    )
    if asked.returncode != 0:
        pytest.skip(f"pip reaches no package index: {asked.stderr.strip().splitlines()[-1]}")
    done = run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory):
    """An environment with the wheel and its extra `demo`; the folder of its programs."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    site = next(folder.glob("lib/python*/site-packages"), folder / "Lib" / "site-packages")
    for package in map(distribution, LINKED):
        for top in {Path(str(file)).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(Path(str(package.locate_file(top))).resolve())
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = built.glob("*.whl")
    pip = [programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = run(*pip, "-c", ROOT / "constraints.txt", f"{wheel}[demo]", cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return programs


def test_what_is_in_the_wheel_and_in_the_archive(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = f"ldmnet-{ldmnet.__version__}.dist-info"
        metadata = message_from_string(archive.read(f"{info}/METADATA").decode())
        assert "ldmnet = ldmnet.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert {name.split("/")[0] for name in names} == {"ldmnet", info}
    source = ROOT / "src" / "ldmnet"
    kept = {str(path.relative_to(source.parent)) for path in source.rglob("*") if path.is_file()}
    assert {name for name in kept if "__pycache__" not in name} <= set(names)
    assert metadata["Requires-Python"] == ">=3.10"
    assert "torch>=2.4" in metadata.get_all("Requires-Dist")
    extras = {"demo", "sklearn", "lightning", "transformers", "tune", "tensorboard", "onnx", "report", "docs", "dev"}
    assert set(metadata.get_all("Provides-Extra")) >= extras
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        inside = {name.split("/", 1)[1] for name in packed.getnames() if "/" in name}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/ldmnet/py.typed", "Makefile", "mkdocs.yml"}
    assert (
        wanted | {"docs/start.md", "examples/01_plain_loop.py", "tests/test_packaging.py", "constraints.txt"} <= inside
    )
    assert not [name for name in inside if name.startswith(("site/", "runs/", "build/"))]


def test_the_quick_demo_runs_where_only_the_wheel_is(environment, tmp_path):
    where = run(environment / "python", "-c", "import ldmnet; print(ldmnet.__file__)", cwd=tmp_path)
    assert str(environment.parent) in where.stdout, where.stderr
    version = run(environment / "ldmnet", "--version", cwd=tmp_path)
    assert version.stdout == f"ldmnet, version {ldmnet.__version__}\n"
    done = run(environment / "ldmnet", "demo", "--quick", "--output", "out", cwd=tmp_path, OMP_WAIT_POLICY="PASSIVE")
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert [record["method"] for record in records] == ["none", "weight_decay", "dropout", "control", "ldmnet"]
    assert (tmp_path / "out" / "figure1.png").stat().st_size > 10_000


def test_an_extra_that_is_not_there_is_named(environment, tmp_path):
    (tmp_path / "table.csv").write_text("a,b,label\n" + "\n".join(f"{i},{i % 2},{'uv'[i % 2]}" for i in range(12)))
    tuned = run(environment / "ldmnet", "tune", "table.csv", "--label", "label", "--epochs", "1", cwd=tmp_path)
    assert tuned.returncode == 2
    assert tuned.stderr == "Error: optuna is not installed. Install it with: pip install 'ldmnet[tune]'\n"
    trained = run(environment / "ldmnet", "train", "table.csv", "--epochs", "60", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
