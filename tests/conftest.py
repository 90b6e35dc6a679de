"""Puts this folder on the path, so that every test can say `from reference import ...`."""

import sys
from pathlib import Path

import pytest
import torch

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture(autouse=True)
def _one_thread_for_small_tensors(request):
    threads = torch.get_num_threads()
    if "slow" not in request.keywords:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
