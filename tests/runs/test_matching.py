"""The tables of faces from end to end, on made-up ones."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.errors import DivergenceError, InputError
from ldmnet.matching import METHODS
from ldmnet.paper import demo, face_study, faces
from ldmnet.records import read_records, table_rows
from ldmnet.records.matched import matched_rows
from ldmnet.records.tables import cells_of
from ldmnet.runs import Places, Run, execute
from ldmnet.runs.matching import Matching, MatchSettings, run_matching, tune

sys.path.insert(0, str(Path(__file__).parents[1] / "matching"))
from made_up import people_table, yaleb_file


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
    return Run("yaleb", row, MatchSettings("yaleb", split, embedding, **more), "printed", more={"val_accuracy": None})


def made(run, runs_dir, data_dir, **how):
    return execute(run, runs_dir / run.settings.hash(), lambda: run.settings.load(data_dir), **how)


def rates_of(record):
    return replace(record, seconds={})


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
    record = made(run_of(), places["runs_dir"], places["data_dir"])
    assert (record.table, record.method, record.seed, record.per_class) == ("yaleb", "ldmnet", 0, None)
    assert (record.n_train, record.more["n_gallery"], record.n_test) == (6 * 7, 3, 3 * 4)
    assert len(record.more["cmc"]) == 3
    assert record.more["cmc"][0] == record.accuracy
    assert record.more["cmc"][-1] == 100
    assert set(record.more["verification"]) == {"0.01", "0.001"}
    assert record.data_note == "9 of 72 images are lit from in between and left out"
    assert len(record.more["figure2"]["x"]) == 3 * 7
    again = made(run_of(), places["runs_dir"] / "again", places["data_dir"])
    assert rates_of(again) == rates_of(record)


def test_a_cut_run_goes_on_and_ends_as_if_it_had_not_been_cut(places):
    def cut(epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    run = run_of(epochs=4)
    train = replace(run.settings.embedding.train, checkpoint_every=1)
    run = replace(run, settings=replace(run.settings, embedding=replace(run.settings.embedding, train=train)))
    whole = made(run, places["runs_dir"] / "a", places["data_dir"])
    with pytest.raises(KeyboardInterrupt):
        made(run, places["runs_dir"] / "b", places["data_dir"], on_epoch=cut)
    seen = []
    resumed = made(run, places["runs_dir"] / "b", places["data_dir"], on_epoch=seen.append)
    assert [epoch.epoch for epoch in seen] == [2, 3]  # the cut epoch is made again: its checkpoint comes last
    assert rates_of(resumed) == rates_of(whole)


def test_validation_people_are_not_the_tested_ones(places):
    run = run_of()
    table, test = run.settings.load(places["data_dir"])
    _, validation = replace(run.settings, part="validation").load(places["data_dir"])
    tested = set(table.identity[test.probe].tolist())
    assert not tested & set(table.identity[validation.probe].tolist())
    assert not tested & set(table.identity[validation.train].tolist())


def test_the_best_mean_is_chosen_and_what_diverged_is_out(monkeypatch, says):
    what = Matching("yaleb", "yaleb", range(10))

    def sweep(self, runs, name, console):
        assert name == "yaleb_tuning"
        seen.append((len(runs), {run.settings.split for run in runs}))
        score = {0.1: 60.0, 0.03: 50.0, 0.3: 40.0, 0.01: 30.0, 1.0: 20.0}
        score[0.03] = 50.0 if len(seen) % 2 else late  # what the first stage saw, and the second
        return [
            run.record({}, accuracy=score[lr] + run.settings.split, diverged="not finite." if lr in bad else "")
            for run in runs
            for lr in [run.settings.embedding.train.lr]
        ]

    monkeypatch.setattr(Matching, "sweep", sweep)
    bad, seen, late = (), [], 50.0
    assert tune(what, faces.grids(["none"]))["none"].val_accuracy == 64.5
    assert seen == [(5 * 3, {0, 1, 2}), (2 * 10, set(range(10)))]  # all on three splits, the best two on all ten
    late = 70.0
    choice = tune(what, faces.grids(["none"]))["none"]
    assert (choice.embedding.train.lr, choice.selection, choice.val_accuracy) == (0.03, "validation", 74.5)
    bad, late = (0.1,), 50.0
    assert tune(what, faces.grids(["none"]))["none"].embedding.train.lr == 0.03
    bad = (0.1, 0.03, 0.3, 0.01, 1.0)
    with says(DivergenceError):
        tune(what, faces.grids(["none", "dropout"]))


def test_the_next_best_settings_step_in_for_those_that_diverge_on_later_splits(monkeypatch):
    what = Matching("yaleb", "yaleb", range(10))

    def sweep(self, runs, name, console):
        late = {0.1: 5, 0.03: 7}  # the best two diverge there
        return [
            run.record(
                {},
                accuracy=60.0 - 10 * (lr not in late),
                diverged="the loss is not finite." if run.settings.split == late.get(lr) else "",
            )
            for run in runs
            for lr in [run.settings.embedding.train.lr]
        ]

    monkeypatch.setattr(Matching, "sweep", sweep)
    choice = tune(what, faces.grids(["none"]))["none"]
    assert (choice.embedding.train.lr, choice.val_accuracy) == (0.3, 50.0)


def test_casia_is_tuned_on_its_development_view_whatever_the_fold(monkeypatch, tmp_path):
    hashes = []

    def sweep(self, runs, name, console):
        hashes.append([run.settings.hash() for run in runs])
        return [run.record({}, accuracy=50.0) for run in runs]

    monkeypatch.setattr(Matching, "sweep", sweep)
    for fold in (1, 7):
        tune(Matching("casia", "casia", [fold], places=Places(data_dir=tmp_path)), faces.grids(["none"]))
    assert len(hashes[0]) == 5
    assert hashes[0] == hashes[1]


def test_a_method_that_diverged_has_no_mean(places):
    good, bad = (made(run_of(split=split), places["runs_dir"], places["data_dir"]) for split in (0, 1))
    ((best, row),) = matched_rows([good, replace(bad, diverged="the loss is not finite.")])
    assert not best
    assert row[1:] == ["diverged", "", "", "2", "printed, 1 diverged"]


@pytest.mark.slow
def test_a_table_shows_the_settings_that_were_chosen_last(places):
    what = Matching("yaleb", "yaleb", range(2), places=Places(jobs=1, **places))
    first = run_matching(what, faces.starts(["none"], 1), {})
    run_matching(what, faces.starts(["none"], 2), {})
    path = places["results"] / "yaleb.jsonl"
    for _ in range(2):  # back to what is done already: it is chosen again
        run_matching(what, faces.starts(["none"], 1), {})
        assert len(read_records([path])) == 4
    (shown,) = cells_of(read_records([path])[::-1], "yaleb").values()
    assert {record.hash for record in shown.values()} == {record.hash for record in first}


@pytest.mark.slow
def test_one_command_tunes_then_runs_every_split_and_goes_on_where_it_was(places, tmp_path):
    words = ["reproduce", "yaleb", "--seeds", 2, "--methods", "pca,low_rank", "--jobs", 1, *options(places)]
    result = invoke(*words, "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    tuning = read_records([places["results"] / "yaleb_tuning.jsonl"])
    final = read_records([places["results"] / "yaleb.jsonl"])
    assert {(r.table, r.method) for r in tuning} == {("yaleb_tuning", "low_rank")}
    assert len(tuning) == 4 * 2
    assert [(r.method, r.seed) for r in final] == [("pca", 0), ("low_rank", 0), ("pca", 1), ("low_rank", 1)]
    by_setting = {}
    for record in tuning:
        settings = record.settings["embedding"]
        by_setting.setdefault((settings["dimensions"], settings["step_size"]), []).append(record.accuracy)
    best = max(np.mean(found) for found in by_setting.values())
    assert final[1].more["val_accuracy"] == pytest.approx(best, abs=1e-3)
    assert (final[0].selection, final[1].selection) == ("default", "validation")
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
    result = invoke("match", npz(tmp_path / "mine.npz", table), "--splits", 2, *common)
    assert result.exit_code == 0, result.output
    records = read_records([places["results"] / "match-mine.jsonl"])
    assert [(r.seed, r.more["n_gallery"]) for r in records] == [(0, 3), (1, 3)]
    assert records[0].more["modalities"] == ["A", "B"]
    split = ["train" if person < 4 else "test" for person in table.identity.tolist()]
    result = invoke("match", npz(tmp_path / "given.npz", table, split=split), "--gallery", "B", *common)
    assert result.exit_code == 0, result.output
    (record,) = read_records([places["results"] / "match-given.jsonl"])
    assert (record.more["n_train_people"], record.more["n_gallery"], record.n_test) == (4, 5, 15)
    assert record.more["modalities"] == ["B", "A"]


@pytest.mark.slow
def test_the_demo_draws_and_keeps_its_records(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.setattr(demo, "QUICK_FACES", (1, 1))
    monkeypatch.setattr(demo.run_faces_demo, "__kwdefaults__", {"rows": ("pca", "ldmnet_tuned")})
    result = invoke("demo", "--faces", "--quick", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert [r.method for r in read_records([tmp_path / "records.jsonl"])] == ["pca", "ldmnet_tuned"]
    assert (tmp_path / "figure2.png").exists()
    assert "LDMNet, mu 1, lambda 5" in result.output
    assert "tuned │" not in result.output


@pytest.mark.parametrize(("words", "sentence"), [
    (["yaleb", "--fold", "3"], "--fold does not go with yaleb."),
    (["cufs", "--features", "x.npz"], "--features does not go with cufs."),
    (["yaleb", "--per-class", "50"], "--per-class does not go with yaleb."),
    (["mnist", "--images", "2"], "--images does not go with mnist."),
    (["mnist", "--no-tune"], "--tune does not go with mnist."),
    (["casia", "--seeds", "3", "--data-dir", "there"], "--seeds does not go with casia, whose folds are given"),
    (["casia"], "casia needs --data-dir"),
    (["casia", "--data-dir", "there", "--fold", "12"], "--fold is 1 to 10, dev or all, got 12."),
    (["yaleb", "--methods", "lda"], "there is no method 'lda'."),
])  # fmt: skip
def test_an_option_that_would_do_nothing_is_refused(words, sentence):
    result = invoke("reproduce", *words)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_splits_do_not_go_with_a_split_that_is_given(tmp_path):
    path, people = tmp_path / "mine.npz", np.repeat(np.arange(4), 4)
    np.savez(path, x=np.random.default_rng(0).normal(size=(16, 3)), identity=people, modality=["A", "B"] * 8,
             split=np.where(people < 2, "train", "test"))  # fmt: skip
    result = invoke("match", path, "--splits", "7", "--methods", "pca")
    assert result.exit_code == 2
    assert "whose split is given." in " ".join(result.output.split())


@pytest.mark.slow
def test_a_file_that_is_not_there_is_said(places):
    result = invoke("reproduce", "cufs", *options(places))
    assert result.exit_code == 2
    assert f"Error: {places['data_dir'] / 'faces' / 'cufs_125x100.npz'} cannot be read: " in result.output


@pytest.mark.slow
def test_few_images_of_a_person_train_and_the_same_probes_test(places):
    common = ["reproduce", "yaleb", "--methods", "pca,none", "--no-tune", "--epochs", 1, "--seeds", 2, "--jobs", 1]
    for more in ([], ["--images", 2]):
        result = invoke(*common, *more, *options(places))
        assert result.exit_code == 0, result.output
    whole, few = (read_records([places["results"] / f"{name}.jsonl"]) for name in ("yaleb", "yaleb-2"))
    assert [(r.method, r.seed) for r in few] == [(r.method, r.seed) for r in whole]
    assert {r.table for r in few} == {"yaleb-2"}
    for more, fewer in zip(whole, few, strict=True):
        assert fewer.more["n_train_people"] == more.more["n_train_people"]
        assert fewer.n_train == 4 * fewer.more["n_train_people"] < more.n_train  # two in each of two modalities
        assert (fewer.n_test, fewer.more["n_gallery"]) == (more.n_test, more.more["n_gallery"])


def test_the_precision_enters_every_run(places):
    what, embedding = Matching("yaleb", "yaleb", [0], places=Places(**places)), faces.default_embedding("ldmnet", 3)
    single, half = (replace(what, precision=kind).settings(0, embedding) for kind in ("float32", "bfloat16"))
    assert half.embedding.train.precision == "bfloat16"
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
    runs = face_study.face_study_runs
    monkeypatch.setattr(face_study, "VARIATIONS", few)
    monkeypatch.setattr(face_study, "face_study_runs", lambda what, only: runs(what, only, epochs=1))
    study = ("study", "yaleb", "--jobs", 1, *options(places), "--seeds")
    invoke(*study, 1)
    result = invoke(*study, 2)  # the records of split 0 are read, those of split 1 fresh
    assert result.exit_code == 0, result.output
    records = read_records([places["results"] / "study-yaleb.jsonl"])
    assert [(r.method, r.seed) for r in records] == [(v.name, split) for split in (0, 1) for v in few]
    assert {r.settings["part"] for r in records} == {"validation"}
    assert [r.n_train for r in records[:3]] == [r.n_train for r in records[3:]]
    assert records[2].n_train == 2 * records[2].more["n_train_people"] < records[0].n_train
    assert len(records[2].loss_curve) == 3 * len(records[0].loss_curve)
    mean = np.mean([r.accuracy for r in records if r.method == "both layers"])
    first = np.mean([r.accuracy for r in records if r.method == few[0].name])
    assert f"| both layers | {mean:.2f} | {round(mean - first, 2) + 0.0:+.2f} | 2 |" in result.output
    assert "| variation | validation | gain (validation) | seeds |" in result.output
