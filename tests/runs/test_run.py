import io
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from ldmnet.data.userdata import Samples
from ldmnet.errors import StateError
from ldmnet.files import parse_json
from ldmnet.locks import BusyError, owned
from ldmnet.records.record import append, read_records
from ldmnet.records.snapshots import read_snapshots
from ldmnet.runs import Kept, Places, Run, RunSettings, execute, sweep_runs, unfinished
from ldmnet.runs import network as network_module
from ldmnet.runs.run import read_run
from ldmnet.runs.samples import Reading, UserSettings
from ldmnet.runs.trained import train_run
from ldmnet.training import Method, TrainSettings
from ldmnet.training.state import Run as TrainingState


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


def made(run, runs_dir, data_dir, **how):
    return execute(run, runs_dir / run.settings.hash(), lambda: run.settings.load(data_dir), **how)


def swept(runs, where, **how):
    return sweep_runs(runs, "mnist", where, **how)


@pytest.fixture
def where(small_mnist, tmp_path):
    return Places(jobs=1, data_dir=small_mnist, runs_dir=tmp_path / "runs", results=tmp_path / "results")


pytestmark = pytest.mark.filterwarnings("ignore:mnist. not the official file")


def test_a_record_says_what_was_run(small_mnist, tmp_path):
    run = run_of(Method("ldmnet", mu=0.01, lambda_tilde=0.05))
    record = made(run, tmp_path / "runs", small_mnist)
    assert record.hash == run.settings.hash()
    assert (record.table, record.method, record.per_class, record.paper) == ("mnist", "ldmnet", 5, 95.57)
    assert (record.n_train, record.n_test, len(record.loss_curve)) == (50, 100, 2)
    assert record.settings["method"]["lambda_tilde"] == 0.05
    assert record.more["solver"] == ["CONVERGED"]
    assert 0 <= record.accuracy <= 100
    assert set(record.versions) == {"ldmnet", "torch", "numpy", "python"}
    assert read_run(tmp_path / "runs" / record.hash) == record


def test_running_a_line_again_gives_the_same_accuracy(small_mnist, tmp_path):
    run = run_of(Method("dropout", dropout=0.5))
    first = made(run, tmp_path / "a", small_mnist)
    again = made(run, tmp_path / "b", small_mnist)
    assert first.loss_curve == again.loss_curve
    assert (first.accuracy, first.more["test_loss"]) == (again.accuracy, again.more["test_loss"])


@pytest.mark.parametrize("patience", [None, 2])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_cut_right_after_a_checkpoint_loses_no_epoch_and_no_snapshot(tmp_path, monkeypatch, after, patience):
    settings = UserSettings(epochs=4, patience=patience, validation_share=0.3, test_share=0.3)
    y = torch.arange(60) % 3
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)) + y[:, None]
    samples = Samples(x, y, ["a", "b", "c"], [str(i) for i in range(60)])
    train_run(samples, settings, Reading(), tmp_path / "whole")
    save = TrainingState.save

    def save_and_cut(self):
        save(self)
        if self.epoch == after:
            raise KeyboardInterrupt

    training = UserSettings.training
    monkeypatch.setattr(UserSettings, "training", lambda self: replace(training(self), checkpoint_every=1))
    monkeypatch.setattr(TrainingState, "save", save_and_cut)
    with pytest.raises(KeyboardInterrupt):
        train_run(samples, settings, Reading(), tmp_path / "cut")
    monkeypatch.setattr(TrainingState, "save", save)
    train_run(samples, settings, Reading(), tmp_path / "cut")
    assert not (tmp_path / "cut" / "checkpoint.pt").exists()
    assert (tmp_path / "cut" / "history.jsonl").read_bytes() == (tmp_path / "whole" / "history.jsonl").read_bytes()
    whole, cut = (read_snapshots(tmp_path / name / "snapshots.npz") for name in ("whole", "cut"))
    assert list(whole.taken) == list(cut.taken)
    for epoch, snapshot in whole.taken.items():
        for name, part in vars(snapshot).items():
            np.testing.assert_array_equal(getattr(cut.taken[epoch], name), part)


def test_a_checkpoint_that_a_cut_left_beside_a_finished_record_is_removed(small_mnist, tmp_path):
    run = run_of()
    record = made(run, tmp_path, small_mnist)
    left = tmp_path / record.hash / "checkpoint.pt"
    left.touch()
    assert made(run, tmp_path, small_mnist) == record
    assert not left.exists()


@pytest.mark.parametrize("tail", ['{"half": ', None])
def test_records_are_added_behind_what_a_full_disk_left(small_mnist, tmp_path, tail):
    path = tmp_path / "mnist.jsonl"
    first, second = (made(run_of(seed=seed), tmp_path, small_mnist) for seed in (0, 1))
    append(path, first)
    path.write_text(path.read_text()[:-1] if tail is None else path.read_text() + tail)
    with pytest.warns(UserWarning, match="cut short after 9 bytes") if tail else nullcontext():
        append(path, second)
    assert read_records([path]) == [first, second]


