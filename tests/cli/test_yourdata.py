"""From a folder of someone's images, a table or arrays to a trained network, a comparison and predictions."""

import csv
import io
import json
import re
import sys

import numpy as np
import pytest
import torch

from commands import CLASSES, QUICK, done, invoke, refused
from ldmnet.data.userdata import read_samples, share_split
from ldmnet.training.standardize import Standardize

SAVE = "Save it with np.savez(path, x=x, y=y)."


@pytest.mark.slow
def test_from_a_folder_of_images_to_a_table_and_predictions(photos, tmp_path):
    run = tmp_path / "run"
    shown = done("train", photos, "--size", 10, "--test-share", 0.25, "--output", run, *QUICK).stdout.splitlines()
    assert re.match(r"trained mlp on 27 samples of 3 classes, strength 0(\.\d+)?, mu \S+, lambda_tilde \S+: ", shown[0])
    assert shown[1] == "test accuracy 100.00 % of 9 samples held out"
    assert shown[2] == f"the run is in {run}"

    result = done("predict", run, photos)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert list(rows[0]) == ["sample", "predicted", "p(<script>)", "p([red])", "p(plain)"]
    assert [row["sample"] for row in rows[:2]] == ["<script>/00.png", "<script>/01.png"]
    assert [row["predicted"] for row in rows] == [name for name in CLASSES for _ in range(12)]
    assert all(sum(float(v) for k, v in row.items() if k[:2] == "p(") == pytest.approx(1, abs=1e-5) for row in rows)
    assert result.stderr == "100.00 % of 36 labelled samples are right\n"

    loose = tmp_path / "new"
    loose.mkdir()
    (loose / "a.png").write_bytes((photos / "plain" / "05.png").read_bytes())
    result = done("predict", run, loose, "--output", tmp_path / "out" / "new.csv")
    assert result.output == ""
    (row,) = csv.DictReader((tmp_path / "out" / "new.csv").open())
    assert (row["sample"], row["predicted"]) == ("a.png", "plain")

    options = ["--size", 10, "--splits", 2, "--methods", "none,control,ldmnet", *QUICK, "--output", tmp_path / "c"]
    shown = done("compare", photos, *options).stdout.splitlines()
    assert shown[0] == "| method | accuracy, % | splits | LDMNet is better by | p | seconds per split |"
    assert [line.split(" | ")[0] for line in shown[2:5]] == ["| none", "| control", "| ldmnet"]
    assert shown[5] == ""
    assert len(shown) == 7  # the last line is advice
    again = done("compare", photos, *options)
    assert again.stdout.splitlines() == shown
    assert again.stderr == ""  # nothing was run again


def test_a_table_with_names_of_classes(table, tmp_path):
    run = tmp_path / "run"
    done("train", table, "--label", "species", "--test-share", 0.2, "--output", run, "--epochs", 12)
    saved = json.loads((run / "run.json").read_text())
    assert saved["class_names"] == ["<b>ash</b>", "elm", "oak"]
    assert saved["settings"]["net"] == "mlp"
    assert saved["n_train"] == 48
    assert saved["accuracy"] > 90
    assert saved["versions"]["torch"] == torch.__version__.split("+")[0]
    samples = read_samples(table, label="species")
    train, test = share_split(samples.labels, 0.2, 0, samples.class_names)
    assert samples.labels[test].bincount().tolist() == [4, 4, 4]
    fitted = Standardize.fit(samples.x[train])  # of the training part alone
    assert saved["preprocessing"]["mean"] == pytest.approx(fitted.mean.tolist())
    assert [json.loads(line)["epoch"] for line in (run / "history.jsonl").read_text().splitlines()] == list(range(12))
    assert not (run / "checkpoint.pt").exists()

    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(",".join(np.delete(line.split(";"), 1)) for line in table.read_text().split()))
    labelled, unlabelled = (done("predict", run, path) for path in (table, bare))
    assert labelled.stdout == unlabelled.stdout
    assert unlabelled.stderr == ""
    assert labelled.stdout.splitlines()[1].startswith("1,")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "compare", "tune"])
def test_a_label_column_that_was_guessed_is_named(table, tmp_path, command):
    if command == "tune":
        pytest.importorskip("optuna", reason="the extra tune is not installed")
    named, bare = tmp_path / "named.csv", tmp_path / "bare.csv"
    rows = [line.split(";") for line in table.read_text().split()]
    named.write_text("\n".join(",".join([*row[:1], *row[2:], row[1]]) for row in rows))
    bare.write_text(named.read_text().split("\n", 1)[1])
    few = {"train": [], "compare": ["--splits", 1, "--methods", "none"], "tune": ["--splits", 1, "--trials", 1]}
    words = [*QUICK, *few[command], "--output", tmp_path / "out"]
    first = done(command, named, *words).stderr.splitlines()[0]
    assert first == "label column: species (guessed; --label to choose another)"
    assert "label column" not in done(command, named, *words[:-1], tmp_path / "told", "--label", "species").stderr
    first = done(command, bare, *words[:-1], tmp_path / "bare").stderr.splitlines()[0]
    assert first == "label column: the last (guessed; the table has no header)"


