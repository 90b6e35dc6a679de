"""Options that the commands for someone's own data share; their defaults are `UserSettings`'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from ldmnet.cli.completion import one_of, some_of
from ldmnet.data.readers import listed_faults
from ldmnet.data.userdata import TABLES, Samples
from ldmnet.integrations.untuned import STARTS, augmentation_for, batch_for
from ldmnet.records.userfits import Reading, UserSettings, read_for_net
from ldmnet.strength import COUPLING, STRENGTH
from ldmnet.training.augment import AUGMENTATIONS
from ldmnet.training.settings import OptimizerName, ScheduleName

Command = Callable[..., Any]


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator; the help shows them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _number(name: str, default: float, words: str) -> Callable[[Command], Command]:
    return click.option(name, type=float, default=default, show_default=True, help=words)


data_options = together(
    click.option("--label", default=None, help="The label column.  [default: label, y, class, target or the last]"),
    click.option("--size", type=click.IntRange(1), default=None, help="Resize images to this many pixels a side."),
    click.option("--grey", is_flag=True, help="Read images in one channel."),
    click.option(
        "--net", default="auto", show_default=True, metavar="NAME", shell_complete=one_of(*STARTS),
        help="residual, mlp, mnist, cifar or package.module:factory, a function of the numbers of inputs and classes.",
    ),
    click.option("--layer", default=UserSettings.layer, show_default=True, help="The network's feature layer."),
)  # fmt: skip

training_options = together(
    click.option("--epochs", type=click.IntRange(1), default=None, help="[default: the network's own]"),
    click.option("--lr", type=float, default=None, help="The learning rate.  [default: the network's own]"),
    click.option(
        "--batch-size", type=click.IntRange(1), default=None, help="Samples per step.  [default: the network's own]"
    ),
    click.option("--optimizer", type=click.Choice(get_args(OptimizerName)), default=None, help="[default: sgd]"),
    click.option(
        "--schedule",
        type=click.Choice(get_args(ScheduleName)),
        default=None,
        help="Of the learning rate.  [default: the network's own]",
    ),
    click.option("--clip-norm", type=float, default=None, help="The gradient's largest norm.  [default: any]"),
    click.option(
        "--augment",
        default=None,
        metavar="NAMES",
        shell_complete=some_of(lambda: tuple(AUGMENTATIONS)),
        help="shift, flip, shift,flip or none.  [default: the network's own]",
    ),
    click.option("--device", default=None, help="Where to train: cpu, cuda, mps.  [default: cpu]"),
    click.option("--seed", default=0, show_default=True, help="Of the split, the weights and the batches."),
)

stopping_options = together(
    click.option(
        "--patience",
        type=click.IntRange(1),
        default=None,
        help="Stop after so many epochs without a better validation accuracy.  [default: never]",
    ),
    _number("--validation-share", UserSettings.validation_share, "Of every class of the training part, for patience."),
)

method_options = together(
    click.option("--strength", type=float, default=None, help=f"LDMNet's pull, without a unit.  [default: {STRENGTH}]"),
    click.option(
        "--coupling",
        type=float,
        default=None,
        help=f"The pull over the graph; less smooths more.  [default: {COUPLING}]",
    ),
    click.option("--mu", type=float, default=None, help="The paper's weight of the penalty, in place of --strength."),
    click.option("--lambda-tilde", type=float, default=None, help="The paper's manifold term, in place of --coupling."),
    _number("--weight-decay", UserSettings.weight_decay, "w of w |theta|^2, for weight_decay."),
    _number("--dropout", UserSettings.dropout, "The rate, for dropout."),
    stopping_options,
)


def tell_reading(samples: Samples) -> None:
    """Say what was left out because it cannot be read, and what was read otherwise than one may think."""
    for note in samples.notes:
        click.echo(note, err=True)
    if samples.skipped:
        n = len(samples.skipped)
        words = f"skipped {n} of {n + len(samples.x)} images that cannot be read: {listed_faults(samples.skipped, 20)}"
        click.echo(words, err=True)


def prepared(
    data: Path,
    label: str | None,
    size: int | None,
    grey: bool,
    net: str,
    augment: str | None,
    batch_size: int | None,
    **settings: Any,
) -> tuple[Samples, Reading, UserSettings]:
    """The samples, how they were read, and the settings with the network that fits them."""
    samples, net, reading = read_for_net(data, net, Reading(label, size, grey))
    tell_reading(samples)
    if label is None and data.is_file() and data.suffix.lower() in TABLES:
        where = "the last (guessed; the table has no header)"
        named = f"{samples.label} (guessed; --label to choose another)"
        click.echo(f"label column: {where if samples.label is None else named}", err=True)
    chosen = augmentation_for(net, samples.x.shape[1:]) if augment is None else augment
    augment, batch_size = "" if chosen == "none" else chosen, batch_size or batch_for(net, len(samples.x))
    return samples, reading, UserSettings(net=net, augment=augment, batch_size=batch_size, **settings)
