"""Progress on the standard error: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ldmnet.pim.solve import Status
from ldmnet.training.history import Epoch

OnEpoch = Callable[[Epoch], None]
LINES = 10  # about so many for the epochs of a run
UPDATE = ("strength", "mu", "penalty", "move", "energy", "dimension")  # told of an update, where they are there


class EpochLines:
    """Plain lines, for a log: every update of the regulariser, the first epoch, about every tenth, and the last.

    Args:
        title: what is being trained.
        epochs: how many in all.
        after: seconds to be silent for at first; a run that ends before says nothing.
    """

    def __init__(self, title: str, epochs: int, after: float = 0.0) -> None:
        self._title, self._epochs, self._step = title, epochs, max(1, round(epochs / LINES))
        self._begin = time.monotonic() + after
        self._first = True

    def __call__(self, epoch: Epoch) -> None:
        """Tell of one finished epoch, if it is one to tell of."""
        number = epoch.epoch + 1
        due = self._first or number % self._step == 0 or number == self._epochs
        if time.monotonic() < self._begin:
            return
        if epoch.update is not None:
            self._tell(number, f"update: {_update_numbers(epoch.update)}")
        if due:
            self._first = False
            self._tell(number, _numbers(epoch))

    def _tell(self, number: int, words: str) -> None:
        print(f"{self._title}: epoch {number}/{self._epochs} {words}", file=sys.stderr, flush=True)


class EpochBar:
    """A rich progress bar over epochs; `EpochLines` where there is no terminal.

        with EpochBar("ldmnet", epochs=300) as bar:
            fit(..., on_epoch=bar)

    Args:
        title: what is being trained.
        epochs: how many in all.
        console: where to draw; the standard error unless given.
        after: seconds before the first of the lines.
    """

    def __init__(self, title: str, epochs: int, console: Console | None = None, after: float = 0.0) -> None:
        console = console or Console(stderr=True)
        self._lines = None if console.is_terminal or console.quiet else EpochLines(title, epochs, after)
        self._progress = Progress(
            TextColumn("[bold]{task.description:<13}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=epochs, numbers="")

    def __enter__(self) -> EpochBar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, epoch: Epoch) -> None:
        """Show one finished epoch."""
        self._progress.update(self._task, completed=epoch.epoch + 1, numbers=_numbers(epoch))
        if self._lines is not None:
            self._lines(epoch)


def _update_numbers(update: Mapping[str, float]) -> str:
    shown = [f"{name} {update[f'ldmnet/{name}']:.3g}" for name in UPDATE if f"ldmnet/{name}" in update]
    status = list(Status)[int(update["ldmnet/status"])].name
    return f"{', '.join(shown)}, solve {status}, {update['ldmnet/seconds']:.2g} s"


def _numbers(epoch: Epoch) -> str:
    strength = f" (strength {epoch.strength:.2g})" if epoch.strength else ""
    penalty = f" + {epoch.penalty:.4f}{strength}" if epoch.penalty else ""
    validation = "" if epoch.val_accuracy is None else f" val {100 * epoch.val_accuracy:.1f} %"
    return f"loss {epoch.loss:.4f}{penalty} train {100 * epoch.accuracy:.1f} %{validation}"