def test_arrays_with_labels_that_have_gaps(tmp_path):
    rng = np.random.default_rng(0)
    y = np.array([3, 9] * 10)
    x = rng.normal(size=(20, 5)) + y[:, None]
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x=x)
    done("train", tmp_path / "a.npz", *QUICK, "--output", tmp_path / "run")
    rows = list(csv.DictReader(io.StringIO(done("predict", tmp_path / "run", tmp_path / "b.npz").stdout)))
    assert [row["predicted"] for row in rows] == [str(label) for label in y]
    done("embed", tmp_path / "run", tmp_path / "a.npz", "--output", tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as arrays:
        assert arrays["features"].shape == (20, 256)
        assert arrays["classes"][arrays["y"]].tolist() == [str(label) for label in y]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "no.csv",
            None,
            "{} does not exist. Name an .npz file, a CSV table or a folder with one folder of images per class.",
        ),
        (
            "a.pdf",
            "x",
            "{} is neither an .npz file, a CSV table nor a folder with one folder of images per class.",
        ),
        ("a.csv", "a,label\n1,u\n2,u\n", "{} has one class only, 'u'. A classifier needs two or more."),
        ("a.csv", "a,label\n1,u\n2,\n", "{} has rows without a label."),
        (
            "a.csv",
            "0,1,b\n1,2,u\n3,4,u\n5,6,v\n7,8,v\n",
            "{}: 'b' ends the first row and no other. If that row is a header, name the column of labels; if it is a "
            "sample, give the table a header. (--label)",
        ),
        (
            "a.csv",
            "a,label\n1,u\n2,v\n3,v\n",
            "class 'u' has 1 sample: one to train on and one to hold out are needed. Add samples, or remove the class.",
        ),
        (
            "a.npz",
            "x",
            "{} is not an .npz file of plain numbers, or is damaged. Save it with np.savez(path, x=x, y=y).",
        ),
        ("a.npz", {"x": [[np.nan]], "y": [0]}, "{}: x has NaN or infinite values. Remove or fill them."),
        ("a.npz", {"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, "{}: x has no samples."),
        (
            "a.npz",
            {"x": np.zeros((4, 0, 3)), "y": [0, 1, 0, 1]},
            "{}: x has samples without values: its shape is (4, 0, 3).",
        ),
        (
            "a.npz",
            {"x": np.eye(4) * 1e300, "y": [0, 1, 0, 1]},
            "{}: x has values beyond 3.4e+38, the largest that a network can take. Scale them.",
        ),
        (
            "a.npz",
            {"x": np.ones((4, 3)), "y": [0, 1, 0, 1]},
            "{}: all 4 samples are the same, so nothing can be learned from them.",
        ),
    ],
)
def test_data_that_does_not_do(tmp_path, name, content, words):
    path = tmp_path / name
    if isinstance(content, dict):
        np.savez(path, **content)
    elif content is not None:
        path.write_text(content)
    assert refused("train", path, "--test-share", 0.5, "--output", tmp_path / "run") == words.format(path)
    assert not (tmp_path / "run").exists() or not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--test-share", "1.5"], "the share must be above 0 and below 1, got 1.5."),
        (["--mu", "big"], "Invalid value for '--mu': 'big' is not a valid float."),
        (["--mu", "0", "--lambda-tilde", "1"], "mu must be above zero and finite, got 0.0."),
        (["--mu", "1"], "mu was given without lambda_tilde: they go together. Without both, none is needed."),
        (["--strength", "0"], "strength must be above zero and finite, got 0.0."),
        (["--coupling", "-1"], "coupling must be above zero, got -1.0; infinity switches the graph off."),
        (["--coupling", "inf"], "the method ldmnet with the graph switched off is the method control."),
        (["--lr", "-1"], "lr must be above zero and finite, got -1.0."),
        (["--label", "sort"], "label is 'sort' but {} has the columns a, species, b, c."),
        (["--layer", "top"], "the model has no layer 'top'."),
        (
            ["--net", "small"],
            "there is no network 'small'. Choose mnist, cifar, residual, mlp, or package.module:factory, a function of "
            "the number of inputs and the number of classes.",
        ),
        (["--net", "nowhere:net"], "the network nowhere:net cannot be loaded: No module named 'nowhere'."),
        (
            ["--net", "mnist"],
            "the network mnist takes samples of shape (1, 28, 28), but those of {} have (3,). Choose the network mlp, "
            "or one of your own.",
        ),
    ],
)
def test_options_that_do_not_do(table, tmp_path, options, words):
    options = options if "--label" in options else [*options, "--label", "species"]
    assert refused("train", table, *options, "--output", tmp_path / "run").startswith(words.format(table))


