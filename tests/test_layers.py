"""Data flows down: a module imports only from what stands above it."""

import ast
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ldmnet

PACKAGE = Path(ldmnet.__file__).parent
ORDER = [
    "errors",
    "files",
    "locks",
    "seeds",
    "fingerprints",
    "palette",
    "imported",
    "saved",
    "graph",
    "pim",
    "dimension",
    "updates",
    "settings",
    "seen",
    "strength",
    "iteration",
    "distributed",
    "regularizer",
    "networks",
    "training",
    "integrations",
    "data",
    "matching",
    "records",
    "runs",
    "paper",
    "report",
]
EXEMPT = {"__init__", "__main__", "cli"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
OPTIONAL = {
    "mlxtend",
    "matplotlib",
    "sklearn",
    "pandas",
    "lightning",
    "transformers",
    "optuna",
    "onnx",
    "tensorboard",
    "PIL",
    "plotly",
}
FILES = sorted(PACKAGE.rglob("*.py"))


def dotted(path):
    """graph/weights.py -> ("graph", "weights"); graph/__init__.py -> ("graph", "__init__")."""
    return path.relative_to(PACKAGE).with_suffix("").parts


def is_module(parts):
    place = PACKAGE.joinpath(*parts)
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def imports(path):
    """What a file imports of this package, wherever in it, as parts below `ldmnet`; () is the package itself."""
    found = set()
    here = dotted(path)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                parts = tuple(name.name.split("."))
                if parts[0] == "ldmnet" and not (parts == ("ldmnet",) and only_the_version(tree)):
                    found.add(parts[1:])
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = here[: len(here) - node.level] + tuple((node.module or "").split(".") if node.module else ())
            else:
                parts = tuple((node.module or "").split("."))
                if parts[0] != "ldmnet":
                    continue
                base = parts[1:]
            for name in node.names:
                if (*base, name.name) == ("__version__",):
                    continue
                found.add((*base, name.name) if is_module((*base, name.name)) else base)
    return found


def only_the_version(tree):
    """Whether `ldmnet.__version__` is all that is taken from the package itself."""
    taken = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ldmnet"
    }
    return taken <= {"__version__"}


def ids(path):
    return "/".join(dotted(path))


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_a_module_imports_only_from_what_stands_above_it(path):
    layer = dotted(path)[0]
    if layer in EXEMPT:
        return
    assert layer in ORDER, f"{layer} has no place in the order yet: give it one"
    for target in imports(path):
        assert target, f"{ids(path)} imports from the package itself: name the module"
        assert target[0] not in EXEMPT, f"{ids(path)} imports {target[0]}"
        if target[0] != layer:
            assert target[0] in ORDER
            assert ORDER.index(target[0]) < ORDER.index(layer), f"{ids(path)} imports {'.'.join(target)} from below"


def test_siblings_do_not_import_in_circles():
    graph = {}
    for path in FILES:
        parts = dotted(path)
        if parts[0] in EXEMPT or parts[-1] == "__init__":
            continue
        targets = {t if is_module(t) else t[:-1] for t in imports(path)}
        graph[parts] = {t for t in targets if t != parts}
    list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_no_module_has_a_vague_name(path):
    assert not VAGUE & set(dotted(path))


@pytest.mark.slow
def test_importing_the_package_pulls_in_nothing_optional():
    code = "import sys, ldmnet; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
    loaded = set(out.split())
    assert "ldmnet" in loaded
    assert not OPTIONAL & loaded


def test_every_public_name_is_there():
    assert all(hasattr(ldmnet, name) for name in ldmnet.__all__)
    assert len(set(ldmnet.__all__)) == len(ldmnet.__all__)


def test_the_package_has_few_names_and_every_one_is_there():
    import ldmnet

    assert len(ldmnet.__all__) <= 16
    assert all(hasattr(ldmnet, name) for name in ldmnet.__all__)
    assert not [name for name in ldmnet.__all__ if name.endswith(("Error", "Warning"))]  # these are in ldmnet.errors
