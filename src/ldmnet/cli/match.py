"""`ldmnet match`: people, or anything else with an identity, across the two modalities of a user's file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ldmnet.cli.options import FOLDER, Listed, examples, options_of, together
from ldmnet.matching import METHODS, read_match_npz
from ldmnet.records import Record
from ldmnet.runs.matching import Matching, run_matching
from ldmnet.runs.sweep import Places
from ldmnet.training.settings import Precision

BY_SPLIT = 10  # splits of the people, unless another number is asked for


matched_options = together(
    options_of(
        Matching,
        "images",
        "precision",
        images={"type": click.IntRange(1)},
        precision={"default": None, "show_default": False},
    ),
    click.option("--epochs", type=click.IntRange(1), default=None, help="Of SGD, for faces.  [default: 200]"),
    click.option("--tune/--no-tune", default=None, help="Choose settings on validation people, for faces."),
    click.option("--output", type=FOLDER, default=None, help="Folder for Figure 2 and the CMC curves."),
)


@click.command(
    epilog=examples(
        "ldmnet match mine.npz --gallery VIS --output out",
        "ldmnet match mine.npz --tune --splits 5 --methods pca,triplet,control,ldmnet_tuned",
    )
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.npz")
@options_of(Matching, "gallery")
@click.option("--splits", type=click.IntRange(1), default=None, help=f"Splits of the people.  [default: {BY_SPLIT}]")
@click.option("--methods", type=Listed(*METHODS), default=None, help="Rows of the table.  [default: all]")
@matched_options
@options_of(Places, "jobs", "runs_dir", "results", jobs={"type": click.IntRange(1)})
def match(
    file: Path,
    gallery: str | None,
    splits: int | None,
    methods: tuple[str, ...] | None,
    images: int | None,
    precision: Precision | None,
    output: Path | None,
    epochs: int | None,
    tune: bool | None,
    **places: Any,
) -> None:
    """Match people across the two modalities of FILE.npz and compare the methods.

    The file holds x, identity, modality and perhaps split (train, test, or train, gallery and probe). A person is
    identified by the nearest gallery image by the cosine of the features; without a split nobody who is tested has
    been trained on.
    """
    if file.suffix != ".npz":
        raise click.BadParameter(f"FILE must end in .npz, got {file}.")
    given = read_match_npz(file, gallery).split is not None
    if given and splits is not None:
        raise click.UsageError(f"--splits does not go with {file}, whose split is given.")
    what = Matching(
        f"match-{file.stem}" if images is None else f"match-{file.stem}-{images}",
        "npz",
        [0] if given else range(splits or BY_SPLIT),
        gallery=gallery,
        images=images,
        precision=precision or "float32",
        places=Places(data_dir=file, **places),
    )
    show_matched(match_rows(what, methods, epochs, bool(tune)), output, Console())


def match_rows(
    what: Matching,
    methods: tuple[str, ...] | None,
    epochs: int | None,
    tuned: bool,
    printed: Callable[[str], float | None] | None = None,
) -> list[Record]:
    """The records of some rows, with the paper's settings or with tuned ones."""
    from ldmnet.paper import faces

    rows, epochs = tuple(dict.fromkeys(methods or METHODS)), epochs or faces.EPOCHS
    starts, grids = faces.starts(rows, epochs), faces.grids(rows, epochs) if tuned else {}
    return run_matching(what, starts, grids, printed=printed or (lambda row: None))


def show_matched(records: Sequence[Record], output: Path | None, console: Console) -> None:
    """Print the table of matching, what is odd about the data, and where the pictures are."""
    from ldmnet.records.matched import HEAD, draw, heading, matched_rows

    caption = "Accepted at 1 % and 0.1 % false accepts. Means over the splits, ± their standard deviation."
    table = Table(title=escape(heading(records)), caption=caption)
    for column in HEAD:
        table.add_column(column, justify="left" if column in ("method", "settings") else "right")
    for best, cells in matched_rows(records):
        number, plus, spread = cells[1].partition(" ±")
        table.add_row(cells[0], f"[bold]{number}[/]{plus}{spread}" if best else cells[1], *cells[2:])
    console.print(table)
    for note in dict.fromkeys(record.data_note for record in records if record.data_note):
        console.print(f"Note: {note}.", highlight=False, markup=False, soft_wrap=True)
    for picture in draw(records, output) if output else ():
        console.print(str(picture), highlight=False, markup=False, soft_wrap=True)
