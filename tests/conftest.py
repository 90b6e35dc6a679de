"""Puts this folder on the path, so that every test can say `from reference import ...`; the fixture `says`."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from commands import ending_badly, own_net, photos, table  # noqa: E402, F401 -- fixtures


@pytest.fixture(autouse=True)
def _one_thread_for_small_tensors():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def pool():
    """Processes for the tests in `distributed`, one pool for the whole run."""
    from workers import Pool

    made = Pool()
    yield made
    made.end()


# ---- messages pinned word for word: tests/messages.json, renewed by `make snapshots`

MESSAGES = Path(__file__).with_name("messages.json")
PINNED = json.loads(MESSAGES.read_text(encoding="utf-8")) if MESSAGES.exists() else {}
SEEN = {}


def pytest_addoption(parser):
    parser.addoption(
        "--renew-messages", action="store_true", help="write tests/messages.json again from what is raised"
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("renew_messages"):
        items[:] = [item for item in items if "says" in getattr(item, "fixturenames", ())]
        config.pinned_tests = {key_of(item) for item in items}


def key_of(item):
    return f"{item.path.stem}: {item.name}"


@pytest.fixture
def says(request):
    """`with says(InputError):` checks that the block raises it with the words in tests/messages.json."""
    name, folder = key_of(request.node), request.node.funcargs.get("tmp_path")
    raised = []

    @contextmanager
    def expect(kind):
        with pytest.raises(kind) as found:
            yield found
        words = str(found.value)
        raised.append(words if folder is None else words.replace(str(folder), "TMP"))
        if not request.config.getoption("renew_messages"):
            pinned = PINNED.get(name, [])
            assert len(raised) <= len(pinned), f"no message is pinned for {raised[-1]!r}: run make snapshots"
            assert raised[-1] == pinned[len(raised) - 1]

    yield expect
    if request.config.getoption("renew_messages"):
        assert SEEN.setdefault(name, raised) == raised, f"two tests are called {name}"


def pytest_sessionfinish(session):
    """Keep what was pinned for tests that did not run here, drop tests that are gone."""
    if session.config.getoption("renew_messages") and hasattr(session.config, "pinned_tests"):
        whole = session.config.args_source.name == "TESTPATHS"
        kept = {name: words for name, words in PINNED.items() if not whole or name in session.config.pinned_tests}
        text = json.dumps(kept | SEEN, indent=1, ensure_ascii=False, sort_keys=True)
        MESSAGES.write_text(text + "\n", encoding="utf-8")
