"""From a folder of someone's images, a table or arrays to a trained network, a comparison and predictions."""

import csv
import io
import json
import re
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from scipy.stats import ttest_rel

from ldmnet.cli import main
from ldmnet.data.userdata import read_samples, share_split
from ldmnet.errors import BadEndWarning
from ldmnet.locks import owned
from ldmnet.records import Record
from ldmnet.records.comparison import compared_rows, format_comparison, paired_p
from ldmnet.runs import network as network_module
from ldmnet.runs import tune as tuning
from ldmnet.runs.run import Watch
from ldmnet.runs.samples import SamplesTask, UserSettings
from ldmnet.runs.trained import load_run
from ldmnet.strength import COUPLING, STRENGTH
from ldmnet.training.standardize import Standardize

CLASSES = ["<script>", "[red]", "plain"]
SAVE = "Save it with np.savez(path, x=x, y=y)."
QUICK = ["--net", "mlp", "--epochs", "4"]


def invoke(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


UNUSED = "warning: the regulariser was not in force: "


def told_by(result):
    """The lines on the standard error, but for the one that a training too short for the pull ends with."""
    return [line for line in result.stderr.splitlines() if not line.startswith(UNUSED)]


def done(*words):
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words):
    result = invoke(*words)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    return result.output.strip().splitlines()[-1].removeprefix("Error: ")


@pytest.fixture
def photos(tmp_path):
    """A bright bar that stands elsewhere in each class, in images of two sizes."""
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    rng = np.random.default_rng(0)
    for c, name in enumerate(CLASSES):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 60, (20, 24 + i % 2, 3), np.uint8)
            pixels[4:16, 3 + 7 * c : 8 + 7 * c] = 200
            image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i:02d}.png")
    return tmp_path / "photos"


@pytest.fixture
def table(tmp_path):
    """Three blobs with names, the label in the middle column."""
    rng = np.random.default_rng(0)
    rows = ["a;species;b;c"]
    for i in range(60):
        a, b, c = 100 + 5 * rng.normal(size=3) + 20 * np.eye(3)[i % 3]
        rows.append(f"{a:.3f};{['oak', 'elm', '<b>ash</b>'][i % 3]};{b:.3f};{c:.3f}")
    path = tmp_path / "trees.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("command", [["predict"], ["embed", "--output", "features.csv"]])
def test_values_that_leave_float32_on_the_way_are_refused(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(60, 4)) + np.arange(60)[:, None] % 3
    rows = [",".join([*(f"{v:.4f}" for v in row), "xyz"[i % 3]]) for i, row in enumerate(values)]
    Path("table.csv").write_text("\n".join(["a,b,c,d,label", *rows]) + "\n")
    done("train", "table.csv", *QUICK, "--output", "run")
    Path("far.csv").write_text("a,b,c,d\n1,2,3,4\n3.4e38,-3e38,1e38,2e38\n")
    said = refused(command[0], "run", "far.csv", *command[1:])
    assert said.startswith("sample 2, and 0 others of 2: the network's numbers leave float32")
    assert not Path("features.csv").exists()


# ---- the way through


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
    assert shown[0] == "| method | accuracy, % | splits | LDMNet is better by | p |"
    assert [line.split(" | ")[0] for line in shown[2:]] == ["| none", "| control", "| ldmnet"]
    again = done("compare", photos, *options)
    assert again.stdout.splitlines() == shown
    assert again.stderr == ""  # nothing was run again


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


