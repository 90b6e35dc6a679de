"""The command that trains a run again and compares."""

from __future__ import annotations

from pathlib import Path

import click

from ldmnet.cli.answers import OWN_NET, RUN
from ldmnet.cli.options import RefusalError, examples, options_of
from ldmnet.cli.yourdata import LONG
from ldmnet.runs.sweep import Places
from ldmnet.runs.trained import UntrustedError


@click.command(epilog=examples("ldmnet verify run photos", "ldmnet verify runs/1f0e3dad9990 --data-dir ~/data"))
@RUN
@click.argument("data", type=click.Path(path_type=Path), required=False)
@OWN_NET
@options_of(Places, "data_dir")
def verify(run: Path, data: Path | None, net: str | None, data_dir: Path | None) -> None:
    """Train RUN again from its record and compare; DATA is what train was given.

    The exit code is 1 if a number or a weight differs, and what differs is named.
    """
    from ldmnet.runs.verify import verify_run
    from ldmnet.training.progress import EpochLines

    try:
        found = verify_run(
            run, data, data_dir=data_dir, net=net, on_epoch=lambda n: EpochLines("verify", n, after=LONG)
        )
    except UntrustedError as error:
        raise RefusalError(f"{error} (--net {error.net})") from error
    if found.differences:
        raise click.ClickException(f"{run} does not come out the same: {'; '.join(found.differences)}.")
    weights = " and weight by weight" if found.weights else "; it kept no weights to compare"
    click.echo(f"{run} comes out the same, number by number{weights}")
