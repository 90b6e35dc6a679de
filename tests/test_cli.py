import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

import ldmnet
from ldmnet.cli import main
from ldmnet.paper import demo


def invoke(*words: str):
    return CliRunner().invoke(main, list(words))


def test_version():
    assert invoke("--version").output == f"ldmnet, version {ldmnet.__version__}\n"


@pytest.mark.parametrize("command", list(main.commands))
def test_every_command_shows_examples(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "Examples:\n" in result.output
    assert f"ldmnet {command}" in result.output.split("Examples:\n")[1]


@pytest.mark.parametrize("command", list(main.commands))
def test_every_option_says_what_it_is(command):
    options = [param for param in main.commands[command].params if isinstance(param, click.Option)]
    assert [option.opts for option in options if not option.help] == []
    assert main.commands[command].help


def test_the_program_shows_examples_that_parse():
    shown = invoke("--help").output.split("Examples:\n")[1]
    named = [line.split()[1] for line in shown.splitlines() if line.strip().startswith("ldmnet ")]
    assert {"demo", "train", "compare", "predict"} <= set(named) <= set(main.commands)


def test_the_help_shows_every_command_on_one_line_that_is_not_cut():
    result = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"})
    shown = result.output.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in shown] == sorted(main.commands)
    assert all(line.endswith(".") and not line.endswith("...") and len(line) <= 80 for line in shown)


