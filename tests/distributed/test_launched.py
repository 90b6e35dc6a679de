"""Under `torchrun --nproc-per-node=2`: the command, Lightning, the Hugging Face Trainer and the example."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]


def torchrun(*words, processes=2, fails=False, **more):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **more}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240, check=False)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "package"), [("lightning", "lightning"), ("transformers", "accelerate")])
def test_a_framework_trains_by_two_processes(tmp_path, kind, package):
    pytest.importorskip(package)
    torchrun(str(HERE / "frameworks.py"), kind, str(tmp_path))
    found = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(2)]
    assert found[0]["target"] == found[1]["target"]
    assert found[0]["weights"] == found[1]["weights"]
    assert found[0]["size"] == 2
    assert found[0]["steps"] == 2
    saved = [name for name in found[0]["files"] if name.endswith(".ckpt") or "ldmnet" in name]
    assert len(saved) == 1, found[0]["files"]
    assert [json.loads((tmp_path / f"left-{rank}.json").read_text()) for rank in range(2)] == [[], []]


@pytest.mark.slow
def test_the_command_trains_one_run_by_two_processes(tmp_path):
    y = np.arange(120) % 2
    x = np.random.default_rng(0).standard_normal((120, 3)) + 2 * y[:, None]
    np.savez(tmp_path / "data.npz", x=x.astype("float32"), y=y)
    words = ["-m", "ldmnet", "train", str(tmp_path / "data.npz"), "--epochs", "4", "--output", str(tmp_path / "run")]
    done = torchrun(*words)
    assert done.stdout.count("trained mlp on 120 samples") == 1
    assert done.stderr.count("epoch 4/4 loss") == 1
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["n_train"] == 120
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 4
    assert "trained mlp" in torchrun(*words).stdout  # it is done: its record is told again


@pytest.mark.slow
def test_another_command_runs_in_one_process(tmp_path):
    done = torchrun("-m", "ldmnet", "table", "mnist")
    assert done.stderr.count("only train shares its work") == 1


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    example = ROOT / "examples" / "05_torchrun.py"
    assert len(example.read_text().splitlines()) <= 60
    done = torchrun(str(example), "--epochs", "5", "--checkpoint", str(tmp_path / "checkpoint.pt"))
    assert done.stdout.count("epoch 5") == 1
    assert (
        "resumes after epoch 5"
        in torchrun(str(example), "--epochs", "7", "--checkpoint", str(tmp_path / "checkpoint.pt"), processes=1).stdout
    )


@pytest.mark.slow
def test_torchruns_restart_resumes(tmp_path):
    done = torchrun("--max-restarts=1", str(HERE / "restarted.py"), str(tmp_path))
    assert (tmp_path / "died").exists()
    assert "epochs [3, 4, 5]" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list a process's threads")
def test_no_thread_of_a_group_of_ours_is_left_when_the_interpreter_ends():
    told = torchrun(str(HERE / "ended.py")).stdout.splitlines()
    end = "the process group was destroyed before training was over. Destroy it at the end."
    assert told.count(f"left [], then: {end}") == 2, told
