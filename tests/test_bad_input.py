"""What cannot be used ends every command with a sentence and exit code 2, and leaves nothing half-written."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ldmnet
from ldmnet.cli import main
from ldmnet.files import parse_json

QUICK = ["--net", "mlp", "--size", "8", "--epochs", "1"]
REMEDY = "Fill empty cells, turn words into columns of 0 and 1, or leave the column out."
TEXT = f"text.csv, row 2: 'x' in column a is not a finite number. {REMEDY}"
NO_RUN = "{} holds no run: run.json is missing. Name a folder that train wrote."
OTHER = (
    "other/run.json was written by ldmnet 9.9, and this version does not know warp. Install that version, or train "
    "again."
)
NOT_FINISHED = "cut is not finished. Run the same train command again: it resumes where it stopped."
NO_RECORD = "others/mnist.jsonl, line 1, is not a record that ldmnet {version} reads: it lacks"
MISSING = "nothing does not exist. Name an .npz file, a CSV table or a folder with one folder of images per class."


def invoke(*words):
    return CliRunner().invoke(main, list(words))


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder of everything that can be wrong, and one run that is right."""
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    folder = tmp_path_factory.mktemp("given")
    before = os.getcwd()
    os.chdir(folder)
    rng = np.random.default_rng(0)
    for place in (
        "photos/a",
        "photos/b",
        "one_class/a",
        "corrupt/a",
        "corrupt/b",
        "empty",
        "others",
        "void",
        "flat",
        "no_images/a",
        "no_images/b",
        "single/a",
        "single/b",
    ):
        Path(place).mkdir(parents=True)
    for i in range(6):
        for c, name in enumerate("ab"):
            image.fromarray(rng.integers(0, 99, (9, 9, 3), np.uint8) + np.uint8(90 * c)).save(f"photos/{name}/{i}.png")
        image.fromarray(np.zeros((9, 9), np.uint8)).save(f"one_class/a/{i}.png")
    whole = Path("photos/a/0.png").read_bytes()
    for place in ("flat/0.png", "single/a/0.png", "single/b/0.png", "single/b/1.png"):
        Path(place).write_bytes(Path(f"photos/b/{place[-5]}.png").read_bytes())
    Path("photos/a/cut.png").write_bytes(whole[: len(whole) // 2])
    Path("photos/b/text.jpg").write_text("not a picture")
    for name in "ab":
        Path(f"corrupt/{name}/0.png").write_text("not a picture")
    Path("text.csv").write_text("a,b,label\n1,2,u\nx,3,v\n")
    Path("single.csv").write_text("a,b,label\n1,2,u\n3,4,v\n5,6,v\n")
    Path("one.csv").write_text("a,b,label\n1,2,u\n3,4,u\n")
    Path("damaged.npz").write_bytes(b"PK\3\4 cut")
    np.savez("one_person.npz", x=rng.normal(size=(4, 3)), identity=[0] * 4, modality=["a", "b"] * 2)
    Path("others/mnist.jsonl").write_text('{"name": "somebody else\'s"}\n')
    Path("void/mnist.jsonl").write_bytes(b"\xff\xfe")
    assert invoke("train", "photos", *QUICK, "--output", "run").exit_code == 0
    for name, change in {
        "other": {"settings": {"warp": 9}, "versions": {"ldmnet": "9.9"}, "hash": "another"},
        "cut": {"finished": False},
        "damaged": {"preprocessing": {}},
    }.items():
        shutil.copytree("run", name)
        saved = parse_json(Path(name, "run.json").read_text())
        for key, value in change.items():
            saved[key] = {**saved[key], **value} if value and isinstance(value, dict) else value
        Path(name, "run.json").write_text(json.dumps(saved))
    Path("damaged/checkpoint.pt").write_text("no")
    os.chdir(before)
    return folder


def ways(*commands):
    """Every command with every fault of its data."""
    for command in commands:
        yield [command, "nothing"], MISSING
        yield [command, "empty"], "empty has no folders. Put the images in one folder per class: empty/<class>/<image>."
        yield [command, "flat"], "flat has no folders. Put the images in one folder per class: flat/<class>/<image>."
        yield [command, "no_images"], "no_images: no images in a, b. Known are .png, "
        yield (
            [command, "single", "--test-share", "0.3", "--output", "new"],
            "class 'a' has 1 sample: one to train on and one to hold out",
        )
        yield (
            [command, "single.csv", "--test-share", "0.3", "--output", "new"],
            "class 'u' has 1 sample: one to train on and one to hold",
        )
        yield [command, "one_class"], "one_class has one class only, 'a'. A classifier needs two or more."
        yield [command, "one.csv"], "one.csv has one class only, 'u'. A classifier needs two or more."
        yield [command, "text.csv"], TEXT
        yield [command, "corrupt"], "corrupt: no image can be read: corrupt/a/0.png (not an image), "
        yield [command, "damaged.npz"], "damaged.npz is not an .npz file of plain numbers, or is damaged. "
        yield [command, "photos", "--output", "text.csv"], "Invalid value for '--output': "
        yield [command, "photos", *QUICK, "--output", "text.csv/deep"], "text.csv"


def of_runs(*commands):
    """Every command that takes a run, with every fault of the run and of the data."""
    for command in commands:
        data = [] if command == "export" else ["photos"]
        yield [command, "nothing", *data], NO_RUN.format("nothing")
        yield [command, "empty", *data], NO_RUN.format("empty")
        yield [command, "text.csv", *data], NO_RUN.format("text.csv")
        yield [command, "other", *data], OTHER
        yield [command, "cut", *data], NOT_FINISHED
        yield [command, "damaged", *data], "damaged/run.json is damaged: 'mean'. Train again."
        yield [command, "run", *data, "--output", "empty"], "Invalid value for '--output': "
        if data:
            yield [command, "run", "nothing"], MISSING
            yield [command, "run", "empty"], "empty holds no images and no folders of images. "
            yield [command, "run", "text.csv"], TEXT
            yield [command, "run", "corrupt"], "corrupt: no image can be read: "
            yield [command, "run", "damaged.npz"], "damaged.npz is not an .npz file of plain numbers, or is damaged. "


FAULTS = [
    *ways("train", "compare", "tune"),
    *of_runs("predict", "embed", "export"),
    (["verify", "empty"], "empty holds no run: run.json is missing."),
    (["verify", "run"], "run was trained on photos: name it, too."),
    (["train", "photos", *QUICK, "--test-share", "1.5", "--output", "new"], "the share must be above 0 and below 1"),
    (
        ["train", "photos", *QUICK, "--layer", "top", "--output", "new", "--tensorboard"],
        "the model has no layer 'top'.",
    ),
    (["train", "photos", *QUICK, "--output", "other"], "other holds another run (by ldmnet 9.9): warp 9 (now None)."),
    (["compare", "photos", *QUICK, "--test-share", "1"], "the share must be above 0 and below 1"),
    (["compare", "photos", *QUICK, "--layer", "top"], "the model has no layer 'top'."),
    (["compare", "photos", *QUICK, "--methods", "magic"], "there is no method 'magic'."),
    (["tune", "photos", *QUICK, "--test-share", "1"], "the share must be above 0 and below 1"),
    (["tune", "photos", *QUICK, "--test-share", "0.9"], "class 'a' has 1 sample beside those held out to test on: "),
    (["tune", "photos", *QUICK, "--validation-share", "1"], "the share must be above 0 and below 1"),
    (["tune", "photos", *QUICK, "--layer", "top"], "the model has no layer 'top'."),
    (["match", "nothing.npz"], "nothing.npz cannot be read: No such file or directory."),
    (["match", "damaged.npz"], "damaged.npz is not an .npz file of plain arrays, or is damaged."),
    (["match", "text.csv"], "Invalid value: FILE must end in .npz, got text.csv."),
    (["match", "one_person.npz", "--jobs", "1"], "one_person.npz has 1 people seen in both modalities, too few"),
    (["reproduce", "casia", "--data-dir", "empty", "--features", "nothing.npz"], "nothing.npz cannot be read: "),
    (["demo", "--faces", "--output", "text.csv"], "Invalid value for '--output': "),
    (["demo", "--output", "text.csv"], "Invalid value for '--output': "),
    (["reproduce", "mnist", "--data-dir", "nothing", "--jobs", "1"], "mnist is not complete in nothing, which does"),
    (["reproduce", "mnist", "--results", "others"], NO_RECORD),
    (["reproduce", "mnist", "--methods", "magic"], "there is no row 'magic'."),
    (["study", "mnist", "--data-dir", "empty", "--jobs", "1"], "mnist is not complete in empty: "),
    (["study", "mnist", "--only", "magic, lr x 5"], "no variation's name contains any of ['magic, lr x 5']."),
    (["table", "mnist", "--leads", "--format", "csv"], "Invalid value: --leads is written as md only, not as csv."),
    (["table", "mnist", "--results", "empty"], "there are no records (*.jsonl) in empty."),
    (["table", "mnist", "--results", "nothing"], "there are no records (*.jsonl) in nothing."),
    (["table", "mnist", "--results", "void"], "void/mnist.jsonl, line 1, is not a record: "),
    (["table", "mnist", "--results", "others"], NO_RECORD),
    (["parts", "--results", "nothing"], "there are no records (*.jsonl) in nothing."),
    (["figure", "3", "--results", "nothing"], "there are no records (*.jsonl) in nothing."),
    (["figure", "3", "--results", "others"], NO_RECORD),
    (["figure", "1", "--table", "magic"], "there is no table 'magic'."),
    (["figure", "1", "--data-dir", "empty"], "mnist is not complete in empty: "),
    (["report", "nothing"], "nothing does not exist."),
    (["report", "empty"], "empty "),
    (["report", "text.csv"], "text.csv "),
    (["report", "others/mnist.jsonl"], "others/mnist.jsonl"),
    (["report", "void/mnist.jsonl"], "void/mnist.jsonl, line 1, is not a record: "),
    (["report", "run", "--output", "empty"], "Invalid value for '-o' / '--output': File 'empty' is a directory."),
    (
        ["report", "run", "--output", "page"],
        "Invalid value for '-o' / '--output': the page ends in .html or .htm, got page.",
    ),
    (["report", "run", "--output", "text.csv/page.html"], "text.csv"),
]


SLOW = [pytest.param(*fault, marks=pytest.mark.slow) for fault in FAULTS if "--jobs" in fault[0]]  # start processes
FAST = [fault for fault in FAULTS if "--jobs" not in fault[0]]


@pytest.mark.parametrize(
    ("words", "said"), FAST + SLOW, ids=lambda part: " ".join(part) if isinstance(part, list) else ""
)
def test_a_sentence_exit_code_2_and_nothing_written(given, monkeypatch, words, said):
    monkeypatch.chdir(given)
    for word, package, extra in (("tune", "optuna", "tune"), ("--tensorboard",) * 3, ("report", "plotly", "report")):
        if word in words:
            pytest.importorskip(package.strip("-"), reason=f"the extra {extra.strip('-')} is not installed")
    before = contents(given)
    result = invoke(*words)
    assert result.exit_code == 2, (result.output, result.exception)
    lines = [line for line in result.output.splitlines() if not line.startswith(("skipped ", "split 1 of "))]
    assert [line for line in lines if line.startswith("Error: ")] == lines[-1:]
    assert lines[-1].removeprefix("Error: ").startswith(said.replace("{version}", ldmnet.__version__))
    assert contents(given) == before


def contents(folder):
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} | {
        str(path): 0 for path in folder.rglob("*") if path.is_dir()
    }


def test_every_command_is_tried():
    assert {words[0] for words, _ in FAULTS} == set(main.commands)


def test_images_that_cannot_be_read_are_named_counted_and_left_out(given, tmp_path, monkeypatch):
    monkeypatch.chdir(given)
    result = invoke("train", "photos", *QUICK, "--output", str(tmp_path / "run"))
    assert result.exit_code == 0
    assert result.stderr.startswith("skipped 2 of 14 images that cannot be read: photos/a/cut.png (")
    assert "photos/b/text.jpg (not an image)\n" in result.stderr
    assert result.stdout.startswith("trained mlp on 12 samples of 2 classes")
    saved = parse_json((tmp_path / "run" / "run.json").read_text())
    assert saved["skipped"] == ["photos/a/cut.png", "photos/b/text.jpg"]
    predicted = invoke("predict", str(tmp_path / "run"), "photos")
    assert predicted.stderr.startswith("skipped 2 of 14 images that cannot be read: ")
    assert [line.split(",")[0] for line in predicted.stdout.splitlines()[1:]] == [
        f"{name}/{i}.png" for name in "ab" for i in range(6)
    ]
    compared = invoke("compare", "photos", *QUICK, "--splits", "1", "--methods", "none", "--output", str(tmp_path))
    assert compared.exit_code == 0
    assert "skipped 2 of 14 images" in compared.stderr


def test_a_search_that_is_none_is_refused(given, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    monkeypatch.chdir(given)
    (tmp_path / "study.db").write_text("not a data base at all")
    result = invoke("tune", "photos", *QUICK, "--output", str(tmp_path))
    assert result.exit_code == 2
    assert result.output.endswith("study.db is not a search that can be resumed. Choose another folder. (--output)\n")


def test_a_checkpoint_that_is_none_is_refused(given, tmp_path, monkeypatch):
    monkeypatch.chdir(given)
    saved = parse_json(Path("run/run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**saved, "finished": False}))
    (tmp_path / "checkpoint.pt").write_text("no")
    result = invoke("train", "photos", *QUICK, "--output", str(tmp_path))
    assert result.exit_code == 2
    assert f"Error: {tmp_path / 'checkpoint.pt'} cannot be read as a checkpoint: " in result.output


def test_training_that_diverges_is_not_the_inputs_fault(given, tmp_path, monkeypatch):
    monkeypatch.chdir(given)
    words = ["train", "photos", *QUICK[:-1], "8", "--lambda-tilde", "0.05", "--output", str(tmp_path), "--mu"]
    result = invoke(*words, "1e9")
    assert result.exit_code == 1
    assert "Error: the loss is not finite in epoch" in result.output
    again = invoke(*words, "0.01")  # a smaller mu in the same folder
    assert again.exit_code == 0, again.output
