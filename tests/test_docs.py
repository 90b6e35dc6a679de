"""What README and docs say works: their Python runs, their commands parse, the three of the start page are run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ldmnet import strength
from ldmnet.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guide").glob("*.md"))]
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?^(?P<indent> *)```(?P<kind>\w*)\n(?P<body>.*?)^ *```$", re.M | re.S
)
NEEDS = {
    "lightning.md": "lightning",
    "transformers.md": "transformers",
    "sklearn.md": "sklearn",
    "logs.md": "tensorboard",
}
SHORTER = {"range(100)": "range(3)", "epochs=100": "epochs=2"}


def blocks(page, *kinds):
    """The fenced blocks of some kinds: their text, and why they are not run, if they are not."""
    return [(match["body"], match["reason"]) for match in FENCE.finditer(page.read_text()) if match["kind"] in kinds]


def name_of(page):
    return str(page.relative_to(ROOT))


# ---- Python


def clouds(n=60, classes=3, width=8):
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    return torch.randn(classes, width, generator=draw)[y] * 2 + torch.randn(n, width, generator=draw), y


def photos(folder, classes=("daisy", "poppy", "rose"), each=10, grey=False):
    """Made-up photographs: a bright bar that stands elsewhere in each class, in two sizes."""
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    rng = np.random.default_rng(0)
    for c, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.integers(0, 90, (20, 24 + i % 2) if grey else (20, 24 + i % 2, 3), np.uint8)
            pixels[4:16, 3 + 7 * c : 8 + 7 * c] = 200
            image.fromarray(pixels).save(folder / name / f"{i:03d}.png")
    return folder


def given(page, folder):
    """What a page's Python supposes to be there."""
    if page.name == "sklearn.md":
        x, y = (part.numpy() for part in clouds())
        return {"x": x, "y": y, "x_test": x}
    if page.name == "yourdata.md":
        words = ["--net", "mlp", "--size", "8", "--epochs", "1", "--output", str(folder / "flowers")]
        result = CliRunner().invoke(main, ["train", str(photos(folder / "photos", each=4)), *words])
        assert result.exit_code == 0, result.output
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="the pages take their data from scikit-learn")
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason=f"{page.name} needs the extra")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = given(page, tmp_path)
    for number, (code, reason) in enumerate(blocks(page, "python", "py"), 1):
        if reason is not None:
            continue
        for long, short in SHORTER.items():
            code = code.replace(long, short)
        exec(compile(code, f"{name_of(page)}, block {number}", "exec"), names)  # the pages are ours


def test_a_block_that_is_not_run_says_why():
    for page in PAGES:
        marks = page.read_text().count("<!-- not run")
        reasons = [reason for _, reason in blocks(page, "python", "py", "bash", "console") if reason]
        assert len(reasons) == marks, f"{name_of(page)}: a mark that stands before no block, or has no reason"
        assert all(len(reason) > 10 for reason in reasons)


@pytest.mark.slow
def test_the_loop_in_the_readme_runs_alone_and_learns(capsys):
    pytest.importorskip("sklearn", reason="the README takes its data from scikit-learn")
    loop, _ = blocks(ROOT / "README.md", "python")[0]
    assert loop.count("\n") <= 24
    assert not re.search(r"\b(mu|lambda_tilde|strength|coupling)\b", loop)  # no number of the method's
    torch.manual_seed(0)  # the README sets no seed
    names = {}  # nothing that is not on the page
    exec(compile(loop, "README.md, the loop", "exec"), names)  # the README is ours
    assert float(re.match(r"([\d.]+) % of the other 1697 images", capsys.readouterr().out)[1]) > 75
    log = names["regularizer"].log
    assert len(log) == 50
    assert log[-1].strength == pytest.approx(0.3)


# ---- commands


def commands():
    """Every `ldmnet ...` in a block or in a line, with its page."""
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = page.read_text()
        for body, _ in blocks(page, "bash", "console", "sh", ""):
            for line in body.splitlines():
                if line.strip().removeprefix("$ ").startswith("ldmnet "):
                    yield page, line.strip().removeprefix("$ "), True
        for line in re.findall(r"(?<!`)`(ldmnet [^`\n]+)`", FENCE.sub("", text)):
            if "..." not in line and page.name != "completion.md":
                yield page, line, False


def parsed(line, whole):
    """Parse a command line up to a pipe, a redirection or a comment; a mention in a sentence may lack arguments."""
    words = shlex.split(line, comments=True)
    end = next((i for i, word in enumerate(words) if word in ("|", ">", ">>", "&&", "&")), len(words))
    name, *rest = words[1:end]
    if name.startswith("-"):
        assert name in ("--help", "--version"), name
        return
    if name == "COMMAND":
        return
    assert name in main.commands, f"there is no command {name}"
    if "--help" in rest or "NAME" in rest:
        return
    try:
        main.commands[name].make_context(name, rest)
    except click.MissingParameter:
        if whole:
            raise