def test_a_done_run_is_not_run_again(small_mnist, tmp_path, monkeypatch):
    run = run_of()
    first = made(run, tmp_path, small_mnist)
    monkeypatch.setattr(network_module, "fit_network", lambda *a, **k: pytest.fail("ran again"))
    assert made(run, tmp_path, small_mnist) == first


def test_a_cut_run_goes_on_and_ends_as_if_it_had_not_been_cut(small_mnist, tmp_path):
    run = run_of(Method("ldmnet", mu=0.01, lambda_tilde=0.05), epochs=4)
    run = replace(run, settings=replace(run.settings, train=replace(run.settings.train, checkpoint_every=1)))
    whole = made(run, tmp_path / "whole", small_mnist)

    def cut(epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(run, tmp_path / "cut", small_mnist, on_epoch=cut)
    seen = []
    resumed = made(run, tmp_path / "cut", small_mnist, on_epoch=seen.append)
    assert [e.epoch for e in seen] == [2, 3]  # the cut epoch is made again: its checkpoint comes last
    assert resumed.loss_curve == whole.loss_curve
    assert resumed.more["test_loss"] == whole.more["test_loss"]
    assert not list((tmp_path / "cut").rglob("*.pt"))


@pytest.mark.slow
def test_a_sweep_appends_records_once_and_skips_them_after(where):
    runs = [run_of(seed=seed) for seed in (0, 1)]
    records = swept(runs, replace(where, jobs=2))
    assert [r.seed for r in records] == [0, 1]
    assert swept(runs, where) == records
    assert len((where.results / "mnist.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_run_without_a_file_that_is_asked_for_is_run_again_and_its_record_stays(where):
    run = run_of()
    records = swept([run], where)
    folder = where.runs_dir / run.settings.hash()
    assert {file.name for file in folder.iterdir()} == {"run.json", "history.jsonl"}
    kept = Kept(weights=True, snapshots=True)
    assert unfinished([run], "mnist", where) == []
    assert unfinished([run], "mnist", where, kept) == [run]
    assert swept([run], where, kept=kept) == records
    assert {file.name for file in folder.iterdir()} >= {"model.safetensors", "snapshots.npz"}
    assert len((where.results / "mnist.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
def test_runs_of_the_same_settings_are_made_once(where):
    run = run_of()
    first, again, second = swept([run, run, replace(run, row="twin")], replace(where, jobs=2))
    assert first == again
    assert second == replace(first, method="twin")  # the same seconds too: it was read from the other's folder
    assert len((where.results / "mnist.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_sweep_says_what_was_noted_of_earlier_runs_in_folders_and_in_records(where):
    run, screen = run_of(), io.StringIO()
    made(run, where.runs_dir, where.data_dir)
    path = where.runs_dir / run.settings.hash() / "run.json"
    path.write_text(json.dumps({**parse_json(path.read_text()), "data_note": "half is missing"}))
    for _ in range(2):
        swept([run], where, console=Console(file=screen, width=300))
    assert screen.getvalue().count(
        "1 of these runs were done before, and of their data it was noted: half is missing. To run them on other data, "
        "choose other folders for the records and the runs.\n"
    ) == 2  # fmt: skip


# ---- two processes


@pytest.mark.slow
def test_a_folder_has_one_owner_and_that_of_a_dead_one_is_taken_over(small_mnist, tmp_path):
    run = run_of()
    folder = tmp_path / run.settings.hash()
    code = "import sys, time; from pathlib import Path; from ldmnet.locks import owned\n"
    code += "with owned(Path(sys.argv[1])): print('mine', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", code, folder / "lock"], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "mine\n"
    with pytest.raises(BusyError, match=f"{folder.name} is being written by process {other.pid} on "):
        made(run, tmp_path, small_mnist)
    other.kill()
    other.wait()
    assert (folder / "lock").exists()  # it is left behind, and nobody's
    with owned(folder / "lock"):
        assert (folder / "lock").read_text().startswith(f"process {os.getpid()} on ")
    assert made(run, tmp_path, small_mnist).finished
    assert not (folder / "lock").exists()


def test_a_lock_has_one_holder(tmp_path):
    with (
        owned(tmp_path / "lock"),
        pytest.raises(BusyError, match=f"process {os.getpid()} on "),
        owned(tmp_path / "lock"),
    ):
        pytest.fail("there are two")


def test_what_cannot_be_run_leaves_no_folder(tmp_path):
    with pytest.raises(RuntimeError), owned(tmp_path / "a" / "b" / "lock"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_sweeps_at_once_make_every_run_once(where, tmp_path):
    (tmp_path / "sweep.py").write_text(SHARED_SWEEP)
    command = [sys.executable, tmp_path / "sweep.py", where.data_dir, tmp_path]
    both = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in ("a", "b")]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    trained = (tmp_path / "trained").read_text().split()
    assert sorted(trained) == ["0", "1", "2"]
    lines = (where.results / "mnist.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["seed"] for line in lines) == [0, 1, 2]


SHARED_SWEEP = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from ldmnet.runs import Places, Run, RunSettings, sweep_runs
from ldmnet.training import TrainSettings

@dataclass(frozen=True)
class Counted(RunSettings):
    def measure(self, data, watch):
        with (Path(sys.argv[2]) / "trained").open("a") as file:
            file.write(f"{self.seed} ")
        time.sleep(2)
        return super().measure(data, watch)

if __name__ == "__main__":
    data, folder = Path(sys.argv[1]), Path(sys.argv[2])
    runs = [Run("mnist", "none", Counted("mnist", 5, seed, train=TrainSettings(epochs=1))) for seed in range(3)]
    places = Places(jobs=1, data_dir=data, runs_dir=folder / "runs", results=folder / "results")
    assert len(sweep_runs(runs, "mnist", places)) == 3
"""


def test_a_folder_that_holds_another_run_is_refused(small_mnist, tmp_path):
    first, other = run_of(), run_of(epochs=3)
    execute(first, tmp_path / "run", lambda: first.settings.load(small_mnist))
    with pytest.raises(StateError, match=r"run holds another run: train .*Choose another folder, or "):
        execute(other, tmp_path / "run", lambda: other.settings.load(small_mnist))


def test_a_new_field_at_its_default_leaves_the_hash_alone():
    assert run_of().settings.hash() == RunSettings("mnist", 5, train=TrainSettings(epochs=2)).hash()
    assert run_of().settings.hash() != run_of(seed=1).settings.hash()


def test_validation_images_are_fixed_and_apart_from_training(small_mnist):
    first, second = (run_of(seed=s).settings.load(small_mnist) for s in (0, 1))
    assert first.subset_hash != second.subset_hash
    assert first.validation is not None
    assert len(first.validation[1]) == 1000
    flat = {x.numpy().tobytes() for x in (first.train[0] + 0).flatten(1).round().to(torch.int32)}
    held = {x.numpy().tobytes() for x in first.validation[0].flatten(1).round().to(torch.int32)}
    assert not flat & held


ENDLESS_SWEEP = """
import os, sys, time
from dataclasses import dataclass
from pathlib import Path
from ldmnet.runs import Places, Run, RunSettings, sweep_runs
from ldmnet.runs.run import Measured
from ldmnet.training.history import Epoch

@dataclass(frozen=True)
class Endless(RunSettings):
    def load(self, data_dir):
        return None

    def described(self, data):
        return {}

    def measure(self, data, watch):
        Path(sys.argv[1], f"{self.seed}.pid").write_text(str(os.getpid()))
        while self.seed == 0:
            time.sleep(0.05)
            watch(Epoch(0, 0.1, 1.0, 0.0, 0.5))
        return Measured({"accuracy": 1.0})

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    places = Places(jobs=2, runs_dir=folder / "runs", results=folder / "results")
    sweep_runs([Run("mnist", "none", Endless("mnist", 5, seed)) for seed in (0, 1)], "mnist", places)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="asks ps for the process")
def test_the_processes_of_a_killed_sweep_end_too(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS_SWEEP)
    sweep = subprocess.Popen([sys.executable, tmp_path / "endless.py", tmp_path], stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "0.pid").exists() and (tmp_path / "results" / "mnist.jsonl").exists())
    workers = [(tmp_path / f"{seed}.pid").read_text() for seed in (0, 1)]  # one trains, one has nothing left to do
    assert workers[0] != workers[1]
    sweep.kill()
    sweep.wait()
    wait_until(lambda: all(state_of(worker) in ("", "Z") for worker in workers))


def state_of(pid: str) -> str:
    """The first letter of a process's state: nothing if it is not there, Z if it has ended."""
    return subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip()[:1]


def wait_until(done, seconds=60):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def wild_run():
    wild = run_of()
    return replace(wild, settings=replace(wild.settings, train=TrainSettings(epochs=2, lr=1e30)))


@pytest.mark.slow
def test_a_run_that_diverges_is_recorded_and_the_sweep_goes_on(where):
    wild = wild_run()
    first, second = swept([wild, run_of(seed=1)], where)
    assert first.accuracy is None
    assert first.diverged.startswith("the loss is not finite in epoch ")
    assert "checkpoint" not in first.diverged
    assert second.accuracy is not None
    assert swept([wild], where)[0].diverged == first.diverged
    assert unfinished([wild], "mnist", where, Kept(weights=True)) == []


def test_a_run_that_diverged_is_done_whatever_it_should_leave_behind(small_mnist, tmp_path, monkeypatch):
    first = made(wild_run(), tmp_path, small_mnist)
    monkeypatch.setattr(network_module, "fit_network", None)
    assert made(wild_run(), tmp_path, small_mnist, keep_weights=True, snapshots=True) == first


def test_a_run_on_all_images_is_recorded_under_the_tables_size(small_mnist, tmp_path):
    run = replace(run_of(epochs=1), size=6000)
    assert made(run, tmp_path / "runs", small_mnist).per_class == 6000
