"""The command line, `ldmnet`: one module per family of commands, each importing what it needs when it runs."""

from __future__ import annotations

import click

import ldmnet
from ldmnet.cli.answers import embed, export, predict
from ldmnet.cli.experiments import demo, reproduce, study
from ldmnet.cli.launched import follow
from ldmnet.cli.match import match
from ldmnet.cli.options import Sentences, examples
from ldmnet.cli.report import report
from ldmnet.cli.tables import figure, parts, table
from ldmnet.cli.verify import verify
from ldmnet.cli.yourdata import compare, train, tune


@click.group(
    cls=Sentences,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "ldmnet demo --quick                               a glimpse in half a minute, no files needed",
        "ldmnet train photos --test-share 0.2              your images, one folder per class",
        "ldmnet compare photos                             against weight decay and DropOut",
        "ldmnet predict run new-photos --output found.csv",
        "ldmnet reproduce mnist --per-class 50             a row of the paper's table",
        "ldmnet train --help                               every command has examples",
    ),
)
@click.version_option(ldmnet.__version__, prog_name="ldmnet")
@click.pass_context
def main(context: click.Context) -> None:
    """Low-dimensional-manifold regularised neural networks."""
    follow(context.invoked_subcommand)


COMMANDS = {  # with the words of `ldmnet --help`, which fit a line of 80 characters
    demo: "Train five methods on 500 digits and write a report of it.",
    reproduce: "Run the cells of one of the paper's tables.",
    study: "Vary what the paper leaves unsaid, one thing at a time.",
    table: "Print a table from the records.",
    parts: "Split LDMNet's gain in two: the pull's part and the graph's.",
    figure: "Draw one of the paper's figures.",
    match: "Match people across the two modalities of your file.",
    train: "Train a network on your images, table or arrays.",
    predict: "Write the class and probabilities of each sample.",
    embed: "Write the features of each sample.",
    compare: "Compare the methods on your data over repeated splits.",
    tune: "Choose strength and coupling for your data.",
    export: "Write a trained network as an ONNX file.",
    report: "Write one HTML page about runs.",
    verify: "Train a run again and compare.",
}
for command, words in COMMANDS.items():
    command.short_help = words
    main.add_command(command)
