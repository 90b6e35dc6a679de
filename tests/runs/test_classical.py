"""Rows that are no network, equal care, and the advice that ends a comparison."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from ldmnet.data.userdata import Samples
from ldmnet.errors import InputError
from ldmnet.records import Record
from ldmnet.records.advice import advice
from ldmnet.records.comparison import compared_rows, format_comparison
from ldmnet.runs.care import Trial, choose, trials
from ldmnet.runs.classical import CLASSICAL, classical, laplace_learning, measure_classical
from ldmnet.runs.compare import compare_methods
from ldmnet.runs.run import Measured, Watch
from ldmnet.runs.samples import SamplesTask, UserSettings
from ldmnet.runs.tuned import TunedTask, at
from ldmnet.training.history import Epoch
from ldmnet.training.methods import METHODS
from ldmnet.training.rivals import KINDS, RIVALS, parse


def blobs(n=60, d=4, classes=3, seed=0, apart=2.5):
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    return torch.randn(n, d, generator=draw) + apart * torch.eye(d)[y], y


def samples():
    x, y = blobs()
    return Samples(x, y, ["a", "b", "c"], [str(i) for i in range(len(x))])


SETTINGS = UserSettings(epochs=3, test_share=0.3)


# rows that are no network


@pytest.mark.parametrize("name", CLASSICAL)
def test_a_row_learns_and_is_deterministic(name):
    pytest.importorskip("sklearn")
    (x, y), test = blobs(), blobs(seed=1)
    first, again = (measure_classical(name, (x, y), test, 0) for _ in range(2))
    assert first["accuracy"] == again["accuracy"] > 80
    assert first.get("transductive", False) == (name == "laplace")


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_the_number_behind_the_colon_is_the_c_of_scikit_learn(name):
    linear_model, svm = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.svm")
    (x, y), (x_test, y_test) = blobs(apart=1.0), blobs(seed=1, apart=1.0)
    model = linear_model.LogisticRegression(C=0.01, max_iter=1000) if name == "logistic" else svm.SVC(C=0.01)
    wanted = 100 * model.fit(x.numpy(), y.numpy()).score(x_test.numpy(), y_test.numpy())
    assert measure_classical(f"{name}:0.01", (x, y), (x_test, y_test), 0)["accuracy"] == pytest.approx(wanted, abs=1e-3)


IMPORTED_BEFORE_THE_CLOCK = """
import sys, time, torch
from ldmnet.runs import classical
row = classical.CLASSICAL[sys.argv[1]]
clock, loaded = time.perf_counter, []
time.perf_counter = lambda: (loaded.append(row.module in sys.modules), clock())[1]
x, y = torch.eye(6), torch.arange(6) % 2
before = row.module in sys.modules
classical.measure_classical(sys.argv[1], (x, y), (x, y), 0)
print(before, *loaded)
"""


@pytest.mark.parametrize("name", ["logistic", "svm", "forest"])
def test_the_time_of_a_fit_holds_no_import(name):
    pytest.importorskip("sklearn")
    command = [sys.executable, "-c", IMPORTED_BEFORE_THE_CLOCK, name]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True", "True"]


def test_laplace_learning_is_harmonic():
    """On a path with labelled ends the scores fall evenly: the discrete harmonic function."""
    ends, inside = torch.tensor([[0.0], [6.0]]), torch.arange(1.0, 6.0)[:, None]
    found = laplace_learning((ends, torch.tensor([0, 1])), inside, neighbors=6)
    assert np.allclose(found.sum(1), 1, atol=1e-6)  # constants are kept
    assert np.allclose(found[:, 0], found[::-1, 1], atol=1e-6)  # the path has a mirror
    assert (np.diff(found[:, 1]) > 0).all()
    assert ((found > 0) & (found < 1)).all()  # the maximum is on the labels


def test_laplace_learning_where_no_label_reaches_gives_the_shares_of_the_classes():
    near, far = torch.arange(6.0)[:, None], 1000 + torch.arange(6.0)[:, None]
    found = laplace_learning((near, torch.tensor([0, 0, 1, 1, 1, 1])), far, neighbors=3)
    assert np.allclose(found, [1 / 3, 2 / 3], atol=1e-3)


def test_names_of_rows():
    assert classical("svm:10") == ("svm", 10.0)
    assert classical("forest") == ("forest", CLASSICAL["forest"].strength)
    assert classical("ldmnet") is classical("mixup:0.2") is None
    for bad in ("svm:no", "svm:-1", "logistic:inf"):
        with pytest.raises(InputError, match="must be a number above zero"):
            classical(bad)


def test_a_comparison_has_networks_and_other_rows(tmp_path):
    pytest.importorskip("sklearn")
    methods = ("none", "mixup", "svm", "laplace")
    records = compare_methods(samples(), SETTINGS, tmp_path, methods=methods, splits=2, snapshots=False)
    assert [record.method for record in records] == [*methods, *methods]
    assert all(record.accuracy is not None for record in records)
    table = format_comparison(compared_rows(records))
    assert "| laplace † |" in table
    assert table.endswith("† transductive: it sees the inputs that it is tested on")
    again = compare_methods(samples(), SETTINGS, tmp_path, methods=methods, splits=2, snapshots=False)
    assert again == records


def test_a_row_that_is_no_network_needs_samples_to_test_on(tmp_path):
    with pytest.raises(InputError, match="tested on samples held out"):
        measure_classical("svm", blobs(), None, 0)


def test_new_settings_leave_the_names_of_earlier_runs_alone():
    """The hash of a run from before there were decay and trials."""
    from ldmnet.fingerprints import short_hash

    task = SamplesTask(SETTINGS, samples())
    known = {name: value for name, value in task._known().items() if name != "skipped"}
    before = {name: value for name, value in task.recorded().items() if name not in ("decay", "trials")}
    assert task.hash() == short_hash({**known, **before, "data": task.data})
    assert SamplesTask(UserSettings(epochs=3, test_share=0.3, trials=4), samples()).hash() != task.hash()


# equal care


@pytest.mark.parametrize("method", ["none", "ldmnet", "control", "weight_decay", "dropout", *RIVALS, "ldmnet+mixup"])
def test_every_network_is_tried_at_the_same_points(method):
    tried, plain = trials(method, 8), trials("none", 8)
    assert len(tried) == 8
    assert tried[0] == Trial(method)
    assert [(t.lr, t.decay) for t in tried] == [(t.lr, t.decay) for t in plain]
    for trial in tried[1:]:
        base, rivals = parse(trial.method, METHODS)
        assert 0.1 <= trial.lr <= 10
        assert all(KINDS[word].low * 0.999 <= value <= KINDS[word].high * 1.001 for word, value in rivals.items())
        assert base == parse(method, METHODS)[0]
        settings = at(SETTINGS, trial)
        assert settings.training().lr == pytest.approx(trial.lr * SETTINGS.training().lr)
        assert settings.training().weight_decay == trial.decay
        settings.regularisation()


def test_an_ensemble_keeps_its_number_in_every_trial():
    for method in ("ensemble:3+mixup:0.4", "mixup:0.4+ensemble:3"):
        assert all(parse(trial.method, METHODS)[1]["ensemble"] == 3 for trial in trials(method, 4))


@pytest.mark.parametrize("name", CLASSICAL)
def test_rows_that_are_no_network_are_tried_over_their_strength(name):
    values = [classical(trial.method)[1] for trial in trials(name, 6)]
    assert values[0] == CLASSICAL[name].strength
    assert len(set(values)) > 3
    assert all(CLASSICAL[name].low * 0.999 <= value <= CLASSICAL[name].high * 1.001 for value in values)


def test_the_best_is_chosen_the_earlier_among_equals_and_what_diverged_never():
    tried = [Trial("none"), Trial("none", lr=2), Trial("none", lr=3), Trial("none", lr=4)]
    scores = dict(zip(tried, ("diverged", 70.0, 80.0, 80.0), strict=True))
    best, budget = choose(tried, scores.__getitem__)
    assert best == tried[2]
    assert (budget["trials"], budget["chosen"]) == (4, 2)
    assert [one["val_accuracy"] for one in budget["tried"]] == [None, 70.0, 80.0, 80.0]
    assert [one.get("ended") for one in budget["tried"]] == ["diverged", None, None, None]


def test_a_trial_far_behind_the_best_half_way_is_stopped_and_never_chosen(tmp_path, monkeypatch):
    seen = []

    def measured(self, data, watch):
        found = {"epochs": 0, "data": data, "settings": self.settings}
        seen.append(found)
        for epoch in range(self.settings.epochs):
            found["epochs"] = epoch + 1
            watch(Epoch(epoch, 0.1, 1.0, 0.0, 1.0, val_accuracy=half_way[len(seen) - 1]))
        return Measured({"accuracy": 99.0 if len(seen) == 3 else 50.0, "seconds": {"train": 1.0}})

    monkeypatch.setattr(SamplesTask, "measure", measured)
    half_way = (0.6, 0.39, 0.41, 0.0)  # two thirds of 0.6 are 0.4
    task = TunedTask(UserSettings(epochs=20, test_share=0.3, trials=3), samples())
    budget = task.measure(task.load(), Watch(tmp_path)).fields["budget"]
    assert [one["epochs"] for one in seen] == [10, 6, 10, 20]
    assert [one["val_accuracy"] for one in budget["tried"]] == [50.0, None, 99.0]
    assert [one.get("ended") for one in budget["tried"]] == [None, "stopped", None]
    assert (budget["trials"], budget["chosen"]) == (3, 2)
    for one in seen[:3]:  # what tells half way is what chooses, and none of it is trained on
        assert one["data"].valid.tolist() == one["data"].test.tolist()
        assert not set(one["data"].valid.tolist()) & set(one["data"].train.tolist())


def test_a_tuned_run_sees_the_test_part_once_and_records_its_budget(tmp_path, monkeypatch):
    seen = []
    plain = SamplesTask.measure

    def spied(self, data, watch):
        seen.append((set(data.train.tolist()), set(data.test.tolist()), self.settings.epochs))
        return plain(self, data, watch)

    monkeypatch.setattr(SamplesTask, "measure", spied)
    settings = UserSettings(epochs=4, test_share=0.3, trials=3)
    (record,) = compare_methods(samples(), settings, tmp_path, methods=("ldmnet",), splits=1, snapshots=False)
    budget = record.more["budget"]
    assert (budget["trials"], len(budget["tried"])) == (3, 3)
    assert record.seconds["tuning"] > record.seconds["train"] / 10
    *tried, last = seen
    assert len(tried) == 3
    held_out = TunedTask(settings, samples()).load().test
    assert last[1:] == (set(held_out.tolist()), 4)
    for train, validation, epochs in tried:
        assert epochs == 2  # half of them
        assert train | validation == last[0]
        assert not validation & train
        assert not (train | validation) & last[1]


# advice


def record(method, seed, accuracy, seconds=1.0, **more):
    return Record(table="comparison", method=method, seed=seed, hash=f"{method}{seed}", settings={}, accuracy=accuracy,
                  n_train=70, n_test=30, seconds={"train": seconds}, **more)  # fmt: skip


def rows(**by_method):
    seconds = {"ldmnet": 5.0, "svm": 0.1}
    return [
        record(method, seed, value, seconds.get(method, 1.0))
        for method, values in by_method.items()
        for seed, value in enumerate(values)
    ]


def test_advice_names_the_best_and_the_soonest_of_the_equal():
    said = advice(rows(none=(70, 71, 72, 70), ldmnet=(80, 81.5, 82, 80.5), svm=(80.5, 81, 81.8, 80.9)))
    assert said.startswith("advice: svm is best here, 81.05 %; as good, within the noise of 4 splits: ldmnet.")
    assert "svm trains soonest of these." in said
    assert said.endswith("LDMNet is one of several that do.")


def test_of_two_with_the_same_mean_the_one_that_trains_sooner_is_best():
    said = advice(rows(none=(60, 61, 60), ldmnet=(80, 81, 82), svm=(82, 81, 80)))
    assert said.startswith("advice: svm is best here, 81.00 %; as good, within the noise of 3 splits: ldmnet.")


def test_advice_says_when_not_to_use_it():
    said = advice(rows(none=(80, 81, 82, 80), ldmnet=(70, 71.1, 72, 70)))
    assert said.endswith("LDMNet is not the tool here: none is better by 9.98 points.")


def test_advice_says_when_it_is_ahead():
    said = advice(rows(none=(70, 71, 72, 70), ldmnet=(80, 81.1, 82, 80)))
    assert said == "advice: ldmnet is best here, 80.78 %, clearly ahead of all others."


def test_the_same_gain_on_every_split_is_judged_by_what_a_test_sample_is_worth():
    few = {"none": (70, 70), "ldmnet": (80, 80)}
    assert "as good, within the noise of 2 splits: none." in advice(rows(**few))
    assert "as good, within the noise of 2 splits: none." in advice(rows(none=(70, 70.01), ldmnet=(80, 80)))
    many = {name: 5 * scores[:1] for name, scores in few.items()}
    assert advice(rows(**many)) == "advice: ldmnet is best here, 80.00 %, clearly ahead of all others."
    alike = {"none": (80,) * 5, "ldmnet": (80,) * 5}
    assert "as good, within the noise of 5 splits: " in advice(rows(**alike))


def test_one_split_in_common_proves_nothing():
    apart = [record("none", seed, 40.0 + seed) for seed in (1, 2)]
    assert "as good, within the noise of 2 splits: none." in advice([*rows(ldmnet=(80, 81)), *apart])


def test_nobody_worse_than_the_rejected_is_as_good_and_only_the_rejected_are_clearly_behind():
    said = advice(rows(svm=(80, 81, 82, 80, 81), none=(70, 71, 72, 70, 71), ldmnet=(84, 50, 85, 55, 70)))
    assert said == (
        "advice: svm is best here, 80.80 %, ahead of all others; 5 splits are too few to be sure of that for ldmnet. "
        "LDMNet is 12.00 points behind on average: more splits would tell."
    )


def test_advice_leaves_aside_what_nobody_can_use():
    found = rows(none=(70, 71), ldmnet=(80, 81.1), laplace=(99, 98))
    assert "laplace" not in advice(found)
    assert advice(rows(none=(70,), ldmnet=(80,))) == ""
    bad = [record("none", s, 90.0, ended_badly=["no use"]) for s in range(2)]
    assert advice([*bad, *rows(ldmnet=(80, 81.1))]) == ""
