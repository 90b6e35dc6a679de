"""Puts this folder on the path; the fixture `pool`, one for the whole test run (see `workers`)."""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture(scope="session")
def pool():
    from workers import Pool

    made = Pool()
    yield made
    made.end()
