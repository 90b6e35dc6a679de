"""Commands around the paper's experiments: demo, reproduce, study, table, parts and figure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from ldmnet.cli.completion import one_of, some_of
from ldmnet.cli.options import PICTURE, comma_list, cores, examples, integers
from ldmnet.errors import DataError, MissingExtraError

Command = Callable[..., None]
TRIED = "_tuning"  # behind a table's name: the records of what its settings were chosen from
TABLES = ("mnist", "svhn", "cifar10", "digits5k", "vgg16")


def _rows() -> tuple[str, ...]:
    from ldmnet.paper.presets import rows_of
    from ldmnet.paper.vgg import ROWS

    return (*rows_of("mnist"), *(row for row in ROWS if row not in rows_of("mnist")))


def seeds_option(default: int) -> Callable[[Command], Command]:
    """--seeds."""
    return click.option("--seeds", type=click.IntRange(1), default=default, show_default=True, help="How many, from 0.")


def where_options(command: Command) -> Command:
    """--jobs, --data-dir, --runs-dir, --results: how many runs at a time, and where things are."""
    for option in (
        click.option(
            "--results", type=click.Path(path_type=Path), default="results", show_default=True, help="Of records."
        ),
        click.option(
            "--runs-dir", type=click.Path(path_type=Path), default="runs", show_default=True, help="A folder a run."
        ),
        click.option("--data-dir", type=click.Path(), default=None, help="Where the data is.  [default: $LDMNET_DATA]"),
        click.option("--jobs", type=click.IntRange(1), default=None, help="Runs side by side.  [default: all cores]"),
    ):
        command = option(command)
    return command


@click.command(
    epilog=examples(
        "ldmnet demo               the paper's 300 epochs, a few minutes on two cores",
        "ldmnet demo --quick       a glimpse in half a minute",
        "ldmnet demo --seed 3 --output out",
    )
)
@click.option("--quick", is_flag=True, help="Fewer epochs: under 30 seconds.")
@click.option("--seed", default=0, show_default=True, help="Of the subset, the weights and the batches.")
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default="demo", show_default=True,
    help="Folder for the report, the picture and the records.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=None, help="Torch threads.  [default: all cores]")
def demo(quick: bool, seed: int, output: Path, threads: int | None) -> None:
    """Train five methods on 500 handwritten digits, show who overfits, and write a report of it."""
    from ldmnet.paper.demo import run_demo
    from ldmnet.report import write_report

    console = Console()
    run_demo(quick=quick, seed=seed, output=output, threads=threads or cores(), console=console)
    try:
        page = write_report([output], output / "report.html")
    except MissingExtraError as error:
        console.print(f"No report was written: {error}", soft_wrap=True, highlight=False, markup=False)
    else:
        console.print(f"Curves, features by epoch, settings: {page.resolve()}", soft_wrap=True, highlight=False)


@click.command(
    epilog=examples(
        "ldmnet reproduce mnist --per-class 50,100",
        "ldmnet reproduce cifar10 --per-class 50 --methods dropout,control,ldmnet --seeds 3",
        "ldmnet reproduce digits5k --data-dir ~/data",
        "ldmnet reproduce vgg16 --seeds 1",
    )
)
@click.argument("table", type=click.Choice(TABLES))
@click.option("--per-class", callback=comma_list, default=None, help="Training sizes.  [default: 50]")
@click.option(
    "--methods", callback=comma_list, default=None, help="Rows of the table.  [default: all]",
    shell_complete=some_of(_rows),
)  # fmt: skip
@click.option("--snapshots", is_flag=True, help="Keep features at ten epochs in each run's folder, for a report.")
@seeds_option(5)
@where_options
def reproduce(
    table: str,
    per_class: tuple[str, ...] | None,
    methods: tuple[str, ...] | None,
    snapshots: bool,
    seeds: int,
    jobs: int | None,
    data_dir: str | None,
    runs_dir: Path,
    results: Path,
) -> None:
    """Run the cells of one of the paper's tables; finished runs are skipped."""
    from ldmnet.paper import presets, vgg
    from ldmnet.records import execute, format_table, sweep_runs, table_rows, unfinished
    from ldmnet.records.runs import WEIGHTS
    from ldmnet.records.snapshots import KEPT

    place, kept = results / f"{table}.jsonl", list(KEPT) if snapshots else []
    sweep = partial(sweep_runs, runs_dir=runs_dir, results=place, data_dir=data_dir)
    if table == "vgg16":
        if per_class is not None:
            raise click.UsageError("--per-class does not go with vgg16, which trains on 10,000 images.")
        rows = [row for row in methods or vgg.ROWS if row != vgg.ROWS[0]]  # the base is trained for any of them
        bases, runs = vgg.base_runs(range(seeds)), vgg.fine_tuning_runs(rows, range(seeds))
        left = unfinished(runs, runs_dir=runs_dir, results=place, files=kept)  # they start from the bases' weights
        work = partial(execute, keep_weights=True, snapshots=snapshots)
        records = sweep(bases, jobs=jobs or 1, work=work, files=[*kept, WEIGHTS] if left else kept)
    else:
        sizes = integers(per_class or ("50",), "--per-class")
        records, runs = [], presets.classification_runs(table, sizes, methods or presets.rows_of(table), range(seeds))
    records += sweep(runs, jobs=jobs or cores(), work=partial(execute, snapshots=snapshots), files=kept)
    click.echo(format_table(table_rows(records, table), "md"))


