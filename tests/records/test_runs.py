import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from ldmnet.records import Run, RunSettings, execute, sweep_runs, unfinished
from ldmnet.records import runs as runs_module
from ldmnet.records.runs import training_data
from ldmnet.records.snapshots import read_snapshots
from ldmnet.training import Method, TrainSettings


@pytest.fixture
def small_mnist(tmp_path) -> Path:
    """MNIST's files in their official layout, with made-up images: a bright square where the class says."""
    folder = tmp_path / "data" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)

    def write(name, array):
        header = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
        (folder / name).write_bytes(header + array.tobytes())

    for part, n in (("train", 1300), ("t10k", 100)):
        labels = (np.arange(n) % 10).astype(np.uint8)
        images = draw.integers(0, 60, (n, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 6, 4:20] += 150
        write(f"{part}-images-idx3-ubyte", images)
        write(f"{part}-labels-idx1-ubyte", labels)
    return tmp_path / "data"


def run_of(method=None, seed=0, epochs=2) -> Run:
    settings = RunSettings("mnist", 5, seed, method=method or Method(), train=TrainSettings(epochs=epochs))
    return Run("mnist", settings.method.name, settings, paper=95.57)


pytestmark = pytest.mark.filterwarnings("ignore:mnist. not the official file")


def test_a_record_says_what_was_run(small_mnist, tmp_path):
    run = run_of(Method("ldmnet", mu=0.01, lambda_tilde=0.05))
    record = execute(run, runs_dir=tmp_path / "runs", data_dir=small_mnist)
    assert record["hash"] == run.settings.hash()
    assert (record["table"], record["method"], record["per_class"], record["paper"]) == ("mnist", "ldmnet", 5, 95.57)
    assert (record["n_train"], record["n_test"], len(record["loss_curve"])) == (50, 100, 2)
    assert record["settings"]["method"]["lambda_tilde"] == 0.05
    assert record["solver"] == ["CONVERGED"]
    assert 0 <= record["accuracy"] <= 100
    assert set(record["versions"]) == {"ldmnet", "torch", "numpy", "python"}
    assert json.loads(json.dumps(record)) == record


def test_running_a_line_again_gives_the_same_accuracy(small_mnist, tmp_path):
    run = run_of(Method("dropout", dropout=0.5))
    first = execute(run, runs_dir=tmp_path / "a", data_dir=small_mnist)
    again = execute(run, runs_dir=tmp_path / "b", data_dir=small_mnist)
    assert first["loss_curve"] == again["loss_curve"]
    assert (first["accuracy"], first["test_loss"]) == (again["accuracy"], again["test_loss"])


def test_a_done_run_is_not_run_again(small_mnist, tmp_path, monkeypatch):
    run = run_of()
    first = execute(run, runs_dir=tmp_path, data_dir=small_mnist)
    monkeypatch.setattr("ldmnet.records.runs.fit", lambda *a, **k: pytest.fail("ran again"))
    assert execute(run, runs_dir=tmp_path, data_dir=small_mnist) == first


def test_a_cut_run_goes_on_and_ends_as_if_it_had_not_been_cut(small_mnist, tmp_path):
    run = run_of(Method("ldmnet", mu=0.01, lambda_tilde=0.05), epochs=4)
    run = replace(run, settings=replace(run.settings, train=replace(run.settings.train, checkpoint_every=1)))
    whole = execute(run, runs_dir=tmp_path / "whole", data_dir=small_mnist)

    def cut(epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(run, runs_dir=tmp_path / "cut", data_dir=small_mnist, on_epoch=cut)
    seen = []
    resumed = execute(run, runs_dir=tmp_path / "cut", data_dir=small_mnist, on_epoch=seen.append)
    assert [e.epoch for e in seen] == [3]
    assert resumed["loss_curve"] == whole["loss_curve"]
    assert resumed["test_loss"] == whole["test_loss"]
    assert not list((tmp_path / "cut").rglob("*.pt"))


@pytest.mark.slow
def test_a_sweep_appends_records_once_and_skips_them_after(small_mnist, tmp_path):
    runs = [run_of(seed=seed) for seed in (0, 1)]
    where = {"runs_dir": tmp_path / "runs", "results": tmp_path / "r" / "mnist.jsonl", "data_dir": small_mnist}
    records = sweep_runs(runs, jobs=2, **where)
    assert [r["seed"] for r in records] == [0, 1]
    assert sweep_runs(runs, jobs=1, **where) == records
    assert len(where["results"].read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_run_without_a_file_that_is_asked_for_is_run_again_and_its_record_stays(small_mnist, tmp_path):
    where = {"runs_dir": tmp_path / "runs", "results": tmp_path / "mnist.jsonl", "data_dir": small_mnist}
    run = run_of()
    records = sweep_runs([run], **where)
    folder = tmp_path / "runs" / run.settings.hash()
    assert [file.name for file in folder.iterdir()] == ["record.json"]
    again = partial(execute, keep_weights=True, snapshots=True)
    files = ["model.safetensors", "snapshots.npz"]
    assert unfinished([run], runs_dir=tmp_path / "runs", results=tmp_path / "mnist.jsonl") == []
    assert unfinished([run], runs_dir=tmp_path / "runs", results=tmp_path / "mnist.jsonl", files=files) == [run]
    assert sweep_runs([run], work=again, files=files, **where) == records
    assert {file.name for file in folder.iterdir()} >= set(files)
    assert len((tmp_path / "mnist.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
def test_runs_of_the_same_settings_are_made_once(small_mnist, tmp_path):
    run = run_of()
    twin = replace(run, row="twin")
    where = {"runs_dir": tmp_path / "runs", "results": tmp_path / "mnist.jsonl", "data_dir": small_mnist}
    first, again, second = sweep_runs([run, run, twin], jobs=2, **where)
    assert first == again
    assert second == {**first, "method": "twin"}  # the same seconds too: it was read from the other's folder
    assert len((tmp_path / "mnist.jsonl").read_text().splitlines()) == 2


def test_snapshots_of_half_a_run_are_not_enough(small_mnist, tmp_path):
    run = run_of()
    where = {"runs_dir": tmp_path, "data_dir": small_mnist}
    execute(run, snapshots=True, **where)
    folder = tmp_path / run.settings.hash()
    (folder / "history.jsonl").unlink()  # as if the rest of the run had not been followed
    (folder / "snapshots.npz").write_bytes(b"half")
    execute(run, snapshots=True, **where)
    assert (folder / "history.jsonl").exists()
    assert len(read_snapshots(folder / "snapshots.npz").taken) > 1


@pytest.mark.slow
def test_a_sweep_says_what_was_noted_of_runs_in_folders_too(small_mnist, tmp_path):
    run, screen = run_of(), io.StringIO()
    execute(run, runs_dir=tmp_path, data_dir=small_mnist)
    folder = tmp_path / run.settings.hash() / "record.json"
    folder.write_text(json.dumps({**json.loads(folder.read_text()), "data_note": "half is missing"}))
    where = {"runs_dir": tmp_path, "results": tmp_path / "other.jsonl", "data_dir": small_mnist}
    sweep_runs([run], console=Console(file=screen, width=300), **where)
    assert "1 of these runs were done before, and of their data it was noted: half is missing." in screen.getvalue()


def test_a_sweep_says_what_was_noted_of_the_data_of_earlier_runs(tmp_path):
    run, screen = run_of(), io.StringIO()
    record = {"table": run.table, "method": run.row, "hash": run.settings.hash(), "data_note": "half is missing"}
    (tmp_path / "r.jsonl").write_text(json.dumps(record) + "\n")
    sweep_runs([run], runs_dir=tmp_path, results=tmp_path / "r.jsonl", console=Console(file=screen))
    assert screen.getvalue() == (
        "1 of these runs were done before, and of their data it was noted: half is missing. To run them on other data, "
        "name another --results and --runs-dir.\n"
    )


def test_a_new_field_at_its_default_leaves_the_hash_alone():
    assert run_of().settings.hash() == RunSettings("mnist", 5, train=TrainSettings(epochs=2)).hash()
    assert run_of().settings.hash() != run_of(seed=1).settings.hash()


def test_validation_images_are_fixed_and_apart_from_training(small_mnist):
    first, second = (training_data(run_of(seed=s).settings, small_mnist) for s in (0, 1))
    assert first.subset_hash != second.subset_hash
    assert first.validation is not None
    assert len(first.validation[1]) == 1000
    flat = {x.numpy().tobytes() for x in (first.train[0] + 0).flatten(1).round().to(torch.int32)}
    held = {x.numpy().tobytes() for x in first.validation[0].flatten(1).round().to(torch.int32)}
    assert not flat & held


ENDLESS_SWEEP = """
import os, sys, time
from pathlib import Path
from ldmnet.records import Run, RunSettings, sweep_runs

def work(run, *, runs_dir, data_dir, on_epoch):
    runs_dir.write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)
        on_epoch(None)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run = Run("mnist", "none", RunSettings("mnist", 5))
    sweep_runs([run], runs_dir=folder / "pid", results=folder / "r", work=work)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="asks ps for the process")
def test_the_processes_of_a_killed_sweep_end_too(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS_SWEEP)
    sweep = subprocess.Popen([sys.executable, tmp_path / "endless.py", tmp_path], stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    worker = (tmp_path / "pid").read_text()
    sweep.kill()
    sweep.wait()
    wait_until(lambda: state_of(worker) in ("", "Z"))


def state_of(pid: str) -> str:
    """The first letter of a process's state: nothing if it is not there, Z if it has ended."""
    return subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip()[:1]


def wait_until(done, seconds=60):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_run_that_diverges_is_recorded_and_the_sweep_goes_on(small_mnist, tmp_path):
    wild = run_of()
    wild = replace(wild, settings=replace(wild.settings, train=TrainSettings(epochs=2, lr=1e30)))
    where = {"runs_dir": tmp_path / "runs", "results": tmp_path / "mnist.jsonl", "data_dir": small_mnist}
    first, second = sweep_runs([wild, run_of()], **where)
    assert first["accuracy"] is None
    assert first["diverged"].startswith("the loss is not finite in epoch ")
    assert "checkpoint" not in first["diverged"]
    assert second["accuracy"] is not None
    assert sweep_runs([wild], **where) == [first]
    assert unfinished([wild], runs_dir=where["runs_dir"], results=where["results"], files=["model.safetensors"]) == []


def test_a_run_that_diverged_is_done_whatever_it_should_leave_behind(small_mnist, tmp_path, monkeypatch):
    wild = run_of()
    wild = replace(wild, settings=replace(wild.settings, train=TrainSettings(epochs=2, lr=1e30)))
    first = execute(wild, runs_dir=tmp_path, data_dir=small_mnist)
    monkeypatch.setattr(runs_module, "train_once", None)
    assert execute(wild, runs_dir=tmp_path, data_dir=small_mnist, keep_weights=True, snapshots=True) == first


def test_a_run_on_all_images_is_recorded_under_the_tables_size(small_mnist, tmp_path):
    run = replace(run_of(epochs=1), size=6000)
    assert execute(run, runs_dir=tmp_path / "runs", data_dir=small_mnist)["per_class"] == 6000
