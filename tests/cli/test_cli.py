import ast
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

import ldmnet
from ldmnet.cli import main
from ldmnet.cli.options import options_of, sentences
from ldmnet.paper import demo
from ldmnet.records import Record, read_records
from ldmnet.runs import Kept, Places, RunSettings, UserSettings
from ldmnet.runs.matching import Matching, MatchSettings
from ldmnet.runs.samples import Reading
from ldmnet.strength import COUPLING, STRENGTH

OTHERS = ("readers", "csvtables")


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
    assert result.output.startswith("Error: mnist has no row for [60] images per class.")
    assert "Traceback" not in result.output
    assert "--per-class takes whole numbers, got 5x." in invoke("reproduce", "mnist", "--per-class", "5x").output


def write(path, *records):
    """Records of a table, by what differs from one of LDMNet on MNIST."""
    common = {"table": "mnist", "per_class": 50, "method": "ldmnet", "seed": 0, "n_test": 10000, "hash": "h"}
    made = [Record(**{**common, "selection": "printed", "settings": {}, **record}) for record in records]
    path.write_text("".join(json.dumps(record.to_json()) + "\n" for record in made))


def test_table_reads_records_of_a_folder(tmp_path):
    write(tmp_path / "mnist.jsonl", {"accuracy": 95.0, "paper": 95.57})
    result = invoke("table", "mnist", "--results", str(tmp_path), "--format", "json")
    assert [row["mean"] for row in json.loads(result.output)] == [95.0]
    assert "there are no records of a table 'svhn'" in invoke("table", "svhn", "--results", str(tmp_path)).output


def test_parts_prints_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    rows, records = {"ldmnet": 95.0, "control": 93.0, "none": 90.0}, tmp_path / "mnist.jsonl"
    write(records, *({"method": m, "accuracy": a} for m, a in rows.items()))
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
    tried = {"table": "cufs_tuning", "per_class": None, "method": "none", "selection": "tried", "chosen": False}
    write(tmp_path / "cufs_tuning.jsonl", {**tried, "accuracy": 1.0})
    result = invoke("table", "cufs_tuning", "--results", str(tmp_path))
    assert result.exit_code == 2
    assert "and makes no table. What was chosen among them: ldmnet table cufs" in " ".join(result.output.split())


def test_rows_of_other_data_are_named_and_those_that_are_not_chosen_counted(tmp_path):
    mine = {"table": "match-mine", "per_class": None, "accuracy": 1.0, "selection": "default"}
    rows = [{**mine, "method": m, "data": d} for m, d in (("ldmnet", "a"), ("pca", "b"))]
    write(tmp_path / "mine.jsonl", *rows, {**mine, "chosen": False})
    result = invoke("table", "match-mine", "--results", str(tmp_path))
    assert result.exit_code == 0
    assert "not of the same data as the other rows: pca" in result.output
    assert "1 runs of settings that others have replaced are left out" in result.output


def test_digits5k_has_the_rows_that_leave_digits_to_test():
    result = invoke("reproduce", "digits5k", "--per-class", "6000")
    assert result.exit_code == 2
    assert "The rows: [50, 100, 400]." in result.output


@pytest.mark.parametrize("words", [["demo", "--quick"], ["demo", "--faces"]])
@pytest.mark.parametrize("content", ['{"method": "none", "split": 0, "key": "k"}\n', "mine\n"])
def test_a_demo_refuses_a_folder_of_other_records(tmp_path, words, content):
    (tmp_path / "records.jsonl").write_text(content)
    result = invoke(*words, "--output", str(tmp_path))
    assert result.exit_code == 2
    assert result.output == (
        f"Error: {tmp_path / 'records.jsonl'} holds records of something else than this demo. "
        "Choose another folder. (--output)\n"
    )
    assert (tmp_path / "records.jsonl").read_text() == content


@pytest.mark.slow
def test_a_demo_skips_what_is_done_and_keeps_other_seeds(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.setattr(demo, "QUICK", {"epochs": 1, "batch_size": 100})
    monkeypatch.setattr(demo, "PRINTED_ROWS", ("none",))

    def seeds(seed):
        demo.run_demo(quick=True, seed=seed, output=tmp_path, threads=1, console=Console(quiet=True))
        return [record.seed for record in read_records([tmp_path / "records.jsonl"])]

    assert [seeds(0), seeds(1), seeds(1)] == [[0], [0, 1], [0, 1]]


@pytest.mark.slow
def test_a_method_that_diverged_has_no_panel(monkeypatch, tmp_path, capsys):
    pytest.importorskip("mlxtend")
    seen = []
    monkeypatch.setattr(demo, "execute", lambda run, *where, **how: run.record({}, diverged="not finite."))
    monkeypatch.setattr(demo, "feature_figure", lambda panels, labels, output, title: seen.append(list(panels)))
    where = {"runs_dir": tmp_path, "data_dir": None, "console": Console()}
    runs = demo.classification_runs("digits5k", [50], demo.PRINTED_ROWS, [0])
    demo.draw_features(runs, tmp_path / "f.png", "digits", **where)
    assert seen == [["test images"]]
    assert "LDMNet is left out: not finite." in capsys.readouterr().out


@pytest.mark.parametrize("settings", [UserSettings, Reading, Places, Matching, Kept, RunSettings, MatchSettings])
def test_every_setting_has_a_sentence_and_every_option_is_made_of_one(settings):
    assert set(sentences(settings)) == {field.name for field in fields(settings)}


def test_options_have_the_type_default_and_words_of_their_fields():
    @click.command()
    @options_of(UserSettings, "schedule", "lr", "dropout", "layer")
    def command(**given):
        click.echo(json.dumps(given))

    schedule, lr, dropout, layer = command.params
    assert schedule.type.choices == ("step", "cosine", "constant")
    assert (lr.type, lr.default, lr.help) == (click.FLOAT, None, "The learning rate.  [default: the network's own]")
    assert (dropout.default, dropout.show_default, layer.default) == (0.5, True, "features")
    assert sentences(UserSettings)["strength"].endswith(f"None takes {STRENGTH}.")
    assert sentences(UserSettings)["coupling"].endswith(f"None takes {COUPLING}.")


@pytest.mark.parametrize("path", sorted(Path(ldmnet.__file__).parent.rglob("*.py")), ids=lambda path: path.stem)
def test_no_layer_below_the_command_line_names_its_options(path):
    if "cli" in path.parts or path.stem in OTHERS:
        return
    found = [
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"(^|\s|\()--[a-z]", node.value)
    ]
    assert found == []


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
