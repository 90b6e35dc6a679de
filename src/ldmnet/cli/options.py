"""What the commands share: options made from the settings' dataclasses, errors as sentences, lists by commas."""

from __future__ import annotations

import errno
import inspect
import re
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from ldmnet.errors import DivergenceError, LDMNetError

NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory")  # as torch puts it
Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator; the help shows them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def options_of(settings: type, *names: str, **changes: dict[str, Any]) -> Decorator:
    """Options from the fields of a dataclass: type, default and help are those of the field and of its sentence.

    Args:
        settings: the dataclass; the section Attributes of its docstring has a sentence for each field.
        names: which fields, in this order; all unless given.
        changes: by field, what `click.option` is given in place of what the field says.
    """
    said, hints = sentences(settings), get_type_hints(settings)
    made = []
    for f in fields(settings):
        kind, optional = _without_none(hints[f.name])
        words, default = _default_in_words(said[f.name])
        given: dict[str, Any] = {"default": f.default, "help": words + (f"  [default: {default}]" if default else "")}
        if kind is bool:
            given["is_flag"] = True
        elif get_origin(kind) is Literal:
            given["type"] = click.Choice(get_args(kind))
        else:
            given["type"] = click.Path(path_type=Path) if kind is Path or Path in get_args(kind) else kind
        given["show_default"] = not optional and kind is not bool
        made.append((f.name, {**given, **changes.get(f.name, {})}))
    order = names or tuple(name for name, _ in made)
    by_name = dict(made)
    return together(*(click.option(f"--{name.replace('_', '-')}", name, **by_name[name]) for name in order))


def sentences(settings: type) -> dict[str, str]:
    """What a dataclass says of its fields, in the section Attributes of its docstring and of those it inherits from."""
    found: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
        for name, words in re.findall(r"^    (\w+): (.*(?:\n      .*)*)", text, re.MULTILINE):
            found[name] = " ".join(words.split())
    return found


def _without_none(hint: Any) -> tuple[Any, bool]:
    """A type without None, and whether None was in it."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    optional = len(kinds) < len(get_args(hint))
    return (kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]), optional  # noqa: UP007


def _default_in_words(sentence: str) -> tuple[str, str]:
    """A sentence for the help, and what it says that None takes."""
    words, _, default = sentence.partition("; None takes ")
    return words[0].upper() + words[1:].rstrip(".") + ".", default.rstrip(".")


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
            raise RefusalError(f"{error} (--{error.setting})" if error.setting else str(error)) from error
        except OSError as error:
            if error.errno in (None, errno.EPIPE):  # a closed pipe: click knows what to do
                raise
            where = "what was to be written or read" if error.filename is None else error.filename
            raise RefusalError(f"{where}: {error.strerror}.") from error
        except MemoryError as error:
            raise RefusalError("there is not enough memory for this.") from error
        except RuntimeError as error:
            if not any(words in str(error) for words in NO_MEMORY):
                raise
            raise RefusalError("there is not enough memory for this.") from error


@contextmanager
def by_flag(flag: str, kind: type[LDMNetError]) -> Iterator[None]:
    """Name the option that an error of some kind is about behind its words."""
    try:
        yield
    except kind as error:
        raise RefusalError(f"{error} ({flag})") from error


class _Written(click.Path):
    """A file to write, of a kind that can be written, told by its ending."""

    def __init__(self, what: str, *endings: str) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.what, self.endings = what, endings

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(str(super().convert(value, param, ctx)))  # type: ignore[arg-type]
        if path.suffix.lower() not in self.endings:
            *others, last = self.endings
            known = f"{', '.join(others)} or {last}" if others else last
            self.fail(f"{self.what} ends in {known}, got {path}.", param, ctx)
        return path


PICTURE = _Written("a picture", ".png", ".pdf", ".svg", ".jpg")
FEATURES = _Written("a file of features", ".npz", ".csv")
ONNX = _Written("an ONNX file", ".onnx")
PAGE = _Written("the page", ".html", ".htm")
FOLDER = click.Path(path_type=Path, file_okay=False)


def examples(*lines: str) -> str:
    """The end of a command's help: examples, one per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def format_option(*styles: str) -> Decorator:
    """--format, the first style unless given."""
    return click.option(
        "--format", "style", type=click.Choice(styles), default=styles[0], show_default=True, help="How it is written."
    )


class Listed(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Names with commas between them; the tab key completes the last one by those that are not there yet."""

    name = "text"

    def __init__(self, *known: str) -> None:
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Split the words."""
        return value if isinstance(value, tuple) else tuple(part.strip() for part in value.split(",") if part.strip())

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the names that begin as the last part does."""
        *before, last = incomplete.split(",")
        left = [name for name in self.known if name not in before and name.startswith(last)]
        return [CompletionItem(",".join([*before, name])) for name in left]
