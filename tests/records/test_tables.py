import csv
import io
import json
from dataclasses import replace

import pytest

from ldmnet.errors import DataError
from ldmnet.records import Record, append, format_table, read_records, table_rows
from ldmnet.records.leads import format_leads, format_parts, parts_of
from ldmnet.records.tables import format_study, other_data


def record(method, seed, accuracy, per_class=50, table="mnist", paper=None, **more):
    return Record(
        table=table,
        per_class=per_class,
        method=method,
        seed=seed,
        accuracy=accuracy,
        n_test=10000,
        selection="printed",
        paper=paper,
        hash=f"{method}-{seed}",
        settings={},
        more=more,
    )


RECORDS = [
    record("ldmnet", 0, 94.0, paper=95.57),
    record("ldmnet", 1, 96.0, paper=95.57),
    record("dropout", 0, 92.0, paper=92.31),
    record("ldmnet", 0, 97.0, per_class=None),
    record("ldmnet", 0, 10.0, table="svhn"),
]


def test_mean_and_std_with_ddof_one():
    rows = {(r.per_class, r.method): r for r in table_rows(RECORDS, "mnist")}
    ldm = rows[50, "ldmnet"]
    assert (ldm.mean, ldm.seeds, ldm.paper) == (95.0, 2, 95.57)
    assert ldm.std == pytest.approx(2**0.5, abs=1e-4)
    assert rows[50, "dropout"].std is None
    assert len(rows) == 3


def test_a_seed_that_is_there_twice_counts_once_and_a_contradiction_is_refused():
    (row,) = table_rows([record("none", 0, 50.0), record("none", 0, 50.0)], "mnist")
    assert (row.mean, row.seeds) == (50.0, 1)
    with pytest.raises(DataError, match="mnist, none, seed 0: two records say "):
        table_rows([record("none", 0, 50.0), record("none", 0, 60.0)], "mnist")


def with_settings(found, **settings):
    train = {"lr": 0.1, "epochs": 300, **settings}
    return replace(found, settings={"seed": found.seed, "train": train}, hash=f"{found.hash}-{train}")


def written(path, records):
    path.unlink(missing_ok=True)
    for one in records:
        append(path, one)
    return read_records([path])


@pytest.mark.parametrize("turned", [1, -1], ids=["in order", "turned"])
def test_the_settings_that_were_written_last_are_chosen_whatever_the_order_of_lines(tmp_path, turned):
    old = [with_settings(record("ldmnet", seed, 50.0), lr=0.3) for seed in (0, 1, 2)]
    new = [with_settings(record("ldmnet", seed, 60.0 + seed)) for seed in (0, 1)]
    found = written(tmp_path / "r.jsonl", [*old, *new])[::turned]
    assert sorted((one.accuracy, one.chosen) for one in found) == [
        (50.0, False), (50.0, False), (50.0, False), (60.0, True), (61.0, True),
    ]  # fmt: skip
    (row,) = table_rows(found, "mnist")
    assert (row.mean, row.seeds) == (60.5, 2)
    added_later = with_settings(record("ldmnet", 2, 62.0), precision="float32")
    found = written(tmp_path / "r.jsonl", [*old, *new, added_later])[::turned]
    (row,) = table_rows(found, "mnist")  # what older records do not name is no difference
    assert (row.mean, row.seeds) == (61.0, 3)
    again = written(tmp_path / "r.jsonl", [*old, *new, *old])[::turned]  # chosen again: nothing is written twice
    (row,) = table_rows(again, "mnist")
    assert (row.mean, row.seeds, len(again)) == (50.0, 3, 5)


def test_settings_that_were_tried_or_given_replace_nothing(tmp_path):
    first = with_settings(record("ldmnet", 0, 50.0))
    other = with_settings(record("ldmnet", 0, 60.0), lr=0.3)
    tried = replace(other, selection="tried", chosen=False)
    assert [one.chosen for one in written(tmp_path / "r.jsonl", [first, tried])] == [True, False]
    given = [replace(one, selection="given", table="comparison") for one in (first, other)]
    assert [one.chosen for one in written(tmp_path / "r.jsonl", given)] == [True, True]


