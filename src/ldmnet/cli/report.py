"""The command `ldmnet report`: runs to one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from ldmnet.cli.answers import refuse_over
from ldmnet.cli.options import PAGE, examples


@click.command(
    epilog=examples(
        "ldmnet report demo                             the demo's folder",
        "ldmnet report run other-run -o both.html       folders that train wrote, side by side",
        "ldmnet report comparison                       the folder that compare wrote",
        "ldmnet report results/mnist.jsonl runs         records, and what reproduce --snapshots kept",
    )
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUNS...")
@click.option("-o", "--output", type=PAGE, default="report.html", show_default=True, help="The page.")
def report(runs: tuple[Path, ...], output: Path) -> None:
    """Write one HTML page about RUNS: run folders, or files of records (*.jsonl).

    The data, its sizes and the command; results beside the paper's numbers; which classes are confused; learning
    curves; the features as they move over the epochs; the solver's health; settings and versions. The page needs no
    network.
    """
    from ldmnet.report import write_report

    refuse_over(output, *(path for path in runs if path.is_file()))
    click.echo(str(write_report(runs, output)))
