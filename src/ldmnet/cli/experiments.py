"""Commands that make the paper's experiments: demo, reproduce and study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from ldmnet.cli.match import BY_SPLIT, match_rows, matched_options, show_matched
from ldmnet.cli.options import FOLDER, Decorator, Listed, by_flag, examples, options_of
from ldmnet.errors import InputError, MissingExtraError, StateError
from ldmnet.matching import METHODS
from ldmnet.matching.casia import FOLDS
from ldmnet.paper import faces, presets, vgg
from ldmnet.paper.presets import rows_of
from ldmnet.runs.matching import Matching
from ldmnet.runs.sweep import Kept, Places, cores
from ldmnet.training.settings import Precision, slow_bfloat16

SIZED = ("mnist", "svhn", "cifar10", "digits5k")
CLASSIFIED = (*SIZED, "vgg16")
MATCHED = ("yaleb", "cufs", "casia")
BY_SEED = 5  # seeds, unless another number is asked for
STUDIED = ("mnist", "svhn", "cifar10", "yaleb", "cufs")


ROWS = dict.fromkeys((*rows_of("mnist"), *vgg.ROWS, *METHODS))


def _seeds(default: str) -> Decorator:
    return click.option(
        "--seeds", type=click.IntRange(1), default=None, help=f"How many seeds or splits, from 0.  [default: {default}]"
    )


where_options = options_of(Places, jobs={"type": click.IntRange(1)})


@click.command(
    epilog=examples(
        "ldmnet demo               the paper's 300 epochs, a few minutes on two cores",
        "ldmnet demo --quick       a glimpse in half a minute",
        "ldmnet demo --faces       matching: digits seen by two sensors, under two minutes",
        "ldmnet demo --seed 3 --output out",
    )
)
@click.option("--quick", is_flag=True, help="Fewer epochs: under 30 seconds.")
@click.option("--faces", is_flag=True, help="Match digits that two simulated sensors see.")
@click.option("--seed", type=int, default=None, help="Of the subset, the weights and the batches.  [default: 0]")
@click.option(
    "--output", type=FOLDER, default=None,
    help="Folder for the report, the pictures and the records.  [default: demo, or demo-faces]",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=None, help="Torch threads.  [default: all cores]")
def demo(quick: bool, faces: bool, seed: int | None, output: Path | None, threads: int | None) -> None:
    """Train five methods on 500 handwritten digits, show who overfits, and write a report of it."""
    from ldmnet.paper import demo as demos
    from ldmnet.report import write_report

    console, output, threads = Console(), output or Path("demo-faces" if faces else "demo"), threads or cores()
    if faces and seed is not None:
        raise click.UsageError("--seed does not go with --faces, whose splits have one each.")
    with by_flag("--output", StateError):
        if faces:
            matched = demos.run_faces_demo(quick=quick, output=output, threads=threads, console=console)
            show_matched(matched, output, console)
            return
        records = demos.run_demo(quick=quick, seed=seed or 0, output=output, threads=threads, console=console)
    _print_accuracies(records, console)
    try:
        page = write_report([output], output / "report.html")
    except MissingExtraError as error:
        console.print(f"No report was written: {error}", soft_wrap=True, highlight=False, markup=False)
    else:
        console.print(f"Curves, features by epoch, settings: {page.resolve()}", soft_wrap=True, highlight=False)


def _print_accuracies(records: list[Any], console: Console) -> None:
    from rich.table import Table

    from ldmnet.palette import title_of

    table = Table(title="Test accuracy, 50 images per class")
    table.add_column("method")
    table.add_column("here", justify="right")
    table.add_column("paper (MNIST's 10,000)", justify="right")
    best = max((record.score for record in records if record.score is not None), default=None)
    for record in records:
        here = "diverged" if record.score is None else f"{record.score:.2f} %"
        printed = "" if record.paper is None else f"{record.paper:.2f} %"
        table.add_row(title_of(record.method), f"[bold]{here}[/]" if record.score == best else here, printed)
    console.print(table)


@click.command(
    epilog=examples(
        "ldmnet reproduce mnist --per-class 50,100",
        "ldmnet reproduce cifar10 --per-class 50 --methods dropout,control,ldmnet --seeds 3",
        "ldmnet reproduce digits5k --data-dir ~/data",
        "ldmnet reproduce vgg16 --seeds 1",
        "ldmnet reproduce vgg16 --images 50000        all of CIFAR-10, not its first 10,000 images",
        "ldmnet reproduce yaleb --data-dir ~/data      faces: tune on validation people, then ten splits",
        "ldmnet reproduce yaleb --images 2             from two images of each person in each light",
        "ldmnet reproduce casia --data-dir ~/CASIA --fold all --features vgg.npz",
    )
)
@click.argument("table", type=click.Choice((*CLASSIFIED, *MATCHED)))
@click.option("--per-class", type=Listed(), default=None, help="Training sizes.  [default: 50]")
@click.option("--methods", type=Listed(*ROWS), default=None, help="Rows of the table.  [default: all]")
@options_of(Kept, "snapshots")
@_seeds("5, or 10 splits of the people")
@matched_options
@click.option("--fold", default=None, help="CASIA's fold: 1 to 10, dev or all.  [default: 1]")
@click.option("--features", type=click.Path(path_type=Path), help="CASIA's descriptors, .npz of x and path.")
@where_options
def reproduce(
    table: str,
    methods: tuple[str, ...] | None,
    seeds: int | None,
    jobs: int | None,
    data_dir: Path | None,
    runs_dir: Path,
    results: Path,
    **given: Any,
) -> None:
    """Run the cells of one of the paper's tables; finished runs are skipped.

    Faces are matched across two modalities: yaleb has light from the front and from the side, cufs photos and sketches,
    casia near infrared and visible light, by its own protocol. People who are tested have not been trained on.

    The network of vgg16 trains on the first 10,000 images of CIFAR-10; --images is there how many of all.
    """
    known = [*(["per_class", "precision"] if table in SIZED else ["images"]), "snapshots"]
    if table in MATCHED:
        known = ["images", "precision", "epochs", "tune", "output", *(["fold", "features"] if table == "casia" else [])]
    source = click.get_current_context().get_parameter_source
    for name in given:
        if name not in known and source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with {table}.")
    where = Places(jobs, data_dir, runs_dir, results)
    if table not in MATCHED:
        sizes, kept = given["per_class"] or ("50",), Kept(snapshots=given["snapshots"])
        if table == "vgg16":
            _reproduce_vgg(given["images"] or vgg.IMAGES, methods, seeds or BY_SEED, kept, where)
        else:
            _reproduce_table(table, sizes, methods, seeds or BY_SEED, given["precision"], kept, where)
        return
    what = replace(_matching(table, seeds, where, **given), precision=given["precision"] or "float32")
    casia, tune = table == "casia", given["tune"]
    if casia and tune and list(what.splits) == [0]:
        raise click.UsageError("--fold dev is what settings are tuned on: --tune goes with folds 1 to 10.")
    printed = faces.printed if what.features is not None else None
    records = match_rows(what, methods, given["epochs"], not casia if tune is None else tune, printed)
    show_matched(records, given["output"], Console())


def _reproduce_vgg(images: int, methods: tuple[str, ...] | None, seeds: int, kept: Kept, where: Places) -> None:
    from ldmnet.runs import sweep_runs, unfinished

    rows = [row for row in methods or vgg.ROWS if row != vgg.ROWS[0]]  # the base is trained for any of them
    bases, runs = vgg.base_runs(range(seeds), images), vgg.fine_tuning_runs(rows, range(seeds), images)
    table = vgg.table_of(images)
    left = unfinished(runs, table, where, kept)  # they start from the bases' weights
    kept_bases = replace(kept, weights=True) if left else kept
    records = sweep_runs(bases, table, replace(where, jobs=where.jobs or 1), kept=kept_bases)
    _print_table([*records, *sweep_runs(runs, table, where, kept=kept)], table)


def _reproduce_table(
    table: str,
    per_class: tuple[str, ...],
    methods: tuple[str, ...] | None,
    seeds: int,
    precision: Precision | None,
    kept: Kept,
    where: Places,
) -> None:
    from ldmnet.runs import sweep_runs, unfinished

    try:
        sizes = [int(part) for part in per_class]
    except ValueError as error:
        raise click.BadParameter(f"--per-class takes whole numbers, got {','.join(per_class)}.") from error
    runs = presets.classification_runs(table, sizes, methods or rows_of(table), range(seeds), precision=precision)
    half = any(run.settings.train.precision == "bfloat16" for run in runs)
    if half and slow_bfloat16() and unfinished(runs, table, where):
        click.echo(
            "note: this processor has no bfloat16 products, which makes these runs several times slower than "
            "--precision float32 would. Runs of both do not share a table's cell.",
            err=True,
        )
    _print_table(sweep_runs(runs, table, where, kept=kept), table)


def _print_table(records: list[Any], table: str) -> None:
    from ldmnet.records import format_table, table_rows

    click.echo(format_table(table_rows(records, table), "md"))


def _matching(
    table: str,
    seeds: int | None,
    where: Places,
    *,
    fold: str | None = None,
    features: Path | None = None,
    images: int | None = None,
    **_: Any,
) -> Matching:
    splits, name = range(seeds or BY_SPLIT), table
    if table == "casia":
        if seeds is not None:
            raise click.UsageError("--seeds does not go with casia, whose folds are given: choose with --fold.")
        if where.data_dir is None:
            raise click.UsageError("casia needs --data-dir, the folder of CASIA NIR-VIS 2.0.")
        fold = fold or "1"
        if fold not in (*FOLDS, "all"):
            raise click.BadParameter(f"--fold is 1 to 10, dev or all, got {fold}.")
        splits = range(1, 11) if fold == "all" else range(FOLDS.index(fold), FOLDS.index(fold) + 1)
        name = "casia" if features is None else f"casia-{features.stem}"
    name = name if images is None else f"{name}-{images}"
    return Matching(name, table, splits, images=images, features=features, places=where)


@click.command(
    epilog=examples(
        "ldmnet study mnist                                          every variation, three seeds",
        "ldmnet study cifar10 --only 'by default' --only control     some of them",
        "ldmnet study yaleb                                          faces, judged on validation people",
    )
)
@click.argument("table", type=click.Choice(STUDIED))
@click.option(
    "--only", multiple=True, help="A part of the variations' names; may be given again for more.  [default: all]"
)
@_seeds("3")
@where_options
def study(table: str, only: tuple[str, ...], seeds: int | None, **places: Any) -> None:
    """Vary what the paper leaves unsaid, one thing at a time.

    Classification is studied at 50 images per class and judged on validation images, matching on validation people.
    """
    from ldmnet.paper import face_study
    from ldmnet.paper.study import study_runs
    from ldmnet.records.tables import format_study
    from ldmnet.runs import sweep_runs

    where, name = Places(**places), f"study-{table}"
    with by_flag("--only", InputError):
        if table in MATCHED:
            what = _matching(table, seeds or 3, where)
            runs: list[Any] = list(face_study.face_study_runs(what, only))
        else:
            runs = list(study_runs(table, range(seeds or 3), only))
    first = face_study.VARIATIONS[0].name if table in MATCHED else "as printed"
    click.echo(format_study(sweep_runs(runs, name, where), first))