def test_two_settings_that_are_both_chosen_are_refused():
    both = [with_settings(record("ldmnet", seed, 50.0), gallery=gallery) for seed, gallery in ((0, None), (1, "VIS"))]
    with pytest.raises(DataError, match="have other settings and both are marked as chosen"):
        table_rows(both, "mnist")


def test_a_run_of_matching_that_diverged_is_no_number():
    bad = replace(record("ldmnet", 1, 10.0), diverged="the loss is not finite.")
    rows = table_rows([record("ldmnet", 0, 50.0), bad], "mnist")
    assert (rows[0].mean, rows[0].seeds) == (None, 2)
    others = [record("dropout", seed, 40.0) for seed in (0, 1)]
    assert "over dropout" in format_leads([record("ldmnet", 0, 50.0), bad, *others], "mnist").splitlines()[0]
    assert len(format_leads([record("ldmnet", 0, 50.0), bad, *others], "mnist").splitlines()) == 2


def test_json_has_the_agreed_keys_and_nulls():
    rows = json.loads(format_table(table_rows(RECORDS, "mnist"), "json"))
    keys = ["table", "per_class", "method", "mean", "std", "seeds", "n_test", "selection", "paper"]
    assert all(list(row) == keys for row in rows)
    assert rows[-1]["per_class"] is None
    assert rows[-1]["std"] is None


def test_sizes_ascend_and_methods_keep_their_order():
    rows = table_rows(RECORDS, "mnist")
    assert [(r.per_class, r.method) for r in rows] == [(50, "dropout"), (50, "ldmnet"), (None, "ldmnet")]


def test_markdown_latex_and_csv():
    rows = table_rows(RECORDS, "mnist")
    markdown = format_table(rows, "md")
    assert markdown.splitlines()[0] == "| per class | dropout | ldmnet | seeds |"
    assert "| 50 | 92.00 (92.31) | **95.00** ± 1.41 (95.57) | 1 to 2 |" in markdown
    latex = format_table(rows, "latex")
    assert r"50 & 92.00 (92.31) & \textbf{95.00} $\pm$ 1.41 (95.57) & 1 to 2 \\" in latex
    assert latex.startswith(r"\begin{tabular}{rrrr}")
    parsed = list(csv.DictReader(io.StringIO(format_table(rows, "csv"))))
    assert [row["mean"] for row in parsed] == ["92.0", "95.0", "97.0"]


def test_tuned_rows_go_below_the_printed_ones():
    made = [
        record("ldmnet_tuned", 0, 95.0),
        record("none_tuned", 0, 91.0),
        record("none", 0, 90.0),
        record("ldmnet", 0, 94.0),
        record("none", 0, 93.0, 100),
    ]
    assert format_table(table_rows(made, "mnist"), "md").splitlines() == [
        "| per class | settings | none | ldmnet | seeds |",
        "|---:|---:|---:|---:|---:|",
        "| 50 | printed | 90.00 | 94.00 | 1 |",
        "| 50 | tuned | 91.00 | **95.00** | 1 |",
        "| 100 | printed | **93.00** |  | 1 |",
    ]
    assert format_leads(made, "mnist").splitlines() == [
        "| per class | of | their settings | over none |",
        "|---|---:|---:|---:|",
        "| 50 | ldmnet | printed | +4.00 |",
        "| 50 | ldmnet | tuned | +3.00 |",
        "| 50 | ldmnet tuned | printed | +5.00 |",
        "| 50 | ldmnet tuned | tuned | +4.00 |",
    ]


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(record("none", 0, 1.0).to_json()) + "\n[1]\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2, is not a record: not an object\.$"):
        read_records([tmp_path / "a.jsonl"])