def test_predict_finds_columns_by_their_names(table, tmp_path):
    run = tmp_path / "run"
    done("train", table, "--label", "species", "--output", run, *QUICK)
    cells = [line.split(";") for line in table.read_text().split()]

    def written(name, *order):
        at = [cells[0].index(column) for column in order]
        (tmp_path / name).write_text("\n".join(",".join(row[i] for i in at) for row in cells))
        return tmp_path / name

    wanted = done("predict", run, table)
    moved = done("predict", run, written("moved.csv", "c", "b", "species", "a"))
    assert (moved.stdout, moved.stderr) == (wanted.stdout, wanted.stderr)
    assert done("predict", run, written("bare.csv", "b", "c", "a")).stdout == wanted.stdout
    lost = written("lost.csv", "a", "b", "species")
    assert refused("predict", run, lost) == (
        f"{lost} lacks columns of the training: c. It has the columns a, b, species."
    )
    more = written("more.csv", "a", "b", "c", "species")
    more.write_text(more.read_text().replace("\n", ",x\n").replace("species,x", "species,id") + ",x")
    found = done("predict", run, more)
    assert found.stdout == wanted.stdout
    assert found.stderr == f"{more}: ignored columns that the training had not: id\n{wanted.stderr}"
    others = written("others.csv", "a", "b", "c")
    others.write_text(others.read_text().replace("a,b,c", "d,e,f"))
    assert refused("predict", run, others).startswith(f"{others} lacks columns of the training: a, b, c.")
    nameless = written("nameless.csv", "a", "b", "c")
    nameless.write_text(nameless.read_text().split("\n", 1)[1])
    assert done("predict", run, nameless).stdout == wanted.stdout  # by place


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


def test_a_label_column_that_was_guessed_is_known_again(table, tmp_path):
    path = tmp_path / "trees.csv"
    rows = [line.split(";") for line in table.read_text().split()]
    path.write_text("\n".join(",".join([*row[:1], *row[2:], row[1]]) for row in rows))
    done("train", path, *QUICK, "--output", tmp_path / "run")
    wanted = done("predict", tmp_path / "run", path)
    assert wanted.stderr.endswith("% of 60 labelled samples are right\n")
    path.write_text("\n".join(",".join([row[1], "7", *row[2:], row[0]]) for row in rows).replace("7", "id", 1))
    found = done("predict", tmp_path / "run", path)
    assert found.stdout == wanted.stdout
    assert found.stderr == f"{path}: ignored columns that the training had not: id\n{wanted.stderr}"


