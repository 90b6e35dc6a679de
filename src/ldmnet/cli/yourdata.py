"""Commands that train on someone's own data: train, compare, tune."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch
from click.core import ParameterSource
from rich.console import Console

from ldmnet.cli.answers import DATA, tell_reading
from ldmnet.cli.launched import leads
from ldmnet.cli.options import FOLDER, Listed, by_flag, examples, format_option, options_of, together
from ldmnet.data.encode import Encoding
from ldmnet.data.userdata import TABLES, Samples
from ldmnet.errors import DivergenceError, StateError
from ldmnet.integrations.untuned import STARTS, augmentation_for, batch_for
from ldmnet.records.snapshots import FILE as SNAPSHOTS
from ldmnet.runs.classical import CLASSICAL, classical
from ldmnet.runs.samples import TAKES, Reading, UserSettings, read_for_net
from ldmnet.training.augment import AUGMENTATIONS
from ldmnet.training.methods import METHODS
from ldmnet.training.rivals import RIVALS, parse

NAMES = (*METHODS, *RIVALS)
WHOLE = {"type": click.IntRange(1)}
LONG = 60  # seconds after which a run of a comparison or of a search tells of its epochs

snapshots_option = click.option(
    "--snapshots/--no-snapshots", default=True, show_default=True, help="Keep features at ten epochs, for a report."
)
data_options = together(
    options_of(Reading, size=WHOLE),
    options_of(Encoding, "encode_batch", "online", encode_batch=WHOLE),
    options_of(
        UserSettings, "net", "layer",
        net={"default": "auto", "metavar": "NAME", "shell_complete": click.Choice(list(STARTS)).shell_complete},
    ),
)  # fmt: skip
training_options = options_of(
    UserSettings, "epochs", "lr", "batch_size", "optimizer", "schedule", "clip_norm", "augment", "device", "seed",
    epochs=WHOLE, batch_size=WHOLE, augment={"shell_complete": Listed(*AUGMENTATIONS).shell_complete},
)  # fmt: skip
method_options = options_of(
    UserSettings, "strength", "coupling", "mu", "lambda_tilde", "weight_decay", "dropout", "patience",
    "validation_share", patience=WHOLE,
)  # fmt: skip


def prepared(
    data: Path, label: str | None, size: int | None, grey: bool, encoder: str | None, text: str | None, **options: Any
) -> tuple[Samples, Reading, UserSettings]:
    """The samples, how they were read, and the settings with the network that fits them."""
    encoding = Encoding(options.pop("encode_batch"), options.pop("online"), options["device"])
    wanted = Reading(label, size, grey, encoder, text)
    samples, net, reading = read_for_net(data, options.pop("net"), wanted, encoding)
    tell_reading(samples)
    if label is None and encoder is None and data.is_file() and data.suffix.lower() in TABLES:
        where = "the last (guessed; the table has no header)"
        named = f"{samples.label} (guessed; --label to choose another)"
        click.echo(f"label column: {where if samples.label is None else named}", err=True)
    if options["augment"] is None:
        options["augment"] = augmentation_for(net, samples.x.shape[1:])
    options["batch_size"] = options["batch_size"] or batch_for(net, len(samples.x))
    return samples, reading, UserSettings(net=net, **options)


def _refuse_unused(option: str, methods: Sequence[str]) -> None:
    """Refuse numbers that were given and that no method takes, or nothing waits for."""
    context = click.get_current_context()
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    taken = {name for method in methods if classical(method) is None for name in TAKES[parse(method, METHODS)[0]]}
    for name in dict.fromkeys(name for names in TAKES.values() for name in names):
        if name in given and name not in taken:
            raise click.UsageError(f"--{name.replace('_', '-')} does nothing with {option} {','.join(methods)}.")
    if "validation_share" in given and context.params["patience"] is None:
        raise click.UsageError("--validation-share does nothing without --patience.")


def _tell_no_snapshots(what: str, command: str) -> None:
    """A finished run is not trained again for its snapshots."""
    click.echo(
        f"no snapshots of {what} were kept when it was trained: {command} into another --output to get them", err=True
    )


@click.command(
    epilog=examples(
        "ldmnet train photos --output flowers        a folder with one folder of images per class",
        "ldmnet train table.csv --label species --test-share 0.2",
        "ldmnet train faces.npz --net mynets:small --method dropout --epochs 100",
    )
)
@DATA
@data_options
@training_options
@method_options
@options_of(
    UserSettings,
    "method",
    "test_share",
    method={"metavar": "NAME", "shell_complete": click.Choice(NAMES).shell_complete},
)
@click.option("--output", type=FOLDER, default="run", show_default=True, help="The run's folder.")
@click.option("--tensorboard", is_flag=True, help="Also log to the run's folder for TensorBoard.")
@snapshots_option
def train(data: Path, output: Path, tensorboard: bool, snapshots: bool, **options: Any) -> None:
    """Train a network on DATA: an .npz file, a CSV table or a folder of images by class.

    A run that was cut resumes when the same command is given again. The exit code is 1 if training ended badly.
    """
    from ldmnet.runs.trained import train_run
    from ldmnet.training.history import Epoch
    from ldmnet.training.progress import EpochBar, OnEpoch

    _refuse_unused("--method", [options["method"]])
    samples, reading, settings = prepared(data, **options)
    with ExitStack() as stack:
        stack.enter_context(by_flag("--output", StateError))
        watchers: list[OnEpoch] = []
        if leads():
            watchers.append(stack.enter_context(EpochBar(settings.method, settings.all_epochs)))
        if tensorboard and leads():
            from ldmnet.integrations.tensorboard import EpochScalars

            watchers.append(stack.enter_context(EpochScalars(output / "tensorboard")))

        def on_epoch(epoch: Epoch) -> None:
            for watcher in watchers:
                watcher(epoch)

        run = train_run(samples, settings, reading, output, name=data.name, on_epoch=on_epoch, snapshots=snapshots)
    if run.diverged:
        raise DivergenceError(run.diverged)
    shown = f"trained {settings.net} on {run.n_train} samples of {len(samples.class_names)} classes"
    if settings.regularisation().pulls:
        strength = f"strength {run.more['strength']:.3g}, " if run.more["strength"] is not None else ""
        shown += f", {strength}mu {run.more['mu']:.3g}, lambda_tilde {run.more['lambda_tilde']:.3g}"
    click.echo(f"{shown}: training loss {run.more['train_loss']:.4f}")
    if run.accuracy is not None:
        click.echo(f"test accuracy {run.accuracy:.2f} % of {run.n_test} samples held out")
    click.echo(f"the run is in {output}")
    if snapshots and not (output / SNAPSHOTS).exists():
        _tell_no_snapshots("this run", "train")
    if run.ended_badly:
        click.echo(f"the run ended badly: {' '.join(run.ended_badly)}", err=True)
        raise click.exceptions.Exit(1)


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
    type=Listed(*NAMES, *CLASSICAL),
    default=",".join(METHODS),
    show_default=True,
    help="Rows of the table: methods, several with a plus (ldmnet+mixup), logistic, svm, forest, laplace.",
)
@click.option("--splits", type=click.IntRange(1), default=5, show_default=True, help="Stratified splits.")
@options_of(UserSettings, "test_share", "trials", test_share={"default": 0.3}, trials={"type": click.IntRange(0)})
@format_option("md", "csv", "json")
@click.option("--output", type=FOLDER, default="comparison", show_default=True, help="Keeps the records and runs.")
@snapshots_option
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
    from ldmnet.records.advice import advice
    from ldmnet.records.comparison import compared_rows, format_comparison, in_vain
    from ldmnet.runs.compare import RUNS, compare_methods, without_dropout
    from ldmnet.training.progress import EpochLines

    _refuse_unused("--methods", methods)
    samples, reading, settings = prepared(data, **options)
    console = Console(stderr=True)
    kept = without_dropout(methods, settings, samples)
    if len(kept) < len(methods):
        click.echo("dropout: left out, the network has no nn.Dropout layer", err=True)

    def announce(method: str, split: int) -> EpochLines:
        console.print(f"split {split + 1} of {splits}: {method}", highlight=False, markup=False)
        return EpochLines(method, replace(settings, method=method).all_epochs, after=LONG)

    records = compare_methods(
        samples, settings, output, methods=kept, splits=splits, name=data.name, on_run=announce, snapshots=snapshots
    )
    if reading.encoder is not None and samples.label is None:  # images: the networks without the encoder, beside it
        raw, _, own = prepared(data, **{**options, "encoder": None})
        plain = [method for method in kept if method in ("none", "ldmnet")]
        if plain and torch.equal(raw.labels, samples.labels):  # so the splits are the same
            console.print("from scratch:", highlight=False)
            scratch = compare_methods(
                raw, own, output / "scratch", methods=plain, splits=splits, name=data.name, on_run=announce,
                snapshots=snapshots,
            )  # fmt: skip
            same = records[0].data  # the samples' own, whether encoded or not: rows are compared split by split
            records += [replace(record, method=f"scratch: {record.method}", data=same) for record in scratch]
    for record in records:
        where = f"split {record.seed - settings.seed + 1}: {record.method}"
        if record.diverged:
            click.echo(f"{where} diverged: {record.diverged}", err=True)
        if record.ended_badly:
            click.echo(f"{where} ended badly: {' '.join(record.ended_badly)}", err=True)
    networks = [record for record in records if classical(record.method) is None]
    first = [record for record in networks if record.seed == settings.seed and not record.diverged]
    first = [record for record in first if not record.method.startswith("scratch")]
    bare = [record.method for record in first if not (output / RUNS / record.hash / SNAPSHOTS).exists()]
    if snapshots and bare:
        _tell_no_snapshots(f"the first split of {', '.join(bare)}", "compare")
    rows = compared_rows(records)
    click.echo(format_comparison(rows, style))
    if style == "md" and (said := advice(records)):
        click.echo(f"\n{said}")
    if in_vain(rows):
        raise click.exceptions.Exit(1)


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
@click.option("--output", type=FOLDER, default="tuning", show_default=True, help="Keeps the study and its runs.")
def tune(
    data: Path, trials: int, splits: int, test_share: float, validation_share: float, output: Path, **options: Any
) -> None:
    """Choose strength and coupling for DATA on validation data; a search that was cut resumes.

    What train tests on with the same --test-share and --seed takes no part.
    """
    from ldmnet.runs.tune import tune_strengths
    from ldmnet.training.progress import EpochLines

    samples, _, settings = prepared(data, test_share=validation_share, **options)
    console = Console(stderr=True)
    with by_flag("--output", StateError):
        found = tune_strengths(
            samples,
            settings,
            output,
            trials=trials,
            splits=splits,
            test_share=test_share,
            on_trial=lambda number, value: console.print(f"trial {number + 1}: {value:.2f} %", highlight=False),
            on_run=lambda number: EpochLines(f"trial {number + 1}", settings.training().epochs, after=LONG),
        )
    click.echo(
        f"best of {found.trials} trials: {found.accuracy:.2f} % on validation data "
        f"({found.untuned:.2f} % untuned)\n--strength {found.strength:.4g} --coupling {found.coupling:.4g}"
    )
    if found.held_out:
        click.echo(
            f"{found.held_out} of {len(samples.x)} samples were left out: train with these numbers, "
            f"--test-share {test_share:g} and --seed {settings.seed} tests on them alone"
        )
    else:
        click.echo("no sample was left out: test these numbers on other data")
