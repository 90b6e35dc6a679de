"""The command line, `ldmnet`: one module a family of commands, each importing what it needs when it runs."""

from __future__ import annotations

import click

import ldmnet
from ldmnet.cli.completion import completion
from ldmnet.cli.experiments import demo, figure, parts, reproduce, study, table
from ldmnet.cli.faces import describe, faces
from ldmnet.cli.options import Sentences, examples
from ldmnet.cli.report import report
from ldmnet.cli.yourdata import compare, embed, export, predict, train, tune
from ldmnet.training.memory import keep_freed_memory


@click.group(
    cls=Sentences,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "ldmnet demo --quick                               a glimpse in half a minute, no files needed",
        "ldmnet train photos --test-share 0.2              your images, one folder a class",
        "ldmnet compare photos                             against weight decay and DropOut",
        "ldmnet predict run new-photos --output found.csv",
        "ldmnet reproduce mnist --per-class 50             a row of the paper's table",
        "ldmnet train --help                               every command has examples",
    ),
)
@click.version_option(ldmnet.__version__, prog_name="ldmnet")
def main() -> None:
    """Low-dimensional-manifold regularised neural networks."""
    keep_freed_memory()


COMMANDS = (
    demo,
    reproduce,
    study,
    table,
    parts,
    figure,
    faces,
    describe,
    train,
    predict,
    embed,
    compare,
    tune,
    export,
    report,
    completion,
)
for command in COMMANDS:
    main.add_command(command)