def test_one_photo_is_enough_to_predict_and_to_embed(photos, tmp_path):
    run, photo = tmp_path / "run", photos / "plain" / "05.png"
    (photos / "plain" / "notes.txt").write_text("ours")
    result = done("train", photos, "--size", 10, "--output", run, *QUICK)
    left_out = f"left out 1 entry beside the images: {photos / 'plain' / 'notes.txt'} (ending .txt)"
    assert result.stderr.splitlines()[0] == left_out
    (row,) = csv.DictReader(io.StringIO(done("predict", run, photo).stdout))
    assert (row["sample"], row["predicted"]) == ("05.png", "plain")
    done("embed", run, photo, "--output", tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as arrays:
        assert arrays["names"].tolist() == ["05.png"]


def test_features_are_written_as_a_table_or_as_arrays(table, tmp_path):
    run, bare = tmp_path / "run", tmp_path / "bare.csv"
    done("train", table, "--label", "species", *QUICK, "--output", run)
    bare.write_text("\n".join(",".join(np.delete(line.split(";"), 1)) for line in table.read_text().split()))
    done("embed", run, table, "--output", tmp_path / "f.npz")
    done("embed", run, table, "--output", tmp_path / "f.csv")
    done("embed", run, bare, "--output", tmp_path / "bare.CSV")
    with np.load(tmp_path / "f.npz") as arrays:
        features, classes = arrays["features"], arrays["classes"][arrays["y"]].tolist()
    head, *rows = csv.reader((tmp_path / "f.csv").open())
    names = [f"f{i}" for i in range(256)]
    assert head == ["sample", "label", *names]
    assert [row[:2] for row in rows] == [[str(i), name] for i, name in enumerate(classes, 1)]
    assert np.array_equal(np.array([row[2:] for row in rows], np.float32), features)
    assert next(csv.reader((tmp_path / "bare.CSV").open())) == ["sample", *names]
    assert refused("embed", tmp_path / "no run", table, "--output", tmp_path / "f.txt") == (
        f"Invalid value for '--output': a file of features ends in .npz or .csv, got {tmp_path / 'f.txt'}."
    )


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


@pytest.mark.parametrize("channels", [1, 3])
def test_a_run_on_arrays_of_images_predicts_a_folder_of_them(tmp_path, channels):
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    x = rng.integers(0, 90, (20, channels, 12, 10), np.uint8) + np.uint8(100) * y[:, None, None, None].astype(np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    (tmp_path / "new").mkdir()
    for i, pixels in enumerate(x):
        image.fromarray(pixels[0] if channels == 1 else pixels.transpose(1, 2, 0)).save(tmp_path / f"new/{i:02d}.png")
    done("train", tmp_path / "a.npz", *QUICK, "--output", tmp_path / "run")
    wanted, found = (done("predict", tmp_path / "run", tmp_path / name).stdout for name in ("a.npz", "new"))
    assert [row.split(",")[1:] for row in found.splitlines()] == [row.split(",")[1:] for row in wanted.splitlines()]


def test_a_run_on_small_numbers_refuses_pixels(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    y = np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).random((20, 1, 12, 10)) + y[:, None, None, None], y=y)
    (tmp_path / "new").mkdir()
    image.new("L", (10, 12)).save(tmp_path / "new/1.png")
    done("train", tmp_path / "a.npz", *QUICK, "--output", tmp_path / "run")
    result = CliRunner().invoke(main, ["predict", str(tmp_path / "run"), str(tmp_path / "new")])
    assert result.exit_code == 2
    assert (
        "holds images, with pixels of 0 to 255, but the samples of the training had a deviation of 0." in result.output
    )


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


# ---- going on, and refusing to


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


def test_what_is_not_a_run_or_does_not_fit_it(table, photos, tmp_path):
    assert refused("predict", tmp_path, table) == (
        f"{tmp_path} holds no run: run.json is missing. Name a folder that train wrote."
    )
    run = tmp_path / "run"
    done("train", table, "--label", "species", *QUICK, "--output", run)
    (tmp_path / "wide.csv").write_text("1,2,3,4,5,oak\n")
    assert refused("predict", run, tmp_path / "wide.csv") == (
        f"{tmp_path / 'wide.csv'} has 6 columns where there should be 3, or 4 with the labels."
    )
    (tmp_path / "bad.csv").write_text("a,b,c\n1,2,x\n")
    assert refused("predict", run, tmp_path / "bad.csv") == (
        f"{tmp_path / 'bad.csv'}, row 1: 'x' in column c is not a finite number."
    )
    np.savez(tmp_path / "flat.npz", x=np.zeros((2, 4)))
    assert refused("predict", run, tmp_path / "flat.npz") == (
        f"{tmp_path / 'flat.npz'}: a sample has shape (4,) but in training it had (3,)."
    )
    (run / "model.safetensors").write_bytes(b"cut")
    assert refused("predict", run, table).startswith(f"{run / 'model.safetensors'} does not fit the run: ")
    (run / "run.json").write_text("{")
    assert refused("embed", run, table).startswith(f"{run / 'run.json'} cannot be read: ")


def test_a_network_of_ones_own_is_named_before_it_is_run(table, tmp_path, monkeypatch):
    (tmp_path / "mynets.py").write_text(
        "from ldmnet.networks import mlp\ndef small(d_in, n_classes):\n    return mlp(d_in, n_classes, (8,))\n"
        "def wrong(d_in, n_classes):\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["--label", "species", "--epochs", 2, "--output", "run"]
    assert (
        refused("train", table, "--net", "mynets:wrong", *words) == "mynets:wrong returned int, not a torch.nn.Module."
    )
    assert refused("train", table, "--net", "os:getcwd", *words).startswith("os:getcwd(3, 3) ended with TypeError: ")
    done("train", table, "--net", "mynets:small", *words[:-1], "own")
    assert refused("predict", "own", table) == (
        "own was trained with the network mynets:small, which is code that would be run. If you trust it, name it "
        "again. (--net mynets:small)"
    )
    assert len(done("predict", "own", table, "--net", "mynets:small").stdout.splitlines()) == 61


@pytest.fixture
def own_net(tmp_path, monkeypatch):
    """Writes mynets.py with a network, as an editor would between two commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(made):
        lines = ["import random", "from torch import nn", "from ldmnet.networks import FeatureNet, mlp"]
        (tmp_path / "mynets.py").write_text("\n".join([*lines, f"def small(d, c):\n    return {made}\n"]))
        sys.modules.pop("mynets", None)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)

    yield write
    sys.modules.pop("mynets", None)


def test_a_network_of_ones_own_is_known_by_its_name(table, own_net):
    words = ["train", table, "--label", "species", "--epochs", 4, "--net", "mynets:small", "--output", "run"]
    own_net("mlp(d, c, (8,))")
    first = done(*words).stdout
    own_net("mlp(d, c, (9,))")  # an edit is not seen: the run is done
    assert done(*words).stdout == first
    assert refused("predict", "run", table, "--net", "mynets:small").startswith("run/model.safetensors does not fit")


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


# ---- ways of training


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


# ---- compare, tune, export


def test_the_paired_test_is_that_of_scipy_and_wider_for_overlapping_splits():
    ours, theirs = [95.0, 94.0, 96.5, 95.0], [93.0, 93.5, 94.0, 94.5]
    gains = [a - b for a, b in zip(ours, theirs, strict=True)]
    assert paired_p(gains) == pytest.approx(ttest_rel(ours, theirs).pvalue)
    assert paired_p(gains, overlap=0.43) > paired_p(gains)
    assert paired_p([1.0]) is None
    assert paired_p([0.0, 0.0]) is None
    assert paired_p([1.0, 1.0]) is None  # no spread to judge by
    assert paired_p([90.0 - 86.6667, 93.3333 - 90.0]) is None


def compared(method, seed, accuracy):
    known = {"n_train": 70, "n_test": 30, "hash": "", "settings": {}}
    return Record(table="comparison", method=method, seed=seed, accuracy=accuracy, **known)


def test_the_table_of_a_comparison():
    records = [
        compared(method, split, accuracy)
        for method, found in (("weight_decay", [90.0, 91.0]), ("ldmnet", [93.0, 95.0]))
        for split, accuracy in enumerate(found)
    ]
    rows = compared_rows(records)
    assert [(row.mean, row.std, row.gain) for row in rows] == [(90.5, 0.7071, 3.5), (94.0, 1.4142, None)]
    assert format_comparison(rows).splitlines()[2:] == [
        f"| weight decay | 90.50 ± 0.71 | 2 | +3.50 | {rows[0].p:.3f} |",
        "| ldmnet | **94.00 ± 1.41** | 2 |  |  |",
    ]
    assert format_comparison(rows, "csv").splitlines()[0] == 'method,"accuracy, %",splits,LDMNet is better by,p'
    assert json.loads(format_comparison(rows, "json"))[0]["gain"] == 3.5


def test_a_method_that_diverges_has_a_row_that_says_so_and_the_others_go_on(table, tmp_path):
    words = ["compare", table, "--label", "species", "--net", "mlp", "--epochs", 8, "--splits", 2, "--mu", 1e9]
    words += ["--lambda-tilde", 5e9, "--methods", "ldmnet,none", "--output", tmp_path / "c"]
    first = done(*words)
    assert first.stdout.splitlines()[2] == "| ldmnet | diverged | 2 |  |  |"
    assert first.stdout.splitlines()[3].startswith("| none | **")
    assert first.stdout.splitlines()[3].endswith(" | 2 |  |  |")  # nothing to set it against
    told = [line for line in first.stderr.splitlines() if "diverged" in line]
    assert [line.split(":")[0] for line in told] == ["split 1", "split 2"]
    assert all("Lower mu, which is 1e+09 and tied to the scale of the features" in line for line in told)
    again = done(*words)
    assert (again.stdout, again.stderr.splitlines()) == (first.stdout, told)  # nothing is run again
    found = json.loads(done(*words, "--format", "json").stdout)
    assert [row["mean"] is None for row in found] == [True, False]
    pytest.importorskip("plotly", reason="the extra report is not installed")
    done("report", tmp_path / "c", "--output", tmp_path / "report.html")
    assert "<td>diverged</td>" in (tmp_path / "report.html").read_text().replace(' class="number"', "")


def test_a_network_without_dropout_is_compared_without_it(table, own_net):
    own_net("nn.Sequential(nn.Flatten(), nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, c))")
    words = ["compare", table, "--label", "species", "--epochs", 1, "--net", "mynets:small", "--layer", "2"]
    words += ["--splits", 1, "--format", "json"]
    result = done(*words, "--methods", "none,dropout,ldmnet")
    assert [row["method"] for row in json.loads(result.stdout)] == ["none", "ldmnet"]
    assert result.stderr.splitlines()[0] == "dropout: left out, the network has no nn.Dropout layer"
    assert len(Path("comparison/records.jsonl").read_text().splitlines()) == 2
    result = invoke(*words, "--methods", "dropout")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "Error: the method is DropOut but the model has no nn.Dropout layer."
    own_net("mlp(d, c, (8,))")
    words[words.index("2")] = "features"
    assert "left out" not in done(*words, "--methods", "none,dropout").stderr


LOST = "the training loss is 1.2, above chance. Lower lr."


@pytest.fixture
def ending_badly(monkeypatch):
    """A fit that ends badly for some methods, and warns of something else on the way."""
    plain, methods = network_module.fit, []

    def fit(*args, method, **options):
        for _ in range(2):
            warnings.warn("the solver  was\nslow", UserWarning, stacklevel=1)
        found = plain(*args, method=method, **options)
        if method.name in methods:
            warnings.warn(LOST, BadEndWarning, stacklevel=1)
        return found

    monkeypatch.setattr(network_module, "fit", fit)
    return methods


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


@pytest.mark.parametrize(
    ("badly", "code"), [(["ldmnet"], 1), (["none"], 0), (["none", "ldmnet"], 1), (["none", "dropout"], 0), ([], 0)]
)
def test_rows_that_ended_badly_are_marked(table, tmp_path, ending_badly, badly, code):
    ending_badly += badly
    words = ["compare", table, "--label", "species", *QUICK, "--splits", 2, "--output", tmp_path]
    words += ["--methods", "none,dropout,ldmnet"]
    result = invoke(*words)
    assert result.exit_code == code
    told = [line for line in result.stderr.splitlines() if "badly" in line]
    assert sorted(told) == sorted(f"split {i}: {method} ended badly: {LOST}" for i in (1, 2) for method in badly)
    assert result.stderr.count("warning: the solver was slow\n") == 1
    table_lines = result.stdout.splitlines()
    marked = [line.split(" | ")[0].removeprefix("| ") for line in table_lines[2:5]]
    assert marked == [method + " *" * (method in badly) for method in ("none", "dropout", "ldmnet")]
    footnote = ["", "* ended badly: " + ", ".join(f"{method} on 2 of 2 splits" for method in badly)] if badly else []
    assert table_lines[5:] == footnote
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [r["method"] for r in records if r.get("ended_badly") == [LOST]] == badly * 2
    again = invoke(*words, "--format", "csv")  # from the records
    assert (again.exit_code, again.stderr.splitlines()) == (code, told)
    head, *rows = csv.reader(io.StringIO(again.stdout))
    assert ("ended badly" in head) == bool(badly)
    if badly:
        assert {row[0]: row[-1] for row in rows} == {
            m: "2" if m in badly else "0" for m in ("none", "dropout", "ldmnet")
        }


def test_a_comparison_whose_rows_all_ended_badly_has_exit_code_1(table, tmp_path, ending_badly):
    ending_badly += ["none", "dropout"]
    words = ["compare", table, "--label", "species", *QUICK, "--splits", 1, "--output", tmp_path]
    assert invoke(*words, "--methods", "none,dropout").exit_code == 1
    assert invoke(*words, "--methods", "none,weight_decay").exit_code == 0
    pytest.importorskip("plotly", reason="the extra report is not installed")
    done("report", tmp_path, "--output", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "DropOut *<" in page
    assert "Weight decay *<" not in page
    assert "Rows with * ended badly on one split or more" in page


def test_a_mean_over_the_splits_that_went_well_is_not_shown():
    records = [
        compared(method, split, accuracy)
        for method, found in (
            ("none", [90.0, None, 91.0]),
            ("dropout", [90.0, 93.0, 90.0]),
            ("ldmnet", [93.0, 95.0, 92.0]),
        )
        for split, accuracy in enumerate(found)
    ]
    none, dropout, ldmnet = compared_rows(records)
    assert (none.mean, none.std, none.splits, none.gain, none.p) == (None, None, 3, None, None)
    assert dropout.gain == 2.3333
    assert dropout.p is not None
    lines = format_comparison([none, dropout, ldmnet], "csv").splitlines()
    assert lines[1] == "none,diverged,3,,"
    assert format_comparison([none]).splitlines()[2] == "| none | diverged | 3 |  |  |"


@pytest.mark.parametrize("command", ["compare", "tune"])
def test_a_run_of_many_that_takes_long_tells_of_its_epochs(table, tmp_path, monkeypatch, command):
    if command == "tune":
        pytest.importorskip("optuna", reason="the extra tune is not installed")
    monkeypatch.setattr("ldmnet.cli.yourdata.LONG", 0)
    words = [command, table, "--label", "species", *QUICK, "--splits", 1, "--output", tmp_path]
    told = done(*words, *(["--methods", "none"] if command == "compare" else ["--trials", 1])).stderr.splitlines()
    title = "none" if command == "compare" else "trial 1"
    assert [line.split(" loss ")[0] for line in told if " loss " in line] == [
        f"{title}: epoch {i}/4" for i in range(1, 5)
    ]


def test_a_pull_that_never_began_is_told(table, tmp_path):
    told = done("train", table, "--label", "species", *QUICK, "--output", tmp_path / "run").stderr.splitlines()
    assert [line for line in told if line.startswith(UNUSED)] == told[-1:]
    assert "Train longer" in told[-1]
    other = ["--method", "none", "--output", tmp_path / "none"]
    assert UNUSED not in done("train", table, "--label", "species", *QUICK, *other).stderr


def test_numbers_that_the_method_has_not_are_refused(table, tmp_path):
    train = ["train", table, "--label", "species", *QUICK, "--output", tmp_path / "run"]
    for words, option in ((["none", "--strength", 1], "strength"), (["control", "--coupling", 1], "coupling")):
        result = invoke(*train, "--method", *words)
        assert result.exit_code == 2
        assert f"--{option} does nothing with --method {words[0]}." in result.stderr
    assert not (tmp_path / "run").exists()


def test_compare_runs_only_what_is_new(table, tmp_path):
    words = ["compare", table, "--label", "species", *QUICK, "--splits", 1, "--output", tmp_path, "--format", "json"]
    first = done(*words, "--methods", "none,ldmnet")
    assert told_by(first) == ["split 1 of 1: none", "split 1 of 1: ldmnet"]
    second = done(*words, "--methods", "none,dropout,ldmnet")
    assert second.stderr.splitlines() == ["split 1 of 1: dropout"]
    assert [row["method"] for row in json.loads(second.stdout)] == ["none", "dropout", "ldmnet"]
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 3
    assert refused(*words, "--methods", "magic").startswith("there is no method 'magic'. The methods: none,")
    assert refused(*words, "--methods", "").startswith("a comparison needs one or more methods. The methods: none,")


def test_compare_shows_the_runs_of_its_own_settings_only(table, tmp_path):
    words = ["compare", table, "--label", "species", "--net", "mlp", "--splits", 1, "--output", tmp_path]
    words += ["--format", "json"]
    done(*words, "--methods", "none,ldmnet", "--epochs", 2)
    later = done(*words, "--methods", "none", "--epochs", 3)
    assert [(row["method"], row["gain"]) for row in json.loads(later.stdout)] == [("none", None)]


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


def test_a_comparison_that_begins_at_another_seed_takes_what_is_done(table, tmp_path):
    words = ["compare", table, "--label", "species", *QUICK, "--output", tmp_path, "--format", "json"]
    words += ["--methods", "none,dropout"]
    done(*words, "--splits", 2)
    later = done(*words, "--splits", 3, "--seed", 1, "--no-snapshots")
    assert later.stderr.splitlines() == [f"split {split} of 3: {m}" for split in (2, 3) for m in ("none", "dropout")]
    assert [row["splits"] for row in json.loads(later.stdout)] == [3, 3]


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


@pytest.mark.slow
def test_an_exported_file_answers_like_the_run(table, tmp_path):
    run = tmp_path / "run"
    done("train", table, "--label", "species", *QUICK, "--output", run)
    loaded = load_run(run)
    samples = loaded.read(table)
    wanted = loaded.model(loaded.standardize(samples.x)).softmax(1).detach()
    onnxruntime = pytest.importorskip("onnxruntime", reason="needed to run the ONNX file")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    assert done("export", run).output == f"written to {run / 'model.onnx'}\n"
    session = onnxruntime.InferenceSession(run / "model.onnx")
    (found,) = session.run(["probabilities"], {"samples": samples.x.float().numpy()})
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


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
