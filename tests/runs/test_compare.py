"""All methods on one table: what is run, what is skipped, what a bad end does."""

import csv
import io
import json
from pathlib import Path

import pytest

from commands import LOST, QUICK, done, invoke, refused, told_by


def test_a_method_that_diverges_has_a_row_that_says_so_and_the_others_go_on(table, tmp_path):
    words = ["compare", table, "--label", "species", "--net", "mlp", "--epochs", 8, "--splits", 2, "--mu", 1e9]
    words += ["--lambda-tilde", 5e9, "--methods", "ldmnet,none", "--output", tmp_path / "c"]
    first = done(*words)
    ldmnet, none = (line.split(" | ") for line in first.stdout.splitlines()[2:4])
    assert ldmnet == ["| ldmnet", "diverged", "2", "", "", " |"]
    assert none[1].startswith("**")
    assert none[2:5] == ["2", "", ""]  # nothing to set it against
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
    kept = len(table_lines) - 2 if table_lines[-1].startswith("advice: ") else len(table_lines)
    assert table_lines[5:kept] == footnote
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


@pytest.mark.slow
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


def test_a_comparison_that_begins_at_another_seed_takes_what_is_done(table, tmp_path):
    words = ["compare", table, "--label", "species", *QUICK, "--output", tmp_path, "--format", "json"]
    words += ["--methods", "none,dropout"]
    done(*words, "--splits", 2)
    later = done(*words, "--splits", 3, "--seed", 1, "--no-snapshots")
    assert later.stderr.splitlines() == [f"split {split} of 3: {m}" for split in (2, 3) for m in ("none", "dropout")]
    assert [row["splits"] for row in json.loads(later.stdout)] == [3, 3]
