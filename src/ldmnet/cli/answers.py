"""Commands that ask a trained network: predict, embed, export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from ldmnet.cli.options import FEATURES, ONNX, RefusalError, examples
from ldmnet.data.readers import is_image, listed_faults
from ldmnet.data.userdata import Samples
from ldmnet.runs.run import RECORD, RUN_FILES
from ldmnet.runs.trained import TrainedRun, UntrustedError, export_onnx, load_run

DATA = click.argument("data", type=click.Path(path_type=Path))
RUN = click.argument("run", type=click.Path(path_type=Path))
FILE = click.Path(path_type=Path, dir_okay=False)
OWN_NET = click.option("--net", default=None, help="Repeat the run's network if it is your own code.")


def tell_reading(samples: Samples) -> None:
    """Say what was left out because it cannot be read, and what was read otherwise than one may think."""
    for note in samples.notes:
        click.echo(note, err=True)
    if samples.skipped:
        n = len(samples.skipped)
        words = f"skipped {n} of {n + len(samples.x)} images that cannot be read: {listed_faults(samples.skipped, 20)}"
        click.echo(words, err=True)


def _loaded(run: Path, net: str | None) -> TrainedRun:
    try:
        return load_run(run, net)
    except UntrustedError as error:
        raise RefusalError(f"{error} (--net {error.net})") from error


def refuse_over(output: Path, *read: Path) -> None:
    """Refuse to write over what is read, an image in a folder of them too, or over a file that a run needs."""
    if not output.exists():
        return
    place = output.resolve()
    runs = RUN_FILES if (place.parent / RECORD).exists() else ()
    inside = is_image(place) and any(path.resolve() in place.parents for path in read)
    if place.name in runs or inside or any(path.exists() and place.samefile(path) for path in read):
        what = "a file of a run" if place.name in runs else "what is read here"
        raise RefusalError(f"{output} is {what} and would be lost. Name another file. (--output)")


def _csv(rows: Iterable[Sequence[str]]) -> str:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue()


@click.command(
    epilog=examples(
        "ldmnet predict flowers new_photos --output predictions.csv",
        "ldmnet predict run table.csv | head",
        "ldmnet predict run faces.npz --net mynets:small",
    )
)
@RUN
@DATA
@OWN_NET
@click.option("--output", type=FILE, default=None, help="A CSV file.  [default: the screen]")
def predict(run: Path, data: Path, net: str | None, output: Path | None) -> None:
    """Write a class and the probability of every class for each sample of DATA, labelled or not."""
    from ldmnet.files import write_atomically
    from ldmnet.training.features import sweep
    from ldmnet.training.standardize import checked_outputs

    if output is not None:
        refuse_over(output, data)
    loaded = _loaded(run, net)
    samples = loaded.read(data)
    tell_reading(samples)
    probabilities = checked_outputs(sweep(loaded.model, loaded.standardize(samples.x), whole=True)).double().softmax(1)
    best = probabilities.argmax(1)
    head = ["sample", "predicted", *(f"p({name})" for name in loaded.class_names)]
    rows = [
        [name, loaded.class_names[choice], *(f"{p:.6f}" for p in row)]
        for name, choice, row in zip(samples.names, best.tolist(), probabilities.tolist(), strict=True)
    ]
    if output is None:
        click.echo(_csv([head, *rows]), nl=False)
    else:
        write_atomically(output, _csv([head, *rows]))
    labels = loaded.known_labels(samples)
    if labels is None and samples.y is not None:
        click.echo("the labels are not all classes of the run: how many are right is not known", err=True)
    if labels is not None:
        right = float((labels == best).double().mean())
        click.echo(f"{100 * right:.2f} % of {len(labels)} labelled samples are right", err=True)


@click.command(
    epilog=examples("ldmnet embed run photos --output features.npz", "ldmnet embed run table.csv --output features.csv")
)
@RUN
@DATA
@OWN_NET
@click.option("--output", type=FEATURES, default="features.npz", show_default=True, help="An .npz or a CSV file.")
def embed(run: Path, data: Path, net: str | None, output: Path) -> None:
    """Write the features of each sample of DATA.

    An .npz file has the arrays features, names and, where known, y and classes; a CSV table the columns sample, label
    (where known), f0, f1 and so on.
    """
    import numpy as np

    from ldmnet.files import write_atomically, written_whole
    from ldmnet.training.ensemble import feature_layer
    from ldmnet.training.features import sweep
    from ldmnet.training.standardize import checked_outputs

    refuse_over(output, data)
    loaded = _loaded(run, net)
    samples = loaded.read(data)
    tell_reading(samples)
    swept = sweep(
        loaded.model,
        loaded.standardize(samples.x),
        layer=feature_layer(loaded.model, loaded.settings.layer),
        whole=True,
    )
    features = checked_outputs(swept).numpy()
    if output.suffix.lower() == ".csv":
        known = [] if samples.y is None else [[samples.class_names[i] for i in samples.y.tolist()]]
        head = ["sample", *("label" for _ in known), *(f"f{i}" for i in range(features.shape[1]))]
        rows = zip(samples.names, *known, *([f"{v:.9g}" for v in column] for column in features.T), strict=True)
        write_atomically(output, _csv([head, *rows]))
    else:
        arrays = {"features": features, "names": np.array(samples.names)}
        if samples.y is not None:
            arrays |= {"y": samples.y.numpy(), "classes": np.array(samples.class_names)}
        with written_whole(output) as path, path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    click.echo(f"{features.shape[0]} samples of {features.shape[1]} features are in {output}")


@click.command(epilog=examples("ldmnet export run --output flowers.onnx"))
@RUN
@OWN_NET
@click.option("--output", type=ONNX, default=None, help="The ONNX file.  [default: model.onnx in RUN]")
def export(run: Path, net: str | None, output: Path | None) -> None:
    """Write the network with its preprocessing as one ONNX file: raw samples in, probabilities out."""
    output = output or run / "model.onnx"
    refuse_over(output)
    click.echo(f"written to {export_onnx(_loaded(run, net), output)}")
