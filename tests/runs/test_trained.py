"""A finished run answers: what it reads, what it refuses, and its file for other programs."""

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from commands import QUICK, done, refused
from ldmnet.cli import main
from ldmnet.runs.trained import load_run


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
        f"{tmp_path / 'bad.csv'}, row 1: 'x' in column c is not a finite number. Fill empty cells, turn words "
        "into columns of 0 and 1, or leave the column out."
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
    (found,) = session.run(["probabilities"], {"samples": samples.x.double().numpy()})
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)
    assert session.get_inputs()[0].type == "tensor(double)"


@pytest.mark.slow
def test_an_exported_file_keeps_the_digits_of_a_time_in_seconds(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needed to run the ONNX file")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    rng, lines = np.random.default_rng(0), ["seconds,other,label"]
    lines += [f"{1_700_000_000 + 40 * (i % 3) + rng.uniform(-5, 5):.2f},{rng.normal():.3f},{i % 3}" for i in range(90)]
    (tmp_path / "times.csv").write_text("\n".join(lines))
    done("train", tmp_path / "times.csv", "--epochs", 20, "--output", tmp_path / "run")
    done("export", tmp_path / "run", "--output", tmp_path / "times.onnx")
    loaded = load_run(tmp_path / "run")
    samples = loaded.read(tmp_path / "times.csv")
    wanted = loaded.model(loaded.standardize(samples.x)).softmax(1).detach()
    session = onnxruntime.InferenceSession(tmp_path / "times.onnx")
    (found,) = session.run(["probabilities"], {"samples": samples.x.numpy()})
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("written", ["0.0", "00", "+0"])
def test_labels_that_are_numbers_are_compared_as_numbers(tmp_path, written):
    rows = [f"{i % 2},{i},{i % 2}" for i in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["u,v,label", *rows]))
    done("train", tmp_path / "a.csv", *QUICK, "--output", tmp_path / "run")
    (tmp_path / "b.csv").write_text(f"u,v,label\n0,3,{written}\n1,4,1\n")
    assert "% of 2 labelled samples are right" in done("predict", tmp_path / "run", tmp_path / "b.csv").stderr
    (tmp_path / "c.csv").write_text("u,v,label\n0,3,7\n1,4,1\n")
    told = done("predict", tmp_path / "run", tmp_path / "c.csv").stderr
    assert "the labels are not all classes of the run: how many are right is not known" in told
