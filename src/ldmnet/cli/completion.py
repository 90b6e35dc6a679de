"""What completes the values of options with the tab key, beside what click completes by itself."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def some_of(names: Callable[[], tuple[str, ...]]) -> Completer:
    """Completes the last part of a comma-separated option; parts that are there already are not offered."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        *before, last = incomplete.split(",")
        left = [name for name in names() if name not in before and name.startswith(last)]
        return [CompletionItem(",".join([*before, name])) for name in left]

    return complete


def one_of(*names: str, files: bool = False) -> Completer:
    """Completes one of some names, or, where none begins so, a file."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type="file")] if files else [])

    return complete