@click.command(
    epilog=examples(
        "ldmnet study mnist                                       every variation, three seeds",
        "ldmnet study cifar10 --only 'by rule' --only control     some of them",
    )
)
@click.argument("table", type=click.Choice(TABLES[:3]))
@click.option(
    "--only", multiple=True, help="A part of the variations' names; may be given again for more.  [default: all]"
)
@seeds_option(3)
@where_options
def study(
    table: str,
    only: tuple[str, ...],
    seeds: int,
    jobs: int | None,
    data_dir: str | None,
    runs_dir: Path,
    results: Path,
) -> None:
    """Vary what the paper leaves unsaid, one thing at a time, at 50 images a class."""
    from ldmnet.paper.study import study_runs
    from ldmnet.records import sweep_runs
    from ldmnet.records.tables import format_study

    records = sweep_runs(
        study_runs(table, range(seeds), only or None),
        runs_dir=runs_dir,
        results=results / f"study-{table}.jsonl",
        data_dir=data_dir,
        jobs=jobs or cores(),
    )
    click.echo(format_study(records))


@click.command(
    epilog=examples(
        "ldmnet table mnist",
        "ldmnet table cifar10 --format json",
        "ldmnet table yaleb --leads              what LDMNet has over the other methods, seed by seed",
    )
)
@click.argument("table", shell_complete=one_of(*TABLES))
@click.option(
    "--format",
    "style",
    type=click.Choice(["md", "latex", "csv", "json"]),
    default="md",
    show_default=True,
    help="How it is written.",
)
@click.option("--leads", is_flag=True, help="LDMNet's lead over each method, mean and standard error over seeds.")
@click.option("--results", type=click.Path(path_type=Path), default=None, help="Folder of records.")
def table(table: str, style: str, leads: bool, results: Path | None) -> None:
    """Print a table from the records."""
    from ldmnet.records import format_table, table_rows
    from ldmnet.records.leads import format_leads
    from ldmnet.records.tables import other_data, records_in

    if leads and style != "md":
        raise click.BadParameter(f"--leads is written as md only, not as {style}.")
    records = records_in(results)
    if table.endswith(TRIED):
        raise DataError(
            f"{table} holds the settings that were tried, judged on validation people, and makes no table. What was "
            f"chosen among them: ldmnet table {table.removesuffix(TRIED)}"
        )
    rows = table_rows(records, table)
    if not rows:
        raise DataError(f"there are no records of a table {table!r} in {results or 'results'}.")
    if strangers := other_data(records, table):
        click.echo(f"not of the same data as the other rows: {', '.join(strangers)}", err=True)
    older = sum(record["table"] == table for record in records) - sum(row.seeds for row in rows)
    if older:
        click.echo(f"{older} older runs, of other settings or of the same seeds, are left out", err=True)
    if leads:
        click.echo(format_leads(records, table))
        return
    click.echo(format_table(rows, style))  # type: ignore[arg-type]


@click.command(
    epilog=examples(
        "ldmnet parts",
        "ldmnet parts --figure parts.png --results mine",
    )
)
@click.option("--figure", type=PICTURE, default=None, help="Draw them, too.")
@click.option("--results", type=click.Path(path_type=Path), default=None, help="Folder of records.")
def parts(figure: Path | None, results: Path | None) -> None:
    """Split LDMNet's gain in every table in two: what the pull adds, and what the graph adds."""
    from ldmnet.records.leads import format_parts, parts_of
    from ldmnet.records.tables import records_in

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
    "--table", "name", default="mnist", show_default=True, help="Which table's data.", shell_complete=one_of(*TABLES)
)
@click.option("--per-class", default=100, show_default=True, help="Training images a class, for Figure 1.")
@click.option("--seed", default=0, show_default=True, help="For Figure 1.")
@click.option("--output", type=PICTURE, default=None, help="The picture.  [default: figureN.png]")
@click.option("--data-dir", type=click.Path(), default=None, help="Where the data is.  [default: $LDMNET_DATA]")
@click.option("--runs-dir", type=click.Path(path_type=Path), default="runs", show_default=True, help="A folder a run.")
@click.option("--results", type=click.Path(path_type=Path), default=None, help="Folder of records, for Figure 3.")
def figure(
    number: str,
    name: str,
    per_class: int,
    seed: int,
    output: Path | None,
    data_dir: str | None,
    runs_dir: Path,
    results: Path | None,
) -> None:
    """Draw one of the paper's figures."""
    output = output or Path(f"figure{number}.png")
    if number == "3":
        from ldmnet.records.figures import error_figure
        from ldmnet.records.tables import records_in

        error_figure(records_in(results, "n_train"), name, output)
    else:
        from ldmnet.paper.figure1 import draw_features

        draw_features(name, per_class, seed, output, runs_dir=runs_dir, data_dir=data_dir, console=Console(stderr=True))
    click.echo(str(output))
