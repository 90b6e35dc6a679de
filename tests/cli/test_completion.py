"""Completion by the shell: the scripts, and what click answers when a script asks it."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.training.methods import METHODS
from ldmnet.training.rivals import RIVALS

SHELLS = ["bash", "zsh", "fish"]


def offered(shell, *words):
    """What the protocol of a shell's script answers where the last of some words is not finished."""
    line = " ".join(["ldmnet", *words])
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words))},
        "zsh": {"COMP_WORDS": line, "COMP_CWORD": str(len(words))},
        "fish": {"COMP_WORDS": line, "COMP_CWORD": words[-1]},
    }[shell]
    result = CliRunner().invoke(main, [], prog_name="ldmnet", env={**asked, "_LDMNET_COMPLETE": f"{shell}_complete"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_the_shells(shell):
    script = CliRunner().invoke(main, [], prog_name="ldmnet", env={"_LDMNET_COMPLETE": f"{shell}_source"}).stdout
    assert f"_LDMNET_COMPLETE={shell}_complete" in script
    assert "ldmnet" in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n" if shell != "fish" else "--no-execute"], input=script, text=True, check=True)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tr"], ["train"]),
        (["e"], ["embed", "export"]),
        (["train", "photos", "--test"], ["--test-share"]),
        (["tune", "photos", "--test"], ["--test-share"]),
        (["train", "photos", "--method", ""], (*METHODS, *RIVALS)),
        (["train", "photos", "--net", "c"], ["cifar"]),
        (["reproduce", "s"], ["svhn"]),
        (["table", "ci"], ["cifar10"]),
        (["table", "mnist", "--format", "la"], ["latex"]),
        (["compare", "photos", "--methods", "none,dr"], ["none,dropout"]),
        (["reproduce", "mnist", "--methods", "ldmnet,no"], ["ldmnet,none", "ldmnet,none_tuned"]),
        (["reproduce", "ya"], ["yaleb"]),
        (["match", "mine.npz", "--methods", "tri"], ["triplet"]),
    ],
    ids=lambda part: " ".join(part),
)
def test_what_is_offered(shell, words, wanted):
    out = offered(shell, *words)
    if shell == "bash":
        assert out.splitlines() == [f"plain,{word}" for word in wanted]
    elif shell == "fish":
        assert [line.split(",", 1)[1].split("\t")[0] for line in out.splitlines()] == list(wanted)
    else:
        assert out.splitlines()[1::3] == list(wanted)


def test_every_command_and_every_option_is_offered():
    complete = get_completion_class("bash")(main, {}, "ldmnet", "_LDMNET_COMPLETE")
    assert {item.value for item in complete.get_completions([], "")} == set(main.commands)
    for name, command in main.commands.items():
        given = {item.value for item in complete.get_completions([name], "--")}
        assert given == {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o[:2] == "--"} | {"--help"}


def test_files_are_left_to_the_shell():
    assert offered("bash", "train", "pho").startswith("file,")
    assert offered("bash", "match", "mine.n").startswith("file,")


@pytest.mark.slow
def test_bash_completes_with_the_script(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "ldmnet").write_text(f'#!/bin/sh\nexec {sys.executable} -m ldmnet "$@"\n')
    (tmp_path / "ldmnet").chmod(0o755)
    ask = (
        'complete() { :; }; compopt() { :; }; eval "$(_LDMNET_COMPLETE=bash_source ldmnet)"; '
        "COMP_WORDS=(ldmnet reproduce cif); COMP_CWORD=2; _ldmnet_completion ldmnet; echo ${COMPREPLY[@]}"
    )
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "--norc", "-c", ask], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.strip() == "cifar10", done.stderr