@pytest.mark.parametrize(
    ("page", "line", "whole"), [pytest.param(*found, id=f"{name_of(found[0])}: {found[1]}") for found in commands()]
)
def test_a_command_of_a_page_parses(page, line, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parsed(line, whole)


def test_a_wrong_command_would_be_found():
    for line in ("ldmnet trian photos", "ldmnet train photos --epoch 3", "ldmnet table mnist --format html"):
        with pytest.raises((AssertionError, click.UsageError)):
            parsed(line, True)


@pytest.mark.parametrize("command", list(main.commands))
def test_the_examples_of_a_commands_help_parse(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    epilog = main.commands[command].epilog
    lines = [line.strip() for line in epilog.splitlines() if line.strip().startswith("ldmnet ")]
    for line in lines:
        parsed(re.split(r"\s{2,}", line)[0], True)  # words of explanation follow after two spaces


@pytest.mark.slow
def test_the_three_commands_of_the_start_page(tmp_path, monkeypatch):
    pytest.importorskip("plotly", reason="the extra report is not installed")
    photos(tmp_path / "photos", grey=True)
    monkeypatch.chdir(tmp_path)
    (three,) = (body for body, _ in blocks(ROOT / "docs" / "start.md", "bash") if body.startswith("ldmnet train"))
    lines = [shlex.split(line)[1:] for line in three.splitlines()]
    assert [words[0] for words in lines] == ["train", "compare", "report"]
    small = ["--size", "16", "--epochs", "8"]
    faster = {"train": small, "compare": [*small, "--net", "mlp"], "report": []}  # 25 runs
    shown = {}
    for words in lines:
        result = CliRunner().invoke(main, [*words, *faster[words[0]]])
        assert result.exit_code == 0, result.output
        shown[words[0]] = result.stdout
    assert re.search(r"^test accuracy \d+\.\d\d % of 6 samples held out$", shown["train"], re.M)
    assert (tmp_path / "run" / "model.safetensors").exists()
    rows = [line.split("|")[1].strip() for line in shown["compare"].splitlines()[2:] if line.startswith("|")]
    assert rows == ["none", "weight decay", "dropout", "control", "ldmnet"]
    page = (tmp_path / "report.html").read_text()
    assert all(word in page for word in ("weight decay", "LDMNet", "<html"))


# ---- pages


@pytest.mark.slow
def test_tables_in_readme_and_docs_are_those_of_the_records():
    command = [sys.executable, "scripts/refresh_tables.py", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_readme_is_one_page_with_one_table():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 120
    assert re.findall(r"<!-- (\w+): [\w-]+ -->", text) == ["summary"]
    assert len(re.findall(r"^\|[-:|]+\|$", text, re.M)) == 1
    (heading,) = re.findall(r"^\| data .*\|$", text, re.M)
    assert " control " in heading
    for page in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", text):
        assert (ROOT / page).exists(), page


def test_every_file_and_function_that_theory_names_is_there():
    text = (ROOT / "docs" / "theory.md").read_text()
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    table = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(table) == 12
    for line in table:
        function, test = line.split("|")[3:5]
        for name in re.findall(r"`([^`]+)`", function):
            last = name.split(".")[-1]
            assert re.search(rf"(def|class) {last}\b", code) or name == "ldmnet.training.loop", name
        for path in re.findall(r"`(tests/[^`]+)`", test):
            assert (ROOT / path).exists(), path


def test_theory_states_the_rule_with_the_numbers_of_the_code():
    text = " ".join((ROOT / "docs" / "theory.md").read_text().split())
    for words in (
        f"`strength` $s$ ({strength.STRENGTH:g})",
        f"`coupling` $c$ ({strength.COUPLING:g})",
        rf"\rVert^2 / {strength.REACH**2:g}$",
        f"starts from {strength.START:g} at the first update",
        f"below {strength.LEARNT:g} of what it was",
        f"beyond {strength.FAR:g} times the median",
        f"above {strength.MOVED:g} of $s_2$",
        f"below 1 / {strength.SMALLER:g} of the widest",
        f"more than {strength.STALLED:g} above its lowest for two updates",
        f"more than {strength.UNDONE:g} above its lowest for two updates",
        f"does not fall below {strength.START:g}",
        rf"above ${strength.RUNAWAY:g}\, s_2$",
    ):
        assert words in text, words
    named = {2.0: ("half",), 3.0: ("triples",), 9.0: ("nine times",), 0.25: ("divided by four",), 4.0: ("a quarter",)}
    named |= {16.0: ("a sixteenth",), 0.9: ("forgotten by a tenth",)}
    constants = ("RISE", "SHRINKING", "OUTLIER", "FALL", "SHRUNK", "COLLAPSED", "FORGET")
    for value in (getattr(strength, name) for name in constants):
        assert all(words in text for words in named[value]), value
