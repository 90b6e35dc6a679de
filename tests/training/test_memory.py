import ctypes
import os
import platform
import subprocess
import sys

import pytest
from click.testing import CliRunner

import ldmnet.cli
from ldmnet.runs import sweep as sweep_module
from ldmnet.training import memory
from ldmnet.training.memory import keep_freed_memory

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

FAULTS = """
import resource, sys, torch
from ldmnet.training.memory import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    a = torch.ones(12_000_000)  # 48 MB, more than glibc's own threshold ever grows to
    return float((a + 1)[0])
for _ in range(3):
    step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""


def faults(how):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=plain).stdout)


@glibc
def test_freed_memory_is_not_asked_for_again():
    assert faults("keep") < faults("leave") / 3


def test_where_there_is_nothing_to_set_it_says_so(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert keep_freed_memory() is False

    def refuse(name):
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert keep_freed_memory() is False


def test_commands_and_the_processes_of_a_sweep_keep_it(monkeypatch):
    calls = []
    monkeypatch.setattr(ldmnet.cli, "keep_freed_memory", lambda: calls.append("command"))
    assert CliRunner().invoke(ldmnet.cli.main, ["table", "mnist"]).exit_code == 0
    monkeypatch.setattr(sweep_module, "keep_freed_memory", lambda: calls.append("process"))
    monkeypatch.setattr(sweep_module, "_epochs_done", None)
    sweep_module._start(object())
    assert calls == ["command", "process"]
