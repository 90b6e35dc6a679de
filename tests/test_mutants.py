"""Known mistakes, put back one by one into a copy of the package: the tests must notice each of them.

A patch in `mutants/` says on its first line what the mistake is, and after `tests:` which files must fail.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


def files_named_in(patch):
    line = next(line for line in patch.read_text().splitlines() if line.startswith("tests: "))
    return line.removeprefix("tests: ").split()


def copy_of_src(folder):
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),  # the copy is no repository, nor part of one
        "OMP_NUM_THREADS": "1",
    }


THE_COPY = """
import sys, ldmnet, pytest
assert ldmnet.__file__.startswith(sys.argv[1]), f"{ldmnet.__file__} is not the copy in {sys.argv[1]}"
sys.exit(100 + pytest.main(sys.argv[2:]))
"""
PASSED, FAILED = 100, 101  # pytest's own codes and a hundred: an error before pytest ends with 1


def run_tests(files, env, folder):
    """How pytest ends on the copy, and what it prints; that it is the copy is checked first."""
    words = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *files]
    command = [sys.executable, "-c", THE_COPY, str(folder / "src"), *words]
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_every_patch_names_tests_that_exist():
    assert len(PATCHES) >= 14
    for patch in PATCHES:
        assert files_named_in(patch)
        assert all((ROOT / name).is_file() for name in files_named_in(patch))


@pytest.mark.slow
def test_without_a_mistake_the_same_tests_pass(tmp_path):
    files = sorted({name for patch in PATCHES for name in files_named_in(patch)})
    code, printed = run_tests(files, copy_of_src(tmp_path), tmp_path)
    assert code == PASSED, printed


def ended_with(patch, folder):
    """How the tests end that must notice a mistake, and what they print."""
    env = copy_of_src(folder)
    subprocess.run(["git", "apply", str(patch)], cwd=folder, env=env, check=True)
    return run_tests(files_named_in(patch), env, folder)


@pytest.fixture(scope="module")
def endings(request, tmp_path_factory):
    """Patch -> its tests' end, in the future: as many run side by side as there are cores."""
    items = [item for item in request.session.items if item.name.startswith("test_the_mistake_is_caught[")]
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        patches = [item.callspec.params["patch"] for item in items]
        yield {patch: workers.submit(ended_with, patch, tmp_path_factory.mktemp("mutant")) for patch in patches}
        workers.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_the_mistake_is_caught(endings, patch):
    code, printed = endings[patch].result()
    assert code == FAILED, printed
