"""The tables of faces from end to end, on made-up ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from made_up import people_table, yaleb_file

from ldmnet.cli import main
from ldmnet.cli.faces import summary
from ldmnet.errors import DivergenceError, InputError
from ldmnet.matching import METHODS
from ldmnet.paper import face_study, faces
from ldmnet.paper.face_runs import MatchRun, MatchSettings, execute_match, load_fold
from ldmnet.records import read_records, table_rows
from ldmnet.records.tables import cells_of


def invoke(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def places(tmp_path):
    yaleb_file(tmp_path / "data")
    return {"data_dir": tmp_path / "data", "runs_dir": tmp_path / "runs", "results": tmp_path / "results"}


def options(places):
    return [word for name, path in places.items() for word in (f"--{name.replace('_', '-')}", path)]


def run_of(row="ldmnet", epochs=2, split=0, width=20, **more):
    embedding = replace(faces.default_embedding(row, epochs), width=width)
    return MatchRun("yaleb", row, MatchSettings("yaleb", split, embedding, **more), "printed")


def test_every_method_has_a_grid_around_its_default(says):
    for row in METHODS:
        grid = faces.grid(row, 200)
        assert len(set(grid)) == len(grid)
        assert len(grid) == (1 if row in faces.NOT_TUNED else 4 if row == "low_rank" else 5 if row == "none" else 20)
        if row not in (*faces.NOT_TUNED, "low_rank"):
            assert {settings.train.lr for settings in grid} == {0.01, 0.03, 0.1, 0.3, 1.0}
        if row in faces.NOT_TUNED:
            assert grid == [faces.default_embedding(row)]
    printed = faces.default_embedding("ldmnet")
    assert (printed.method.mu, printed.method.lambda_tilde, printed.train.lr) == (5.0, 5e-5, 0.1)
    tuned = {(s.method.mu, s.method.lambda_tilde, s.method.input_scale) for s in faces.grid("ldmnet_tuned")}
    assert tuned == {(5.0, 1.0, 1.0), (5.0, 5.0, 1.0), (20.0, 4.0, 1.0), (20.0, 20.0, 1.0)}
    assert {s.method.mu for s in faces.grid("control")} == {1.0, 5.0, 20.0, 80.0}
    with says(InputError):
        faces.default_embedding("lda")


def test_a_record_says_what_was_matched(places):
    record = execute_match(run_of(), runs_dir=places["runs_dir"], data_dir=places["data_dir"])
    assert (record["table"], record["method"], record["seed"], record["per_class"]) == ("yaleb", "ldmnet", 0, None)
    assert (record["n_train"], record["n_gallery"], record["n_test"]) == (6 * 7, 3, 3 * 4)
    assert len(record["cmc"]) == 3
    assert record["cmc"][0] == record["accuracy"]
    assert record["cmc"][-1] == 100
    assert set(record["verification"]) == {"0.01", "0.001"}
    assert record["data_note"] == "9 of 72 images are lit from in between and left out"
    assert json.loads(json.dumps(record)) == json.loads(json.dumps(record))
    assert len(record["figure2"]["x"]) == 3 * 7
    again = execute_match(run_of(), runs_dir=places["runs_dir"] / "again", data_dir=places["data_dir"])
    assert {**again, "seconds": 0} == {**record, "seconds": 0}


def test_a_cut_run_goes_on_and_ends_as_if_it_had_not_been_cut(places):
    def cut(epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    run = run_of(epochs=4)
    train = replace(run.settings.embedding.train, checkpoint_every=1)
    run = replace(run, settings=replace(run.settings, embedding=replace(run.settings.embedding, train=train)))
    whole = execute_match(run, runs_dir=places["runs_dir"] / "a", data_dir=places["data_dir"])
    with pytest.raises(KeyboardInterrupt):
        execute_match(run, runs_dir=places["runs_dir"] / "b", data_dir=places["data_dir"], on_epoch=cut)
    seen = []
    resumed = execute_match(run, runs_dir=places["runs_dir"] / "b", data_dir=places["data_dir"], on_epoch=seen.append)
    assert [epoch.epoch for epoch in seen] == [3]
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}


def test_validation_people_are_not_the_tested_ones(places):
    run = run_of()
    table, test = load_fold(run.settings, places["data_dir"])
    _, validation = load_fold(replace(run.settings, part="validation"), places["data_dir"])
    tested = set(table.identity[test.probe].tolist())
    assert not tested & set(table.identity[validation.probe].tolist())
    assert not tested & set(table.identity[validation.train].tolist())


def test_the_best_mean_is_chosen_and_what_diverged_is_out(monkeypatch, says):
    what = faces.Matching("yaleb", "yaleb", range(10))

    def sweep(self, runs, name, console):
        assert name == "yaleb_tuning"
        seen.append((len(runs), {run.settings.split for run in runs}))
        score = {0.1: 60.0, 0.03: 50.0, 0.3: 40.0, 0.01: 30.0, 1.0: 20.0}
        score[0.03] = 50.0 if len(seen) % 2 else late  # what the first stage saw, and the second
        records = [{"accuracy": score[run.settings.train.lr] + run.settings.split} for run in runs]
        for record, run in zip(records, runs, strict=True):
            if run.settings.train.lr in bad:
                record["diverged"] = "the loss is not finite."
        return records

    monkeypatch.setattr(faces.Matching, "sweep", sweep)
    bad, seen, late = (), [], 50.0
    assert faces.tune(what, ["none"])["none"].val_accuracy == 64.5
    assert seen == [(5 * 3, {0, 1, 2}), (2 * 10, set(range(10)))]  # all on three splits, the best two on all ten
    late = 70.0
    choice = faces.tune(what, ["none"])["none"]
    assert (choice.embedding.train.lr, choice.selection, choice.val_accuracy) == (0.03, "validation", 74.5)
    bad, late = (0.1,), 50.0
    assert faces.tune(what, ["none"])["none"].embedding.train.lr == 0.03
    bad = (0.1, 0.03, 0.3, 0.01, 1.0)
    with says(DivergenceError):  # fmt: skip
        faces.tune(what, ["none", "dropout"])


def test_the_next_best_settings_step_in_for_those_that_diverge_on_later_splits(monkeypatch):
    what = faces.Matching("yaleb", "yaleb", range(10))

    def sweep(self, runs, name, console):
        late = {0.1: 5, 0.03: 7}  # the best two diverge there
        records = [{"accuracy": 60.0 - 10 * (run.settings.train.lr not in late)} for run in runs]
        for record, run in zip(records, runs, strict=True):
            if run.settings.split == late.get(run.settings.train.lr):
                record["diverged"] = "the loss is not finite."
        return records

    monkeypatch.setattr(faces.Matching, "sweep", sweep)
    choice = faces.tune(what, ["none"])["none"]
    assert (choice.embedding.train.lr, choice.val_accuracy) == (0.3, 50.0)


def test_casia_is_tuned_on_its_development_view_whatever_the_fold(monkeypatch, tmp_path):
    hashes = []

    def sweep(self, runs, name, console):
        hashes.append([run.settings.hash() for run in runs])
        return [{"accuracy": 50.0} for run in runs]

    monkeypatch.setattr(faces.Matching, "sweep", sweep)
    for fold in (1, 7):
        faces.tune(faces.Matching("casia", "casia", [fold], data_dir=tmp_path), ["none"])
    assert len(hashes[0]) == 5
    assert hashes[0] == hashes[1]


def test_a_method_that_diverged_has_no_mean(places):
    where = {name: places[name] for name in ("runs_dir", "data_dir")}
    records = [execute_match(run_of(split=split), **where) for split in (0, 1)]
    records[1]["diverged"] = "the loss is not finite."
    (row,) = zip(*[column._cells for column in summary(records).columns], strict=True)
    assert row[1:] == ("diverged", "", "", "2", "printed, 1 diverged")


@pytest.mark.slow
def test_a_table_shows_the_settings_that_were_chosen_last(places):
    what = faces.Matching("yaleb", "yaleb", range(2), epochs=1, **places)
    first = faces.run_matching(what, ["none"], tuned=False)
    faces.run_matching(replace(what, epochs=2), ["none"], tuned=False)
    path = places["results"] / "yaleb.jsonl"
    assert len(read_records([path])) == 4
    for _ in range(2):  # back to what is done already: it is put last, once
        faces.run_matching(what, ["none"], tuned=False)
        assert len(read_records([path])) == 6
    (shown,) = cells_of(read_records([path]), "yaleb").values()
    assert [record["hash"] for record in shown.values()] == [record["hash"] for record in first]


@pytest.mark.slow
def test_one_command_tunes_then_runs_every_split_and_goes_on_where_it_was(places, tmp_path):
    words = ["faces", "yaleb", "--splits", 2, "--methods", "pca,low_rank", "--jobs", 1, *options(places)]
    result = invoke(*words, "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    tuning = read_records([places["results"] / "yaleb_tuning.jsonl"])
    final = read_records([places["results"] / "yaleb.jsonl"])
    assert {(r["table"], r["method"]) for r in tuning} == {("yaleb_tuning", "low_rank")}
    assert len(tuning) == 4 * 2
    assert [(r["method"], r["seed"]) for r in final] == [("pca", 0), ("low_rank", 0), ("pca", 1), ("low_rank", 1)]
    by_setting = {}
    for record in tuning:
        settings = record["settings"]["embedding"]
        by_setting.setdefault((settings["dimensions"], settings["step_size"]), []).append(record["accuracy"])
    best = max(np.mean(found) for found in by_setting.values())
    assert final[1]["val_accuracy"] == pytest.approx(best, abs=1e-3)
    assert (final[0]["selection"], final[1]["selection"]) == ("default", "validation")
    assert len(table_rows(final, "yaleb")) == 2
    assert "a gallery of 3" in " ".join(result.output.split())
    assert (tmp_path / "out" / "figure2.png").exists()
    assert (tmp_path / "out" / "cmc.png").exists()
    lines = (places["results"] / "yaleb.jsonl").read_text()
    assert invoke(*words).exit_code == 0
    assert (places["results"] / "yaleb.jsonl").read_text() == lines
    rows = json.loads(invoke("table", "yaleb", "--format", "json", "--results", places["results"]).output)
    assert {row["method"]: (row["seeds"], row["n_test"]) for row in rows} == {"pca": (2, 12), "low_rank": (2, 12)}


def npz(path, table, **more):
    np.savez(
        path,
        x=table.x.numpy(),
        identity=table.identity.numpy(),
        modality=np.array(table.modalities)[table.modality.numpy()],
        **more,
    )
    return path


@pytest.mark.slow
def test_a_users_file_by_splits_of_people_or_by_its_own(places, tmp_path):
    table = people_table(people=9)
    del places["data_dir"]
    common = ["--methods", "pca", "--jobs", 1, *options(places)]
    result = invoke("faces", npz(tmp_path / "mine.npz", table), "--splits", 2, *common)
    assert result.exit_code == 0, result.output
    records = read_records([places["results"] / "faces-mine.jsonl"])
    assert [(r["seed"], r["n_gallery"], r["modalities"]) for r in records] == [(0, 3, ["A", "B"]), (1, 3, ["A", "B"])]
    split = ["train" if person < 4 else "test" for person in table.identity.tolist()]
    result = invoke("faces", npz(tmp_path / "given.npz", table, split=split), "--gallery", "B", *common)
    assert result.exit_code == 0, result.output
    (record,) = read_records([places["results"] / "faces-given.jsonl"])
    assert (record["n_train_people"], record["n_gallery"], record["n_test"]) == (4, 5, 15)
    assert record["modalities"] == ["B", "A"]


@pytest.mark.slow
def test_the_demo_draws_and_keeps_its_records(tmp_path):
    pytest.importorskip("mlxtend")
    words = ["faces", "--demo", "--splits", 1, "--epochs", 1, "--methods", "pca,ldmnet_tuned", "--output", tmp_path]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert [r["method"] for r in read_records([tmp_path / "records.jsonl"])] == ["pca", "ldmnet_tuned"]
    assert (tmp_path / "figure2.png").exists()
    assert "LDMNet, mu 1, lambda 5" in result.output
    assert "tuned │" not in result.output


@pytest.mark.parametrize(("words", "sentence"), [
    (["mine.npz", "--study", "--methods", "pca"], "--study varies LDMNet alone and prints a table"),
    (["mine.npz", "--study", "--output", "out"], "--study varies LDMNet alone and prints a table"),
    (["mine.npz", "--study", "--no-tune"], "--study varies LDMNet alone and prints a table"),
    (["mine.npz", "--fold", "3"], "--fold goes with --casia."),
    (["--casia", "there", "--splits", "3"], "--splits does not go with --casia, whose folds are given"),
    (["mine.npz", "--data-dir", "there"], "--data-dir goes with a TABLE (yaleb, cufs)."),
    (["yaleb", "--gallery", "VIS"], "--gallery goes with a FILE.npz"),
    (["--demo", "--gallery", "VIS"], "--gallery goes with a FILE.npz"),
])  # fmt: skip
def test_an_option_that_would_do_nothing_is_refused(words, sentence):
    result = invoke("faces", *words)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_splits_do_not_go_with_a_split_that_is_given(tmp_path):
    path, people = tmp_path / "mine.npz", np.repeat(np.arange(4), 4)
    np.savez(path, x=np.random.default_rng(0).normal(size=(16, 3)), identity=people, modality=["A", "B"] * 8,
             split=np.where(people < 2, "train", "test"))  # fmt: skip
    result = invoke("faces", path, "--splits", "7", "--methods", "pca")
    assert result.exit_code == 2
    assert "whose split is given." in " ".join(result.output.split())


@pytest.mark.slow
def test_what_cannot_be_run_is_said(places, tmp_path):
    assert "name one of: a TABLE (yaleb, cufs), a FILE.npz, --demo, --casia DIR." in invoke("faces").output
    assert "name one of" in invoke("faces", "yaleb", "--demo").output
    assert "--features goes with --casia" in invoke("faces", "yaleb", "--features", "x.npz").output
    assert "there is no method 'lda'." in invoke("faces", "yaleb", "--methods", "lda").output
    assert "there is no table 'lfw'." in invoke("faces", "lfw").output
    assert "--fold is 1 to 10, dev or all, got 12." in invoke("faces", "--casia", tmp_path, "--fold", 12).output
    result = invoke("faces", "cufs", *options(places))
    assert result.exit_code == 2
    assert f"Error: {places['data_dir'] / 'faces' / 'cufs_125x100.npz'} cannot be read: " in result.output


@pytest.mark.slow
def test_few_images_of_a_person_train_and_the_same_probes_test(places):
    common = ["faces", "yaleb", "--methods", "pca,none", "--no-tune", "--epochs", 1, "--splits", 2, "--jobs", 1]
    for more in ([], ["--images", 2]):
        result = invoke(*common, *more, *options(places))
        assert result.exit_code == 0, result.output
    whole, few = (read_records([places["results"] / f"{name}.jsonl"]) for name in ("yaleb", "yaleb-2"))
    assert [(r["method"], r["seed"]) for r in few] == [(r["method"], r["seed"]) for r in whole]
    assert {r["table"] for r in few} == {"yaleb-2"}
    for more, fewer in zip(whole, few, strict=True):
        assert fewer["n_train_people"] == more["n_train_people"]
        assert fewer["n_train"] == 4 * fewer["n_train_people"] < more["n_train"]  # two in each of two modalities
        assert (fewer["n_test"], fewer["n_gallery"]) == (more["n_test"], more["n_gallery"])
    for other in (["--demo"], ["yaleb", "--study"]):
        assert "--images goes with neither --demo nor --study" in invoke("faces", "--images", 2, *other).output


def test_the_precision_enters_every_run(places):
    what, embedding = faces.Matching("yaleb", "yaleb", [0], **places), faces.default_embedding("ldmnet", 3)
    single, half = (replace(what, precision=kind).settings(0, embedding) for kind in ("float32", "bfloat16"))
    assert half.train.precision == "bfloat16"
    assert single.hash() != half.hash()


def test_the_study_varies_one_thing_at_a_time():
    start = face_study.study_embedding(face_study.VARIATIONS[0], 200)
    assert start == faces.default_embedding("ldmnet_tuned")
    settings = [face_study.study_embedding(variation, 200) for variation in face_study.VARIATIONS]
    trained_on = [variation.fewer for variation in face_study.VARIATIONS]
    assert len(set(zip(settings, trained_on, strict=True))) == len(settings)
    by_name = {v.name: s for v, s in zip(face_study.VARIATIONS, settings, strict=True)}
    assert by_name["control, mu 5"].method == faces.grid("control")[0].method
    assert by_name["lambda_tilde 5"] in faces.grid("ldmnet_tuned")  # a tuning run serves both


@pytest.mark.slow
def test_the_study_runs_on_validation_people_and_prints_its_table(places, monkeypatch):
    names = (face_study.VARIATIONS[0].name, "both layers", "15 pairs: control, mu 5")
    few = tuple(variation for variation in face_study.VARIATIONS if variation.name in names)
    run = face_study.run_face_study
    monkeypatch.setattr(face_study, "run_face_study", lambda what: run(what, few))
    study = ("faces", "yaleb", "--study", "--epochs", 1, "--jobs", 1, *options(places), "--splits")
    invoke(*study, 1)
    result = invoke(*study, 2)  # the records of split 0 are read, those of split 1 fresh
    assert result.exit_code == 0, result.output
    records = read_records([places["results"] / "study-yaleb.jsonl"])
    assert [(r["method"], r["seed"]) for r in records] == [(v.name, split) for split in (0, 1) for v in few]
    assert {r["settings"]["part"] for r in records} == {"validation"}
    assert [r["n_train"] for r in records[:3]] == [r["n_train"] for r in records[3:]]
    assert records[2]["n_train"] == 2 * records[2]["n_train_people"] < records[0]["n_train"]
    assert len(records[2]["loss_curve"]) == 3 * len(records[0]["loss_curve"])
    mean = np.mean([r["accuracy"] for r in records if r["method"] == "both layers"])
    first = np.mean([r["accuracy"] for r in records if r["method"] == few[0].name])
    assert f"| both layers | {mean:.2f} | {round(mean - first, 2) + 0.0:+.2f} | 2 |" in result.output
    assert "| variation | validation | gain (validation) | seeds |" in result.output
    assert "--study needs" in invoke("faces", "--demo", "--study").output