def test_a_seed_that_diverged_leaves_no_mean():
    rows = table_rows([record("none", 0, 50.0), record("none", 1, None), record("dropout", 0, 40.0)], "mnist")
    none, _ = rows
    assert (none.mean, none.std, none.seeds) == (None, None, 2)
    text = format_table(rows, "md")
    assert "diverged" in text
    assert "**40.00**" in text
    assert json.loads(format_table(rows, "json"))[0]["mean"] is None


def test_a_study_says_what_diverged():
    records = [
        record("as printed", 0, 50.0, val_accuracy=51.0),
        record("lr x 9", 0, None, val_accuracy=None),
    ]
    assert "| lr x 9 | diverged | diverged |  | 1 |" in format_study(records)


def test_a_study_of_matching_that_diverged_is_no_number():
    people = {"part": "validation"}
    good = replace(record("as printed", 0, 50.0), settings=people)
    bad = replace(record("mu 99", 0, 10.0), settings=people, diverged="the loss is not finite.")
    assert "| mu 99 | diverged |  | 1 |" in format_study([good, bad])


def test_a_study_leaves_out_runs_that_are_not_chosen():
    old = [replace(record("lr x 2", seed, 40.0, val_accuracy=40.0), chosen=False) for seed in (0, 1, 2)]
    new = [record("lr x 2", seed, 51.0, val_accuracy=51.0) for seed in (0, 1)]
    assert format_study([*new, *old], "lr x 2").splitlines()[2:] == ["| lr x 2 | 51.00 | 51.00 ± 0.00 | +0.00 | 2 |"]


def test_a_study_begins_with_what_is_varied():
    values = [("lr x 2", 51.0), ("as printed", 50.0), ("lr x 5", 49.0)]
    records = [record(name, 0, value, val_accuracy=value) for name, value in values]
    names, gains = zip(*[line.split(" | ")[::3] for line in format_study(records).splitlines()[2:]], strict=True)
    assert names == ("| as printed", "| lr x 2", "| lr x 5")
    assert gains == ("+0.00", "+1.00", "-1.00")


def test_a_gain_is_over_the_seeds_that_both_have():
    found = [("as printed", 0, 50.0), ("as printed", 1, 40.0), ("lr x 2", 0, 49.0), ("lr x 5", 7, 60.0)]
    study = format_study(record(name, seed, value, val_accuracy=value) for name, seed, value in found)
    assert [line.split(" | ")[3] for line in study.splitlines()[2:]] == ["+0.00", "-1.00", ""]


def test_nothing_gains_over_what_diverged():
    found = [("as printed", None), ("lr x 2", 49.0), ("lr x 5", 60.0)]
    study = format_study(record(name, 0, value, val_accuracy=value) for name, value in found)
    assert [line.split(" | ")[3] for line in study.splitlines()[2:]] == ["", "", ""]


def test_a_table_without_sizes_has_its_methods_down():
    made = [
        record("ldmnet", 0, 50.0, None, "yaleb"),
        record("ldmnet", 1, 54.0, None, "yaleb"),
        record("pca", 0, 20.0, None, "yaleb"),
    ]
    assert format_table(table_rows(made, "yaleb"), "md").splitlines() == [
        "| method | mean | seeds | selection |",
        "|---|---:|---:|---:|",
        "| ldmnet | **52.00** ± 2.83 | 2 | printed |",
        "| pca | 20.00 | 1 | printed |",
    ]
    assert r"ldmnet & \textbf{52.00} $\pm$ 2.83 & 2 & printed \\" in format_table(table_rows(made, "yaleb"), "latex")


def test_leads_are_paired_by_seed():
    made = [
        *[record("ldmnet", seed, accuracy) for seed, accuracy in enumerate([94.0, 96.0, 99.0])],
        *[record("control", seed, accuracy) for seed, accuracy in enumerate([93.0, 93.0])],
        record("dropout", 0, None),
        record("none", 7, 90.0),
        record("ldmnet", 0, 97.0, 100),
        record("none", 0, 95.5, 100),
        record("control", 0, 1.0, table="svhn"),
    ]
    assert format_leads(made, "mnist").splitlines() == [
        "| per class | of | over none | over dropout | over control |",
        "|---|---:|---:|---:|---:|",
        "| 50 | ldmnet |  |  | +2.00 ± 1.00 |",
        "| 100 | ldmnet | +1.50 |  |  |",
    ]