@pytest.mark.parametrize("command", [["train"], ["compare", "--methods", "none,ldmnet"]], ids=["train", "compare"])
def test_numbers_of_two_kinds_are_refused_before_anything_is_trained(table, tmp_path, command):
    words = [command[0], table, "--label", "species", *command[1:], "--output", tmp_path / "out"]
    result = invoke(*words, "--strength", 1, "--mu", 1)
    assert result.exit_code == 2
    assert result.output == (
        "Error: strength has no unit and mu is tied to the scale of the features: give strength and coupling, or mu "
        "and lambda_tilde, or none of them.\n"
    )
    assert not (tmp_path / "out").exists()


def test_numbers_that_the_method_has_not_are_refused(table, tmp_path):
    train = ["train", table, "--label", "species", *QUICK, "--output", tmp_path / "run"]
    for method, option in (
        ("none", "strength"),
        ("control", "coupling"),
        ("ldmnet", "dropout"),
        ("none", "weight-decay"),
    ):
        result = invoke(*train, "--method", method, f"--{option}", 0.5)
        assert result.exit_code == 2
        assert f"--{option} does nothing with --method {method}." in result.stderr
    compared = invoke("compare", table, "--methods", "ldmnet+mixup,svm", "--dropout", 0.5, "--output", tmp_path / "run")
    assert "--dropout does nothing with --methods ldmnet+mixup,svm." in compared.stderr
    result = invoke(*train, "--validation-share", 0.5)
    assert "--validation-share does nothing without --patience." in result.stderr
    assert not (tmp_path / "run").exists()
    done(*train, "--method", "dropout", "--dropout", 0.5, "--patience", 3, "--validation-share", 0.5)


def test_tensorboard(table, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    done("train", table, "--label", "species", *QUICK, "--output", tmp_path / "run", "--tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {"loss", "accuracy", "penalty", "strength"} <= set(events.Tags()["scalars"])
    kept = [json.loads(line)["strength"] for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert [event.value for event in events.Scalars("strength")] == pytest.approx(kept)


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("optuna", ["tune", "DATA", "--label", "species", "--epochs", "1"], "tune"),
        ("onnx", ["export", "RUN"], "onnx"),
    ],
)
def test_a_missing_extra_is_named(table, tmp_path, monkeypatch, package, words, extra):
    done("train", table, "--label", "species", "--epochs", 1, "--output", tmp_path / "run")
    monkeypatch.setitem(sys.modules, package, None)
    given = [{"DATA": table, "RUN": tmp_path / "run"}.get(word, word) for word in words]
    assert refused(*given).endswith(f"is not installed. Install it with: pip install 'ldmnet[{extra}]'")


def test_nothing_that_is_read_and_no_file_of_a_run_is_written_over(table, tmp_path):
    run, records, link = tmp_path / "run", tmp_path / "records.jsonl", tmp_path / "link.html"
    done("train", table, "--label", "species", "--epochs", 1, "--output", run)
    records.write_text("{}")
    link.symlink_to(records)
    other_link = tmp_path / "other.csv"
    other_link.symlink_to(run / "model.safetensors")
    before = {path: path.read_bytes() for path in (table, run / "run.json", run / "model.safetensors", records)}
    for words, output, what in (
        (["predict", run, table], table, "what is read here"),
        (["embed", run, table], table, "what is read here"),
        (["predict", run, table], run / "run.json", "a file of a run"),
        (["predict", run, table], run / "model.safetensors", "a file of a run"),
        (["predict", run, table], other_link, "a file of a run"),
        (["report", records], link, "what is read here"),
    ):
        words = refused(*words, "--output", output)
        assert words == f"{output} is {what} and would be lost. Name another file. (--output)"
    assert refused("export", run, "--output", table).endswith(f"an ONNX file ends in .onnx, got {table}.")
    assert all(path.read_bytes() == content for path, content in before.items())


def test_beside_the_images_of_a_folder_predictions_are_written_again(photos, tmp_path):
    run, image = tmp_path / "run", photos / "plain" / "05.png"
    done("train", photos, "--size", 10, "--output", run, *QUICK)
    assert refused("predict", run, photos, "--output", image).startswith(f"{image} is what is read here")
    for _ in range(2):
        done("predict", run, image, "--output", photos / "predicted.csv")
    done("predict", run, photos / "plain", "--output", photos / "predicted.csv")
