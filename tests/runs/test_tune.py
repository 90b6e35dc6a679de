"""The search for strength and coupling: what it sees, and how it resumes."""

import json

import pytest
import torch

from commands import QUICK, done, refused, told_by
from ldmnet.data.userdata import read_samples, share_split
from ldmnet.runs import tune as tuning
from ldmnet.runs.samples import UserSettings
from ldmnet.strength import COUPLING, STRENGTH


def test_tune_goes_on_where_it_stopped(table, tmp_path):
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    words = ["tune", table, "--label", "species", *QUICK, "--splits", 1, "--output", tmp_path / "search"]
    first = done(*words, "--trials", 2)
    assert [line.split(":")[0] for line in told_by(first)] == ["trial 1", "trial 2"]
    assert first.stdout.startswith("best of 2 trials: ")
    numbers = first.stdout.splitlines()[1].split()
    assert numbers[::2] == ["--strength", "--coupling"]
    trained = tmp_path / "run"
    done("train", table, "--label", "species", *QUICK, "--test-share", 0.2, *numbers, "--output", trained)
    settings = json.loads((trained / "run.json").read_text())["settings"]
    assert (settings["strength"], settings["coupling"]) == (float(numbers[1]), float(numbers[3]))
    assert first.stdout.splitlines()[2] == (
        "12 of 60 samples were left out: train with these numbers, --test-share 0.2 and --seed 0 tests on them alone"
    )
    second = done(*words, "--trials", 3)
    assert [line.split(":")[0] for line in told_by(second)] == ["trial 3"]
    assert refused(*words, "--trials", 3, "--lr", 0.5) == (
        f"{tmp_path / 'search' / 'study.db'} holds a search with other data or settings. Choose another folder. "
        "(--output)"
    )


@pytest.mark.parametrize("seed", [0, 3])
def test_tune_never_sees_what_train_tests_on(table, tmp_path, monkeypatch, seed):
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    samples, seen = read_samples(table, label="species"), []
    monkeypatch.setattr(tuning, "_validated", lambda task, *_: seen.append((task.samples, task.settings)) or 50.0)
    given = UserSettings(test_share=0.3, seed=seed)
    found = tuning.tune_strengths(samples, given, tmp_path, trials=1, splits=3, test_share=0.25)
    _, tested = share_split(samples.labels, 0.25, seed, samples.class_names)
    held = {samples.names[i] for i in tested.tolist()}
    assert found.held_out == len(held) == 15
    assert len(seen) == 3
    validated = set()
    for part, chosen in seen:
        assert {*part.names} == {*samples.names} - held
        assert all(torch.equal(part.x[i], samples.x[int(name) - 1]) for i, name in enumerate(part.names))
        assert torch.equal(part.labels, samples.labels[[int(name) - 1 for name in part.names]])
        _, valid = share_split(part.labels, chosen.test_share, chosen.seed, part.class_names)
        validated.add(tuple(valid.tolist()))
        assert chosen.seed != seed
    assert len(validated) == 3  # another set each


def test_tune_may_hold_out_nothing(table, tmp_path):
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    words = ["tune", table, "--label", "species", *QUICK, "--splits", 1, "--trials", 1, "--output", tmp_path / "s"]
    assert done(*words, "--test-share", 0).stdout.splitlines()[2] == (
        "no sample was left out: test these numbers on other data"
    )
    assert refused(*words).endswith(
        "study.db holds a search with other data or settings. Choose another folder. (--output)"
    )


@pytest.mark.slow
def test_a_search_that_was_cut_tries_the_defaults_and_nothing_twice(table, tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna", reason="the extra tune is not installed")
    samples, settings = read_samples(table, label="species"), UserSettings(test_share=0.3)
    monkeypatch.setattr(tuning, "_validated", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        tune(samples, settings, 3, tmp_path)
    monkeypatch.setattr(tuning, "_validated", lambda task, *_: 1 / (1 + task.settings.strength))
    tune(samples, settings, 3, tmp_path)
    found = tune(samples, settings, 6, tmp_path)
    study = optuna.load_study(study_name="ldmnet", storage=f"sqlite:///{tmp_path / 'study.db'}")
    tried = [tuple(t.params.values()) for t in study.trials if t.state.name == "COMPLETE"]
    assert len(set(tried)) == len(tried) == found.trials == 6
    assert tried[0] == (STRENGTH, COUPLING)
    assert found.untuned == 1 / (1 + tried[0][0])


def tune(samples, settings, trials, folder):
    return tuning.tune_strengths(samples, settings, folder, trials=trials, splits=1)


def test_every_run_of_a_search_is_recorded_as_tried(table, tmp_path):
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    done("tune", table, "--label", "species", *QUICK, "--splits", 2, "--trials", 1, "--output", tmp_path)
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [(r["table"], r["selection"], r["chosen"]) for r in records] == [("search", "tried", False)] * 2
