"""Commands that read records: table, parts and figure."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from ldmnet.cli.options import PICTURE, by_flag, examples, format_option, options_of
from ldmnet.errors import DataError
from ldmnet.runs.sweep import Places

NAMES = click.Choice(("mnist", "svhn", "cifar10", "digits5k", "vgg16", "yaleb", "cufs"))
RESULTS = click.option("--results", type=click.Path(path_type=Path), default=None, help="Folder of records.")


@click.command(
    epilog=examples(
        "ldmnet table mnist",
        "ldmnet table cifar10 --format json",
        "ldmnet table yaleb --leads              what LDMNet has over the other methods, seed by seed",
    )
)
@click.argument("table", shell_complete=NAMES.shell_complete)
@format_option("md", "latex", "csv", "json")
@click.option("--leads", is_flag=True, help="LDMNet's lead over each method, mean and standard error over seeds.")
@RESULTS
def table(table: str, style: str, leads: bool, results: Path | None) -> None:
    """Print a table from the records."""
    from ldmnet.records import format_table, table_rows
    from ldmnet.records.leads import format_leads
    from ldmnet.records.tables import other_data, records_in

    if leads and style != "md":
        raise click.BadParameter(f"--leads is written as md only, not as {style}.")
    with by_flag("--results", DataError):
        records = records_in(results)
    mine = [record for record in records if record.table == table]
    if not mine:
        raise DataError(f"there are no records of a table {table!r} in {results or 'results'}.")
    if all(record.selection == "tried" for record in mine):
        raise DataError(
            f"{table} holds the settings that were tried, judged on validation people, and makes no table. What was "
            f"chosen among them: ldmnet table {table.removesuffix('_tuning')}"
        )
    if strangers := other_data(mine, table):
        click.echo(f"not of the same data as the other rows: {', '.join(strangers)}", err=True)
    if replaced := sum(not record.chosen for record in mine):
        click.echo(f"{replaced} runs of settings that others have replaced are left out", err=True)
    click.echo(format_leads(mine, table) if leads else format_table(table_rows(mine, table), style))  # type: ignore[arg-type]


@click.command(
    epilog=examples(
        "ldmnet parts",
        "ldmnet parts --figure parts.png --results mine",
    )
)
@click.option("--figure", type=PICTURE, default=None, help="Draw them, too.")
@RESULTS
def parts(figure: Path | None, results: Path | None) -> None:
    """Split LDMNet's gain in every table in two: what the pull adds, and what the graph adds."""
    from ldmnet.records.leads import format_parts, parts_of
    from ldmnet.records.tables import records_in

    with by_flag("--results", DataError):
        found = parts_of(records_in(results))
    if not found:
        raise DataError(f"there are no records of LDMNet beside its control in {results or 'results'}.")
    click.echo(format_parts(found))
    if figure is not None:
        from ldmnet.records.figures import parts_figure

        click.echo(str(parts_figure(found, figure)), err=True)


@click.command(
    epilog=examples(
        "ldmnet figure 1 --per-class 100      features of the test images by method (trains what is missing)",
        "ldmnet figure 3                      error and generalisation gap against size, from records",
        "ldmnet figure 3 --table cifar10 --output cifar.png",
    )
)
@click.argument("number", type=click.Choice(["1", "3"]))
@click.option(
    "--table",
    "name",
    default="mnist",
    show_default=True,
    help="Which table's data.",
    shell_complete=NAMES.shell_complete,
)
@click.option("--per-class", default=100, show_default=True, help="Training images per class, for Figure 1.")
@click.option("--seed", default=0, show_default=True, help="For Figure 1.")
@click.option("--output", type=PICTURE, default=None, help="The picture.  [default: figureN.png]")
@options_of(Places, "data_dir", "runs_dir")
@RESULTS
def figure(
    number: str,
    name: str,
    per_class: int,
    seed: int,
    output: Path | None,
    data_dir: Path | None,
    runs_dir: Path,
    results: Path | None,
) -> None:
    """Draw one of the paper's figures."""
    output = output or Path(f"figure{number}.png")
    if number == "3":
        from ldmnet.records.figures import error_figure
        from ldmnet.records.tables import records_in

        with by_flag("--results", DataError):
            records = records_in(results)
        error_figure(records, name, output)
    else:
        from ldmnet.paper.demo import draw_features
        from ldmnet.paper.presets import PRINTED_ROWS, classification_runs

        runs = classification_runs(name, [per_class], PRINTED_ROWS, [seed])
        title = f"{name}: features of the test images after training on {per_class} per class"
        draw_features(runs, output, title, runs_dir=runs_dir, data_dir=data_dir, console=Console(stderr=True))
    click.echo(str(output))
