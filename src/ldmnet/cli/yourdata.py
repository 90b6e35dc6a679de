"""Commands for someone's own data: train, predict, embed, compare, export, tune."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ldmnet.cli.completion import some_of
from ldmnet.cli.options import FEATURES, comma_list, examples
from ldmnet.cli.runoptions import data_options, method_options, prepared, tell_reading, training_options
from ldmnet.records.userfits import UserSettings
from ldmnet.training.methods import METHODS

DATA = click.argument("data", type=click.Path(path_type=Path))
RUN = click.argument("run", type=click.Path(path_type=Path))
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
SNAPSHOTS = click.option(
    "--snapshots/--no-snapshots", default=True, show_default=True, help="Keep features at ten epochs, for a report."
)
LONG = 60  # seconds after which a run of a comparison or of a search tells of its epochs
OWN_NET = click.option("--net", default=None, help="Repeat the run's network if it is your own code.")


@click.command(
    epilog=examples(
        "ldmnet train photos --output flowers        a folder with one folder of images a class",
        "ldmnet train table.csv --label species --test-share 0.2",
        "ldmnet train faces.npz --net mynets:small --method dropout --epochs 100",
    )
)
@DATA
@data_options
@training_options
@method_options
@click.option(
    "--method", type=click.Choice(METHODS), default=UserSettings.method, show_default=True, help="The regulariser."
)
@click.option("--test-share", type=float, default=0.0, help="Hold out this share of every class.  [default: none]")
@click.option("--output", type=FOLDER, default="run", show_default=True, help="The run's folder.")
@click.option("--tensorboard", is_flag=True, help="Also log to the run's folder for TensorBoard.")
@SNAPSHOTS
def train(data: Path, output: Path, tensorboard: bool, snapshots: bool, **options: Any) -> None:
    """Train a network on DATA: an .npz file, a CSV table or a folder of images by class.

    A run that was cut resumes when the same command is given again. The exit code is 1 if training ended badly.
    """
    from ldmnet.records.snapshots import FILE
    from ldmnet.records.userruns import train_run
    from ldmnet.training.history import Epoch
    from ldmnet.training.progress import EpochBar, OnEpoch

    takes = {"ldmnet": ("strength", "coupling", "mu", "lambda_tilde"), "control": ("strength", "mu")}
    for name in takes["ldmnet"]:
        if options[name] is not None and name not in takes.get(options["method"], ()):
            raise click.UsageError(f"--{name.replace('_', '-')} does nothing with --method {options['method']}.")
    samples, reading, settings = prepared(data, **options)
    with ExitStack() as stack:
        watchers: list[OnEpoch] = [stack.enter_context(EpochBar(settings.method, settings.training().epochs))]
        if tensorboard:
            from ldmnet.integrations.tensorboard import EpochScalars

            watchers.append(stack.enter_context(EpochScalars(output / "tensorboard")))

        def on_epoch(epoch: Epoch) -> None:
            for watcher in watchers:
                watcher(epoch)

        run = train_run(samples, settings, reading, output, on_epoch=on_epoch, snapshots=snapshots)
    result = run["result"]
    shown = f"trained {settings.net} on {result['n_train']} samples of {len(samples.class_names)} classes"
    if settings.method in ("control", "ldmnet"):
        strength = f"strength {result['strength']:.3g}, " if result["strength"] is not None else ""
        shown += f", {strength}mu {result['mu']:.3g}, lambda_tilde {result['lambda_tilde']:.3g}"
    click.echo(f"{shown}: training loss {result['train_loss']:.4f}")
    if result["test_accuracy"] is not None:
        click.echo(f"test accuracy {100 * result['test_accuracy']:.2f} % of {result['n_test']} samples held out")
    click.echo(f"the run is in {output}")
    if snapshots and not (output / FILE).exists():
        _tell_no_snapshots("this run", "train")
    if badly := result.get("ended_badly"):
        click.echo(f"the run ended badly: {' '.join(badly)}", err=True)
        raise click.exceptions.Exit(1)


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
    from ldmnet.records.userruns import known_labels, load_run
    from ldmnet.training.features import sweep
    from ldmnet.training.standardize import checked_outputs

    loaded = load_run(run, net)
    samples = loaded.read(data)
    tell_reading(samples)
    probabilities = checked_outputs(sweep(loaded.model, loaded.standardize(samples.x))).double().softmax(1)
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
    labels = known_labels(samples, loaded.class_names)
    if labels is not None:
        right = float((labels == best).double().mean())
        click.echo(f"{100 * right:.2f} % of {len(labels)} labelled samples are right", err=True)


def _csv(rows: Iterable[Sequence[str]]) -> str:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue()


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
    from ldmnet.records.userruns import load_run
    from ldmnet.training.features import sweep
    from ldmnet.training.standardize import checked_outputs

    loaded = load_run(run, net)
    samples = loaded.read(data)
    tell_reading(samples)
    features = checked_outputs(sweep(loaded.model, loaded.standardize(samples.x), layer=loaded.settings.layer)).numpy()
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


@click.command(
    epilog=examples(
        "ldmnet compare photos",
        "ldmnet compare table.csv --splits 10 --methods none,dropout,ldmnet --format csv",
    )
)
@DATA
@data_options
@training_options
@method_options
@click.option(
    "--methods",
    callback=comma_list,
    default=",".join(METHODS),
    show_default=True,
    shell_complete=some_of(lambda: METHODS),
    help="Rows of the table.",
)
@click.option("--splits", type=click.IntRange(1), default=5, show_default=True, help="Stratified splits.")
@click.option("--test-share", type=float, default=0.3, show_default=True, help="Of every class, in each split.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["md", "csv", "json"]),
    default="md",
    show_default=True,
    help="How it is written.",
)
@click.option("--output", type=FOLDER, default="comparison", show_default=True, help="Keeps records.jsonl.")
@SNAPSHOTS
def compare(
    data: Path,
    methods: tuple[str, ...],
    splits: int,
    style: str,
    output: Path,
    snapshots: bool,
    **options: Any,
) -> None:
    """Compare the methods on DATA over repeated splits, with a paired test against LDMNet.

    Finished runs are kept in the output folder and skipped. The exit code is 1 if LDMNet's training ended badly on any
    split, or that of every method.
    """
    from ldmnet.records.comparison import compare_methods, compared_rows, format_comparison, in_vain, without_dropout
    from ldmnet.records.snapshots import FILE
    from ldmnet.training.progress import EpochLines

    samples, _, settings = prepared(data, **options)
    console = Console(stderr=True)
    kept = without_dropout(methods, settings, samples)
    if len(kept) < len(methods):
        click.echo("dropout: left out, the network has no nn.Dropout layer", err=True)

    def announce(method: str, split: int) -> EpochLines:
        console.print(f"split {split + 1} of {splits}: {method}", highlight=False, markup=False)
        return EpochLines(method, settings.training().epochs, after=LONG)

    records = compare_methods(
        samples,
        settings,
        methods=kept,
        splits=splits,
        records=output / "records.jsonl",
        on_run=announce,
        traces=output / "traces" if snapshots else None,
    )
    for record in records:
        if "diverged" in record:
            click.echo(f"split {record['split'] + 1}: {record['method']} diverged: {record['diverged']}", err=True)
        if "ended_badly" in record:
            words = " ".join(record["ended_badly"])
            click.echo(f"split {record['split'] + 1}: {record['method']} ended badly: {words}", err=True)
    first = [record for record in records if record["split"] == 0 and "diverged" not in record]
    bare = [record["method"] for record in first if not (output / "traces" / record["key"] / FILE).exists()]
    if snapshots and bare:
        _tell_no_snapshots(f"the first split of {', '.join(bare)}", "compare")
    rows = compared_rows(records)
    click.echo(format_comparison(rows, style))
    if in_vain(rows):
        raise click.exceptions.Exit(1)


def _tell_no_snapshots(what: str, command: str) -> None:
    """A finished run is not trained again for its snapshots."""
    click.echo(
        f"no snapshots of {what} were kept when it was trained: {command} into another --output to get them", err=True
    )


@click.command(epilog=examples("ldmnet export run", "ldmnet export run --output flowers.onnx"))
@RUN
@OWN_NET
@click.option("--output", type=FILE, default=None, help="[default: model.onnx in RUN]")
def export(run: Path, net: str | None, output: Path | None) -> None:
    """Write the network with its preprocessing as one ONNX file: raw samples in, probabilities out."""
    from ldmnet.records.export import export_onnx
    from ldmnet.records.userruns import load_run

    click.echo(f"written to {export_onnx(load_run(run, net), output or run / 'model.onnx')}")


@click.command(
    epilog=examples("ldmnet tune photos --trials 30", "ldmnet tune table.csv --label species --output search")
)
@DATA
@data_options
@training_options
@click.option("--trials", type=click.IntRange(1), default=20, show_default=True, help="In all, earlier ones counted.")
@click.option("--splits", type=click.IntRange(1), default=3, show_default=True, help="That a trial is averaged over.")
@click.option(
    "--test-share",
    type=float,
    default=0.2,
    show_default=True,
    help="Of every class, held out altogether: what train tests on with this share and seed.",
)
@click.option("--validation-share", type=float, default=0.3, show_default=True, help="Of every class, of what is left.")
@click.option("--output", type=FOLDER, default="tuning", show_default=True, help="Keeps study.db.")
def tune(
    data: Path, trials: int, splits: int, test_share: float, validation_share: float, output: Path, **options: Any
) -> None:
    """Choose strength and coupling for DATA on validation data; a search that was cut resumes.

    What train tests on with the same --test-share and --seed takes no part.
    """
    from ldmnet.records.tuning import tune_strengths
    from ldmnet.training.progress import EpochLines

    samples, _, settings = prepared(data, test_share=validation_share, **options)
    console = Console(stderr=True)
    found = tune_strengths(
        samples,
        settings,
        trials=trials,
        splits=splits,
        storage=output / "study.db",
        test_share=test_share,
        on_trial=lambda number, value: console.print(f"trial {number + 1}: {100 * value:.2f} %", highlight=False),
        on_run=lambda number: EpochLines(f"trial {number + 1}", settings.training().epochs, after=LONG),
    )
    click.echo(
        f"best of {found.trials} trials: {100 * found.accuracy:.2f} % on validation data "
        f"({100 * found.untuned:.2f} % untuned)\n--strength {found.strength:.4g} --coupling {found.coupling:.4g}"
    )
    if found.held_out:
        click.echo(
            f"{found.held_out} of {len(samples.x)} samples were left out: train with these numbers, "
            f"--test-share {test_share:g} and --seed {settings.seed} tests on them alone"
        )
    else:
        click.echo("no sample was left out: test these numbers on other data")
