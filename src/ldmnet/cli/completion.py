"""The command `ldmnet completion`, and what completes the values of options."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem, get_completion_class

from ldmnet.cli.options import examples

SHELLS = ("bash", "zsh", "fish")
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command(
    epilog=examples(
        'eval "$(ldmnet completion bash)"       in ~/.bashrc',
        'eval "$(ldmnet completion zsh)"        in ~/.zshrc, after compinit',
        "ldmnet completion fish > ~/.config/fish/completions/ldmnet.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and their values with the tab key."""
    program = ctx.find_root()
    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(program.command, {}, "ldmnet", "_LDMNET_COMPLETE").source())


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
