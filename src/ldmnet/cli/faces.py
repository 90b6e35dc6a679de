"""The command `ldmnet faces`: matching people, or anything else with an identity, across two modalities."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ldmnet.cli.completion import one_of, some_of
from ldmnet.cli.options import comma_list, cores, examples

SPLITS = 10  # of the people, unless another number is asked for


def _rows() -> tuple[str, ...]:
    from ldmnet.matching import METHODS

    return METHODS


@click.command(
    epilog=examples(
        "ldmnet faces --demo                       digits seen by two sensors, under two minutes",
        "ldmnet faces yaleb --data-dir ~/data      Extended Yale B: tune on validation people, then ten splits",
        "ldmnet faces cufs --methods pca,low_rank --splits 3",
        "ldmnet faces yaleb --images 2             the same from two images of each person in each light",
        "ldmnet faces yaleb --study                what helps: features alone, both layers, ...",
        "ldmnet faces mine.npz --gallery VIS --output out",
        "ldmnet faces --casia ~/CASIA --fold all --features vgg.npz",
    )
)
@click.argument(
    "source", metavar="[TABLE|FILE.npz]", required=False, shell_complete=one_of("yaleb", "cufs", files=True)
)
@click.option("--demo", is_flag=True, help="Digits seen by two simulated sensors: no files needed.")
@click.option("--casia", type=click.Path(path_type=Path), help="Folder of CASIA NIR-VIS 2.0, by its own protocol.")
@click.option("--fold", default=None, help="CASIA's fold: 1 to 10, dev or all.  [default: 1]")
@click.option("--features", type=click.Path(path_type=Path), help="CASIA's descriptors, .npz of x and path.")
@click.option("--gallery", default=None, help="The gallery's modality in FILE.npz.  [default: first by name]")
@click.option(
    "--splits", type=click.IntRange(1), default=None, help=f"Splits of the people.  [default: {SPLITS}; demo: 4]"
)
@click.option(
    "--methods", callback=comma_list, default=None, help="Rows of the table.  [default: all]",
    shell_complete=some_of(_rows),
)  # fmt: skip
@click.option(
    "--images", type=click.IntRange(1), default=None,
    help="Train on so many images of each person in a modality, drawn by the split's number.  [default: all]",
)  # fmt: skip
@click.option("--epochs", type=click.IntRange(1), default=None, help="Of SGD.  [default: 200; demo: 80]")
@click.option("--study", is_flag=True, help="Vary LDMNet one thing at a time, on validation people of three splits.")
@click.option("--tune/--no-tune", default=None, help="Choose settings on validation people.  [default: for a TABLE]")
@click.option(
    "--precision", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
    help="Of the networks' passes; bfloat16 is faster on processors that have it.",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=None, help="Runs side by side.  [default: all cores]")
@click.option("--data-dir", type=click.Path(), default=None, help="Folder above faces/.  [default: $LDMNET_DATA]")
@click.option("--runs-dir", type=click.Path(path_type=Path), default="runs", show_default=True, help="A folder a run.")
@click.option("--results", type=click.Path(path_type=Path), default="results", show_default=True, help="Of records.")
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=None,
    help="Folder for Figure 2 and the CMC curves.  [default: none; demo: demo-faces]",
)  # fmt: skip
def faces(
    source: str | None,
    demo: bool,
    casia: Path | None,
    fold: str | None,
    features: Path | None,
    gallery: str | None,
    splits: int | None,
    methods: tuple[str, ...] | None,
    images: int | None,
    epochs: int | None,
    study: bool,
    tune: bool | None,
    precision: Any,
    jobs: int | None,
    data_dir: str | None,
    runs_dir: Path,
    results: Path,
    output: Path | None,
) -> None:
    """Match people across two modalities and compare the methods.

    TABLE is yaleb (light from the front and from the side) or cufs (photos and sketches). FILE.npz holds x, identity,
    modality and perhaps split (train, test, or train, gallery and probe). A person is identified by the nearest
    gallery image by the cosine of the features; without a split nobody who is tested has been trained on.
    """
    from ldmnet.matching import METHODS
    from ldmnet.paper import face_study, faces_demo
    from ldmnet.paper import faces as experiments
    from ldmnet.records.tables import format_study

    if sum((source is not None, demo, casia is not None)) != 1:
        raise click.UsageError("name one of: a TABLE (yaleb, cufs), a FILE.npz, --demo, --casia DIR.")
    if features is not None and casia is None:
        raise click.UsageError("--features goes with --casia; put other descriptors in FILE.npz as x.")
    if images is not None and (demo or study):
        raise click.UsageError("--images goes with neither --demo nor --study, which has variations with fewer images.")
    if study and demo:
        raise click.UsageError("--study needs a TABLE, a FILE.npz or --casia DIR.")
    if study and (methods or tune is not None or output):
        raise click.UsageError("--study varies LDMNet alone and prints a table: no --methods, --tune or --output.")
    if fold is not None and casia is None:
        raise click.UsageError("--fold goes with --casia.")
    if splits is not None and casia is not None:
        raise click.UsageError("--splits does not go with --casia, whose folds are given: choose with --fold.")
    if data_dir is not None and source not in experiments.TABLES:
        raise click.UsageError("--data-dir goes with a TABLE (yaleb, cufs).")
    if gallery is not None and (source is None or source in experiments.TABLES):
        raise click.UsageError("--gallery goes with a FILE.npz: in the others the gallery's modality is given.")
    fold = fold or "1"
    if casia is not None and fold == "dev" and tune:
        raise click.UsageError("--fold dev is what settings are tuned on: --tune goes with folds 1 to 10.")
    console, rows = Console(), tuple(dict.fromkeys(methods or METHODS))
    for row in rows:
        experiments.default_embedding(row)  # an unknown one ends here
    if demo:
        output = output or Path("demo-faces")
        numbers = {"splits": splits or faces_demo.SPLITS, "epochs": epochs or faces_demo.EPOCHS}
        records = faces_demo.run_faces_demo(output=output, console=console, threads=cores(), rows=rows, **numbers)
    else:
        where: dict[str, Any] = {"runs_dir": runs_dir, "results": results, "jobs": jobs or cores()}
        what = experiments.Matching(
            **_what(source, casia, features, fold, gallery, splits, data_dir), **where, features=features,
            epochs=epochs or experiments.EPOCHS, precision=precision, images=images,
        )  # fmt: skip
        if images is not None:
            what = replace(what, table=f"{what.table}-{images}")
        if study:
            click.echo(format_study(face_study.run_face_study(what)))
            return
        tuned = source in experiments.TABLES if tune is None else tune
        records = experiments.run_matching(what, rows, tuned=tuned)
    console.print(summary(records))
    for note in dict.fromkeys(record["data_note"] for record in records if record["data_note"]):
        console.print(f"Note: {note}.", highlight=False, soft_wrap=True)
    for picture in experiments.draw(records, output) if output else ():
        console.print(str(picture), highlight=False, soft_wrap=True)


def _what(
    source: str | None,
    casia: Path | None,
    features: Path | None,
    fold: str,
    gallery: str | None,
    splits: int | None,
    data_dir: str | None,
) -> dict[str, Any]:
    """Table, data, splits and place of what is matched."""
    from ldmnet.data.faces import read_match_npz
    from ldmnet.matching.casia import FOLDS
    from ldmnet.paper.faces import TABLES

    if casia is not None:
        if fold not in (*FOLDS, "all"):
            raise click.BadParameter(f"--fold is 1 to 10, dev or all, got {fold}.")
        folds = range(1, 11) if fold == "all" else [FOLDS.index(fold)]
        name = "casia" if features is None else f"casia-{features.stem}"
        return {"table": name, "data": "casia", "splits": folds, "data_dir": casia}
    if source in TABLES:
        return {"table": source, "data": source, "splits": range(splits or SPLITS), "data_dir": data_dir}
    assert source is not None
    if not source.endswith(".npz"):
        raise click.BadParameter(f"there is no table {source!r}. Name {' or '.join(TABLES)}, or an .npz file.")
    given = read_match_npz(source, gallery).split is not None
    name = f"faces-{Path(source).stem}"
    if given and splits is not None:
        raise click.UsageError(f"--splits does not go with {source}, whose split is given.")
    splits_here = [0] if given else range(splits or SPLITS)
    return {"table": name, "data": "npz", "splits": splits_here, "data_dir": source, "gallery": gallery}


def summary(records: Sequence[dict[str, Any]]) -> Table:
    """Rank-1 and verification of every method, mean and deviation over the splits."""
    from ldmnet.paper.faces import row_title

    first = records[0]
    left_out = f", {first['left_out']} more of people outside it" if first["left_out"] else ""
    table = Table(
        title=f"{first['table']}: {first['n_test']} probes ({first['modalities'][1]}) against a gallery of "
        f"{first['n_gallery']} ({first['modalities'][0]}){left_out}",
        caption="Accepted at 1 % and 0.1 % false accepts. Means over the splits, ± their standard deviation.",
    )
    table.add_column("method")
    for column in ("rank-1 %", "at 1 %", "at 0.1 %", "splits"):
        table.add_column(column, justify="right")
    table.add_column("settings")
    by_row: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_row.setdefault(record["method"], []).append(record)
    went_well = [found for found in by_row.values() if not any("diverged" in record for record in found)]
    best = max((statistics.fmean(r["accuracy"] for r in found) for found in went_well), default=None)
    for found in by_row.values():
        title, splits, settings = row_title(found[0]), str(len(found)), found[0]["selection"]
        if found not in went_well:  # a mean over the others would flatter
            diverged = sum("diverged" in record for record in found)
            table.add_row(title, "diverged", "", "", splits, f"{settings}, {diverged} diverged")
            continue
        accuracy = [record["accuracy"] for record in found]
        mean = statistics.fmean(accuracy)
        cell = f"[bold]{mean:.1f}[/]" if mean == best else f"{mean:.1f}"
        cell += f" ± {statistics.stdev(accuracy):.1f}" if len(accuracy) > 1 else ""
        rates = []
        for rate in ("0.01", "0.001"):
            shares = [r["verification"][rate] for r in found if r["verification"][rate] is not None]
            rates.append(f"{statistics.fmean(shares):.1f}" if shares else "")
        table.add_row(title, cell, *rates, splits, settings)
    return table


@click.command(
    epilog=examples(
        "ldmnet describe cufs --output cufs-dlib.npz          then: ldmnet faces cufs-dlib.npz --gallery photo --tune",
        "ldmnet describe mine.npz --output mine-dlib.npz      images in x: (n, height, width) or (n, height, width, 3)",
    )
)
@click.argument("source", metavar="TABLE|FILE.npz", shell_complete=one_of("yaleb", "cufs", files=True))
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The .npz to write.")
@click.option("--data-dir", type=click.Path(), default=None, help="Folder above faces/.  [default: $LDMNET_DATA]")
def describe(source: str, output: Path, data_dir: str | None) -> None:
    """Turn images of faces into descriptors of a pretrained network, for `ldmnet faces`.

    dlib finds and aligns each face and its ResNet gives 128 numbers: what the paper takes VGG-face for. The weights
    come with the package face_recognition_models, under CC0.
    """
    import torch

    from ldmnet.data.faces import load_match_table, read_match_npz, save_match_npz
    from ldmnet.errors import DataError
    from ldmnet.files import written_whole
    from ldmnet.matching.descriptors import DlibDescriptor
    from ldmnet.matching.embeddings import extract
    from ldmnet.paper.faces import TABLES

    if output.suffix != ".npz":
        raise click.BadParameter(f"--output must end in .npz, got {output}.")
    if source not in TABLES and not source.endswith(".npz"):
        raise DataError(f"there is no table {source!r}. Name {' or '.join(TABLES)}, or an .npz file.")
    extractor = DlibDescriptor()

    def described(images: Any) -> torch.Tensor:
        extractor.align(torch.from_numpy(images))
        return extract(extractor, torch.from_numpy(images), batch_size=16)

    table = (
        load_match_table(source, data_dir, described)
        if source in TABLES
        else read_match_npz(source, describe=described)
    )
    how = "as the others are" if extractor.common else "from their middle"
    missed = f"no face was detected in {extractor.undetected} of {len(table.x)} images, which were aligned {how}"
    notes = [note for note in (table.note, missed if extractor.undetected else "") if note]
    with written_whole(output) as place:
        save_match_npz(replace(table, note="; ".join(notes)), place)
    click.echo("; ".join([f"{output}: {len(table.x)} descriptors", *notes]))