def test_leads_of_a_table_without_sizes():
    made = [record(method, 0, value, None, "cufs") for method, value in [("ldmnet_tuned", 80.0), ("pca", 81.5)]]
    assert format_leads(made, "cufs").splitlines() == ["| of | over pca |", "|---|---:|", "| ldmnet tuned | -1.50 |"]


def chosen(found, part="test"):
    return replace(found, selection="validation", settings={"part": part})


def test_a_gain_is_split_into_the_pull_and_the_graph():
    made = [
        *[record("ldmnet", seed, accuracy) for seed, accuracy in enumerate([95.0, 97.0])],
        *[record("control", seed, accuracy) for seed, accuracy in enumerate([93.0, 94.0])],
        *[record("none", seed, accuracy) for seed, accuracy in enumerate([90.0, 90.0, 10.0])],  # one more
        *[chosen(record(name + "_tuned", 0, value)) for name, value in (("ldmnet", 96.0), ("control", 91.0))],
        chosen(record("none_tuned", 1, 80.0)),  # another seed: the pull is left open
        record("ldmnet", 0, 98.0, 100),  # no control
    ]
    assert format_parts(parts_of(made)).splitlines()[2:] == [
        "| mnist | 50 | printed | +3.50 ± 0.50 | +2.50 ± 0.50 | 2 |",
        "| mnist | 50 | tuned |  | +5.00 | 1 |",
    ]


def test_parts_are_of_rows_chosen_alike_and_judged_on_the_test():
    rows = [("none", 60.0), ("control", 70.0), ("ldmnet_tuned", 78.0)]
    tested = [chosen(record(name, 0, value, None, "cufs")) for name, value in rows]
    printed = record("ldmnet", 0, 10.0, None, "cufs")
    tuning = [chosen(record(name, 0, 50.0, None, "cufs_tuning"), "validation") for name, _ in rows]
    assert format_parts(parts_of([*tuning, *tested, printed])).splitlines()[2:] == [
        "| cufs |  | tuned | +10.00 | +8.00 | 1 |"
    ]


def test_a_run_that_diverged_leaves_no_part():
    assert parts_of([record("ldmnet", 0, None), record("control", 0, 50.0)]) == []


def test_runs_of_other_data_are_not_paired():
    def made(method, accuracy, data="npz:a:VIS:1"):
        return replace(record(method, 0, accuracy, per_class=None, table="faces"), data=data)

    alike, unlike = made("control", 40.0), made("control", 10.0, "npz:b:VIS:1")
    ours, none = made("ldmnet", 50.0), made("none", 30.0)
    assert parts_of([ours, alike, none])[0].graph == [10.0]
    assert parts_of([ours, unlike, none]) == []
    assert "+10.00" in format_leads([ours, alike, none], "faces")
    assert "+40.00" not in format_leads([ours, unlike, none], "faces")
    assert other_data([ours, alike, none], "faces") == []
    assert other_data([unlike, ours, none], "faces") == ["control"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"accuracy": "high"}, "is not a record: its accuracy is 'high'."),
        ({"loss_curve": ["low"]}, "is not a record: its loss_curve is "),
        ({"format": 9}, "is a record of format 9, and this version reads 1."),
        ({"hash": None}, "is not a record: its hash is 'None'."),
    ],
)
def test_a_record_that_is_none_is_refused(change, said):
    content = record("ldmnet", 0, 95.0, val_accuracy=94.0).to_json()
    assert Record.from_json(content, "here") == record("ldmnet", 0, 95.0, val_accuracy=94.0)
    with pytest.raises(DataError, match=f"^here {said}"):
        Record.from_json({**content, **change}, "here")
    lacks = {name: value for name, value in content.items() if name != "table"}
    with pytest.raises(DataError, match=r"reads: it lacks table\.$"):
        Record.from_json(lacks, "here")
