"""Commands under torchrun: `train` shares one model among the processes, the others run in the first alone."""

from __future__ import annotations

import os
import sys

import click

from ldmnet.distributed.launch import LAUNCHED, launched

SHARED = "train"  # the command whose one model all processes train


def follow(command: str | None) -> None:
    """Before a command: one process speaks, and a command that cannot be shared is left to it."""
    if not launched():
        return
    if not leads():
        if command != SHARED:
            raise click.exceptions.Exit(0)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 until the process ends
        return
    if command != SHARED:
        click.echo(
            f"{command} runs in one of torchrun's processes: only {SHARED} shares its work among them.", err=True
        )
        for name in LAUNCHED:
            del os.environ[name]


def leads() -> bool:
    """Whether this process speaks for all."""
    return not launched() or os.environ["RANK"] == "0"
