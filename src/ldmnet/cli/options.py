"""What the commands share: errors as sentences, lists by commas, the number of cores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from ldmnet.errors import DivergenceError, LDMNetError


class RefusalError(click.ClickException):
    """What was given cannot be used: exit code 2, like click's own usage errors."""

    exit_code = 2


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as plain lines, each once, without the place in our code that they come from."""
    told: set[str] = set()

    def tell(message: Warning | str, *where: object, **more: object) -> None:
        words = " ".join(str(message).split())
        if words not in told:
            told.add(words)
            click.echo(f"warning: {words}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


class Sentences(click.Group):
    """A group whose errors and warnings are sentences, not tracebacks and places in the code."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a subcommand; an error of ours, or of a file, ends it with its words.

        The exit code is 2 where the input is at fault and 1 where training is: it diverged.
        """
        try:
            with plain_warnings():
                return super().invoke(ctx)
        except DivergenceError as error:
            raise click.ClickException(str(error)) from error
        except LDMNetError as error:
            raise RefusalError(str(error)) from error
        except OSError as error:
            if error.filename is None or error.strerror is None:  # a closed pipe, say: click knows what to do
                raise
            raise RefusalError(f"{error.filename}: {error.strerror}.") from error


class _Written(click.Path):
    """A file to write, of a kind that can be written, told by its ending."""

    def __init__(self, what: str, *endings: str) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.what, self.endings = what, endings

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(str(super().convert(value, param, ctx)))  # type: ignore[arg-type]
        if path.suffix.lower() not in self.endings:
            self.fail(
                f"{self.what} ends in {', '.join(self.endings[:-1])} or {self.endings[-1]}, got {path}.", param, ctx
            )
        return path


PICTURE = _Written("a picture", ".png", ".pdf", ".svg", ".jpg")
FEATURES = _Written("a file of features", ".npz", ".csv")


def examples(*lines: str) -> str:
    """The end of a command's help: examples, one a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def comma_list(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """A comma-separated option."""
    return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())


def integers(parts: Sequence[str], option: str) -> list[int]:
    """Whole numbers from the parts of a comma-separated option."""
    try:
        return [int(part) for part in parts]
    except ValueError as error:
        raise click.BadParameter(f"{option} takes whole numbers, got {','.join(parts)}.") from error


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
