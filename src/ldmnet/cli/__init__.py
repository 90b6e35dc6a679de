"""The command line, `ldmnet`: one module a family of commands, each importing what it needs when it runs."""

from __future__ import annotations

import click

import ldmnet
from ldmnet.cli.experiments import demo, figure, reproduce, study, table
from ldmnet.cli.faces import faces
from ldmnet.cli.options import Sentences
from ldmnet.cli.yourdata import compare, embed, export, predict, train, tune


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(ldmnet.__version__, prog_name="ldmnet")
def main() -> None:
    """Low-dimensional-manifold regularised neural networks."""


for command in (demo, reproduce, study, table, figure, faces, train, predict, embed, compare, tune, export):
    main.add_command(command)