@pytest.mark.slow
def test_the_package_runs_as_a_module():
    result = subprocess.run([sys.executable, "-m", "ldmnet", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"ldmnet, version {ldmnet.__version__}\n"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        subprocess.run([sys.executable, "-m", "ldmnet", "magic"], capture_output=True, text=True, check=True)
    assert caught.value.stderr.startswith("Usage: ldmnet [OPTIONS]")


def test_our_errors_are_sentences():
    result = invoke("reproduce", "mnist", "--per-class", "60")
    assert result.exit_code == 2
    assert result.output.startswith("Error: mnist has no row for [60] images a class.")
    assert "Traceback" not in result.output
    assert "--per-class takes whole numbers, got 5x." in invoke("reproduce", "mnist", "--per-class", "5x").output


def test_table_reads_records_of_a_folder(tmp_path):
    line = {"table": "mnist", "per_class": 50, "method": "ldmnet", "seed": 0, "accuracy": 95.0, "n_test": 10000}
    (tmp_path / "mnist.jsonl").write_text(json.dumps({**line, "selection": "printed", "paper": 95.57}) + "\n")
    result = invoke("table", "mnist", "--results", str(tmp_path), "--format", "json")
    assert [row["mean"] for row in json.loads(result.output)] == [95.0]
    assert "there are no records of a table 'svhn'" in invoke("table", "svhn", "--results", str(tmp_path)).output


def test_parts_prints_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    line = {"table": "mnist", "per_class": 50, "seed": 0, "n_test": 10000, "selection": "printed", "paper": None}
    rows = {"ldmnet": 95.0, "control": 93.0, "none": 90.0}
    records = tmp_path / "mnist.jsonl"
    records.write_text("".join(json.dumps({**line, "method": m, "accuracy": a}) + "\n" for m, a in rows.items()))
    result = invoke("parts", "--results", str(tmp_path), "--figure", str(tmp_path / "parts.png"))
    assert "| mnist | 50 | printed | +3.00 | +2.00 | 1 |" in result.output
    assert (tmp_path / "parts.png").stat().st_size > 1000
    records.write_text(records.read_text().splitlines()[0])
    found = invoke("parts", "--results", str(tmp_path)).output
    assert found.startswith("Error: there are no records of LDMNet beside its control")


@pytest.mark.parametrize("name", ["fig.xyz", "picture", "folder.png"])
@pytest.mark.parametrize("words", [["figure", "3", "--output"], ["figure", "1", "--output"], ["parts", "--figure"]])
def test_what_cannot_be_drawn_to_is_refused_before_any_work(tmp_path, words, name):
    (tmp_path / "folder.png").mkdir()
    result = invoke(*words, str(tmp_path / name))
    assert result.exit_code == 2
    expected = (
        "is a directory" if name == "folder.png" else f"a picture ends in .png, .pdf, .svg or .jpg, got {tmp_path}"
    )
    assert expected in " ".join(result.output.split())


def test_what_was_tried_makes_no_table(tmp_path):
    line = {"table": "cufs_tuning", "per_class": None, "method": "none", "seed": 0, "accuracy": 1.0, "n_test": 9,
            "selection": "validation", "paper": None}  # fmt: skip
    (tmp_path / "cufs_tuning.jsonl").write_text(json.dumps(line) + "\n")
    result = invoke("table", "cufs_tuning", "--results", str(tmp_path))
    assert result.exit_code == 2
    assert "and makes no table. What was chosen among them: ldmnet table cufs" in " ".join(result.output.split())


def test_rows_of_other_data_are_named(tmp_path):
    line = {"table": "faces-mine", "per_class": None, "seed": 0, "accuracy": 1.0, "n_test": 9,
            "selection": "default", "paper": None}  # fmt: skip
    made = [{**line, "method": m, "settings": {"fingerprint": f}} for m, f in (("ldmnet", "a"), ("pca", "b"))]
    (tmp_path / "faces.jsonl").write_text("".join(json.dumps(record) + "\n" for record in made))
    result = invoke("table", "faces-mine", "--results", str(tmp_path))
    assert result.exit_code == 0
    assert "not of the same data as the other rows: pca" in result.output


def test_digits5k_has_the_rows_that_leave_digits_to_test():
    result = invoke("reproduce", "digits5k", "--per-class", "6000")
    assert result.exit_code == 2
    assert "The rows: [50, 100, 400]." in result.output


@pytest.mark.parametrize("words", [["demo", "--quick"], ["faces", "--demo"]])
@pytest.mark.parametrize("content", ['{"method": "none", "split": 0, "key": "k"}\n', "mine\n"])
def test_a_demo_refuses_a_folder_of_other_records(tmp_path, words, content):
    (tmp_path / "records.jsonl").write_text(content)
    (tmp_path / "traces" / "k").mkdir(parents=True)
    result = invoke(*words, "--output", str(tmp_path))
    assert result.exit_code == 2
    assert result.output == (
        f"Error: {tmp_path / 'records.jsonl'} holds records of something else than this demo. "
        "Choose another --output.\n"
    )
    assert (tmp_path / "records.jsonl").read_text() == content
    assert (tmp_path / "traces" / "k").is_dir()


@pytest.mark.slow
def test_a_demo_removes_only_what_a_demo_wrote(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.setattr(demo, "QUICK", {"epochs": 1, "batch_size": 100})
    monkeypatch.setattr(demo, "PRINTED_ROWS", ("none",))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces" / "mine").mkdir(parents=True)

    def names(seed):
        demo.run_demo(quick=True, seed=seed, output=Path("."), threads=1, console=Console(quiet=True))
        found = [json.loads(line)["hash"] for line in Path("records.jsonl").read_text().splitlines()]
        assert {path.name for path in Path("traces").iterdir()} == {"mine", *found}
        return found

    first = names(0)
    assert names(1) != first
    assert names(1) == names(1)


@pytest.mark.slow
def test_quick_demo_trains_and_writes_its_picture(tmp_path):
    pytest.importorskip("mlxtend")
    result = invoke("demo", "--quick", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    accuracy = {r["method"]: r["accuracy"] for r in map(json.loads, (tmp_path / "records.jsonl").open())}
    assert list(accuracy) == ["none", "weight_decay", "dropout", "control", "ldmnet"]
    assert accuracy["ldmnet"] > max(accuracy["weight_decay"], accuracy["dropout"])
    assert (tmp_path / "figure1.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "report.html").stat().st_size < 15_000_000
    assert str(tmp_path / "report.html") in result.output
    assert "paper" in result.output
