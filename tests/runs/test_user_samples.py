"""A task on someone's own samples: which network, which settings name a run, and how it trains."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from commands import LOST, QUICK, UNUSED, done, invoke, refused, told_by
from ldmnet.data.userdata import read_samples, share_split
from ldmnet.locks import owned
from ldmnet.runs.run import Watch
from ldmnet.runs.samples import SamplesTask, UserSettings
from ldmnet.strength import COUPLING, STRENGTH
from ldmnet.training.standardize import Standardize


@pytest.mark.slow
def test_images_of_a_folder_find_their_network(photos, tmp_path):
    result = invoke("train", photos, "--epochs", 1, "--method", "none", "--output", tmp_path / "run")
    assert result.exit_code == 1  # one step of descent teaches a residual network nothing, and the run is there
    assert result.stdout.startswith("trained residual on 36 samples")
    assert load_file(tmp_path / "run" / "model.safetensors")["head.weight"].shape == (3, 128)
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (saved["shape"], saved["settings"]["augment"]) == ([3, 32, 32], "shift,flip")
    assert (saved["settings"]["schedule"], saved["settings"]["batch_size"]) == ("cosine", 4)
    image = pytest.importorskip("PIL.Image")
    for file in photos.glob("*/*.png"):
        image.open(file).convert("L").save(file)
    quick = ["--epochs", 4, "--batch-size", 12, "--method", "none", "--size", 16]
    out = done("train", photos, *quick, "--output", tmp_path / "grey").stdout
    assert out.startswith("trained residual on 36 samples")
    saved = json.loads((tmp_path / "grey" / "run.json").read_text())
    assert saved["reading"] == {"label": None, "size": 16, "grey": True}
    assert (saved["shape"], saved["settings"]["augment"]) == ([1, 16, 16], "shift")
    assert len(done("predict", tmp_path / "grey", photos).stdout.splitlines()) == 37


def test_images_too_small_for_convolutions_get_an_mlp(photos, tmp_path):
    out = done("train", photos, "--size", 12, "--epochs", 1, "--output", tmp_path / "run").stdout
    assert out.startswith("trained mlp on 36 samples")
    words = refused("train", photos, "--net", "residual", "--size", 12, "--output", tmp_path / "other")
    assert words.startswith("a residual network takes images (channels, height, width) of 16 pixels or more per side,")


@pytest.mark.slow
@pytest.mark.parametrize("net", ["cifar", "mnist"])
def test_the_papers_networks_are_there_by_name(photos, tmp_path, net):
    out = done("train", photos, "--net", net, "--epochs", 2, "--output", tmp_path / "run").stdout
    assert out.startswith(f"trained {net} on 36 samples")
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (saved["reading"]["size"], saved["reading"]["grey"]) == ((28, True) if net == "mnist" else (32, False))
    assert saved["settings"]["augment"] == ""


@pytest.mark.parametrize(("net", "asked"), [("cifar", ["--size", 64]), ("cifar", ["--grey"])])
def test_a_size_that_the_network_does_not_take_is_refused(photos, tmp_path, net, asked):
    words = refused("train", photos, "--net", net, *asked, "--output", tmp_path / "run")
    assert words.startswith("the network cifar takes colour images of 32 x 32 pixels, whatever size and grey say.")


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_large_numbers_keep_their_digits(tmp_path, kind):
    times = 1_700_000_000 + np.arange(40)
    if kind == "csv":
        (tmp_path / "t.csv").write_text("time,label\n" + "".join(f"{t},{t % 2}\n" for t in times))
    else:
        np.savez(tmp_path / "t.npz", x=times[:, None], y=times % 2)
    x = read_samples(tmp_path / f"t.{kind}").x
    assert x.squeeze(1).tolist() == times.tolist()
    assert len(Standardize.fit(x)(x).unique()) == 40


@pytest.mark.parametrize("method", ["none", "weight_decay", "dropout", "control", "ldmnet"])
def test_every_method_trains(table, tmp_path, method):
    words = ["train", table, "--label", "species", "--method", method, "--net", "mlp", "--epochs", 36]
    done(*words, "--output", tmp_path / "run")
    result = json.loads((tmp_path / "run" / "run.json").read_text())
    if method in ("control", "ldmnet"):
        assert 0 < result["strength"] <= STRENGTH
        assert result["mu"] > 0
        assert result["lambda_tilde"] == (0 if method == "control" else pytest.approx(result["mu"] / COUPLING))
    else:
        assert [result[name] for name in ("strength", "mu", "lambda_tilde")] == [None] * 3


def test_the_control_takes_a_strength(table, tmp_path):
    words = ["train", table, "--label", "species", "--method", "control", "--net", "mlp", "--epochs", 36]
    shown = done(*words, "--strength", 0.5, "--output", tmp_path / "run").stdout
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert found["settings"]["strength"] == 0.5
    assert 0 < found["strength"] <= 0.5
    assert f", strength {found['strength']:.3g}, mu {found['mu']:.3g}, lambda_tilde 0: " in shown
    other = done(*words, "--output", tmp_path / "other").stdout
    assert shown.splitlines()[0] != other.splitlines()[0]


@pytest.mark.parametrize("method", ["control", "ldmnet"])
def test_the_papers_numbers_are_taken_as_they_are(table, tmp_path, method):
    words = ["train", table, "--label", "species", *QUICK, "--method", method, "--mu", 0.01]
    given = [] if method == "control" else ["--lambda-tilde", 0.05]
    shown = done(*words, *given, "--output", tmp_path / "run").stdout
    result = json.loads((tmp_path / "run" / "run.json").read_text())
    strongest = 0.05 if given else 0
    assert (result["strength"], result["mu"], result["lambda_tilde"]) == (None, 0.01, strongest)
    assert f"of 3 classes, mu 0.01, lambda_tilde {strongest}: " in shown


def test_a_run_that_was_cut_goes_on_to_the_same_network(table, tmp_path, monkeypatch):
    words = ["train", table, "--label", "species", "--net", "mlp", "--epochs", 24]
    done(*words, "--output", tmp_path / "whole")
    add = Watch.__call__

    def cut(self, epoch):
        add(self, epoch)
        if epoch.epoch == 16:
            raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "__call__", cut)
    result = invoke(*words, "--output", tmp_path / "cut")
    assert result.exit_code == 1
    monkeypatch.setattr(Watch, "__call__", add)
    assert refused("predict", tmp_path / "cut", table) == (
        f"{tmp_path / 'cut'} is not finished. Run the same train command again: it resumes where it stopped."
    )
    done(*words, "--output", tmp_path / "cut")
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(whole[key], again[key]) for key in whole)
    history = [(tmp_path / name / "history.jsonl").read_text() for name in ("whole", "cut")]
    assert history[0] == history[1]

    before = (tmp_path / "cut" / "model.safetensors").stat().st_mtime_ns
    done(*words, "--output", tmp_path / "cut")  # it is done: nothing is trained
    assert (tmp_path / "cut" / "model.safetensors").stat().st_mtime_ns == before
    assert refused(*words[:-1], 30, "--output", tmp_path / "cut") == (
        f"{tmp_path / 'cut'} holds another run: epochs 24 (now 30). Choose another folder, or delete this one. "
        "(--output)"
    )


def test_a_network_of_ones_own_is_known_by_its_modules_and_its_initial_weights(table, own_net):
    words = ["--label", "species", "--epochs", 4, "--net", "mynets:small"]
    once, compared = ["train", table, *words, "--output", "run"], ["compare", table, *words, "--splits", 1]
    compared += ["--methods", "none", "--output", "compared"]
    own_net("mlp(d, c, (8,))")
    first, second = done(*once).stdout, done(*compared).stdout
    assert (done(*once).stdout, done(*compared).stdout) == (first, second)  # nothing is trained again
    kept = len(list(Path("compared").glob("runs/*")))
    own_net("mlp(d, c, (9,))")
    assert refused(*once).startswith("run holds another run: other data, read otherwise, or another network. Choose")
    done(*compared)
    assert len(list(Path("compared").glob("runs/*"))) == kept + 1


def test_a_network_that_draws_past_torchs_seed_is_known_by_its_shapes(table, own_net):
    words = ["train", table, "--label", "species", "--epochs", 2, "--net", "mynets:small", "--output", "run"]
    own_net("(lambda model: (model.head.bias.data.fill_(random.random()), model)[1])(mlp(d, c, (8,)))")
    first = done(*words).stdout
    assert done(*words).stdout == first


def test_every_setting_and_the_data_name_a_run(table):
    samples = read_samples(table, label="species")
    others = [
        {},
        {"strength": 0.1},
        {"coupling": 1.0},
        {"optimizer": "adamw"},
        {"schedule": "cosine"},
        {"clip_norm": 1.0},
        {"augment": "flip"},
        {"patience": 3},
        {"net": "residual"},
        {"mu": 0.01, "lambda_tilde": 0.05},
    ]
    tasks = [SamplesTask(UserSettings(**other), samples) for other in others]
    assert len({task.hash() for task in tasks}) == len(others)
    assert SamplesTask(UserSettings(optimizer="sgd", schedule="step"), samples).hash() == tasks[0].hash()
    assert SamplesTask(UserSettings(), replace(samples, x=samples.x + 1)).hash() != tasks[0].hash()


def test_settings_that_are_the_networks_own_are_the_same_run(table, tmp_path):
    words = ["train", table, "--label", "species", *QUICK, "--output", tmp_path / "run"]
    first = done(*words).stdout
    assert done(*words, "--optimizer", "sgd", "--schedule", "step", "--augment", "none").stdout == first
    assert refused(*words, "--strength", 0.1).startswith(
        f"{tmp_path / 'run'} holds another run: strength None (now 0.1)."
    )
    assert refused(*words, "--schedule", "cosine").startswith(
        f"{tmp_path / 'run'} holds another run: schedule 'step' (now 'cosine')."
    )


def test_two_trainings_in_one_folder_are_refused(table, tmp_path):
    words = ["train", table, "--label", "species", *QUICK, "--output", tmp_path / "run"]
    with owned(tmp_path / "run" / "lock"):
        assert re.match(rf"{tmp_path / 'run'} is being written by process \d+ on .*\(--output\)$", refused(*words))
    done(*words)


def test_a_training_that_diverges_is_recorded_as_such(table, tmp_path):
    words = ["train", table, "--label", "species", *QUICK, "--lr", 1e30, "--output", tmp_path / "run"]
    for _ in range(2):
        result = invoke(*words)
        assert result.exit_code == 1
        assert result.output.splitlines()[-1].startswith("Error: the loss is not finite in epoch ")
    assert refused("predict", tmp_path / "run", table).startswith(f"{tmp_path / 'run'} has no network: the loss is")
    done(*words, "--lr", 0.01)  # there is nothing in the folder to keep


def test_the_way_of_training_is_chosen_and_kept(table, tmp_path):
    words = ["train", table, "--label", "species", *QUICK, "--optimizer", "adamw", "--schedule", "constant"]
    done(*words, "--clip-norm", 1, "--device", "cpu", "--output", tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert (saved["optimizer"], saved["schedule"], saved["clip_norm"]) == ("adamw", "constant", 1.0)
    assert (saved["lr"], saved["device"]) == (0.001, "cpu")
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["lr"] for line in lines] == [0.001] * 4
    assert len(done("predict", tmp_path / "run", table).stdout.splitlines()) == 61
    refusals = [
        (["--augment", "spin"], "there is no augmentation 'spin'. Choose shift, flip,"),
        (["--augment", "shift"], "the augmentation shift takes images (n, channels, height, width), but"),
        (["--device", "moon"], "the device moon cannot be used: "),
        (["--clip-norm", "0"], "clip_norm must be above zero and finite, got 0.0."),
    ]
    for options, told in refusals:
        assert refused(*words, *options, "--output", tmp_path / "other").startswith(told)
    assert not (tmp_path / "other").exists()


def test_patience_stops_on_a_part_of_the_training_set(table, tmp_path):
    words = ["train", table, "--label", "species", "--net", "mlp", "--epochs", 60, "--test-share", 0.2]
    done(*words, "--patience", 3, "--validation-share", 0.25, "--output", tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert len(history) == saved["best_epoch"] + 4 < 60
    assert (saved["n_train"], saved["n_test"]) == (36, 12)
    assert max(e["val_accuracy"] for e in history) == history[saved["best_epoch"]]["val_accuracy"]
    samples = read_samples(table, label="species")
    train, _ = share_split(samples.labels, 0.2, 0, samples.class_names)
    mean = saved["preprocessing"]["mean"]
    assert mean != pytest.approx(Standardize.fit(samples.x[train]).mean.tolist())  # of what is trained on alone
    with np.load(tmp_path / "run" / "snapshots.npz") as arrays:
        assert arrays["epochs"][-1] == len(history)
    whole = (tmp_path / "run" / "model.safetensors").read_bytes()
    done(*words, "--patience", 3, "--validation-share", 0.25, "--output", tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == whole


def test_a_run_that_ends_badly_is_written_and_has_exit_code_1(table, tmp_path, ending_badly):
    words = ["train", table, "--label", "species", *QUICK, "--output", tmp_path / "run"]
    ending_badly.append("ldmnet")
    result = invoke(*words)
    assert result.exit_code == 1
    assert result.stdout.startswith("trained mlp on 60 samples")
    assert [line for line in told_by(result) if " epoch " not in line] == [
        "warning: the solver was slow",
        f"the run ended badly: {LOST}",
    ]
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert saved["ended_badly"] == [LOST]
    assert done("predict", tmp_path / "run", table).stdout.count("\n") == 61
    again = invoke(*words)  # it is done, and still no good
    assert (again.exit_code, again.stderr) == (1, f"the run ended badly: {LOST}\n")
    well = done(*words[:-1], tmp_path / "well", "--method", "none")
    assert "ended badly" not in well.output
    assert json.loads((tmp_path / "well" / "run.json").read_text())["ended_badly"] == []


def test_a_pull_that_never_began_is_told(table, tmp_path):
    told = done("train", table, "--label", "species", *QUICK, "--output", tmp_path / "run").stderr.splitlines()
    assert [line for line in told if line.startswith(UNUSED)] == told[-1:]
    assert "Train longer" in told[-1]
    other = ["--method", "none", "--output", tmp_path / "none"]
    assert UNUSED not in done("train", table, "--label", "species", *QUICK, *other).stderr


def test_snapshots_that_a_finished_run_has_not_are_asked_for_in_vain(table, tmp_path):
    words = [table, "--label", "species", *QUICK]
    train = ["train", *words, "--output", tmp_path / "run"]
    told = [line.split(" loss ")[0] for line in told_by(done(*train, "--no-snapshots")) if " loss " in line]
    assert told == [f"ldmnet: epoch {i}/4" for i in range(1, 5)]
    assert done(*train).stderr == (
        "no snapshots of this run were kept when it was trained: train into another --output to get them\n"
    )
    assert not (tmp_path / "run" / "snapshots.npz").exists()
    compare = ["compare", *words, "--splits", 2, "--output", tmp_path / "c", "--methods"]
    done(*compare, "none", "--no-snapshots")
    told = done(*compare, "none,dropout").stderr.splitlines()
    assert told[-1] == (
        "no snapshots of the first split of none were kept when it was trained: compare into another --output to get "
        "them"
    )
    assert done(*compare, "dropout").stderr == ""
    assert done(*compare, "none,dropout", "--no-snapshots").stderr == ""


def test_an_ensemble_of_ones_own_networks_has_the_features_of_their_layer(table, own_net):
    own_net("nn.Sequential(nn.Flatten(), nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, c))")
    words = ["train", table, "--label", "species", "--epochs", 2, "--net", "mynets:small", "--layer", "2"]
    done(*words, "--method", "ldmnet+ensemble:2", "--output", "run")
    assert (Path("run") / "snapshots.npz").exists()
    done("embed", "run", table, "--net", "mynets:small", "--output", "features.npz")
    assert np.load("features.npz")["features"].shape[1] == 2 * 8
