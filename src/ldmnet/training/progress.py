"""Progress on the terminal: epoch, losses, accuracy, time left. Silent where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ldmnet.training.history import Epoch

OnEpoch = Callable[[Epoch], None]


class EpochBar:
    """A rich progress bar over epochs.

        with EpochBar("ldmnet", epochs=300) as bar:
            fit(..., on_epoch=bar)

    Args:
        title: what is being trained.
        epochs: how many in all.
        console: where to draw; the standard error unless given.
    """

    def __init__(self, title: str, epochs: int, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, epoch: Epoch) -> None:
        """Show one finished epoch."""
        numbers = f"loss {epoch.loss:.4f}"
        if epoch.penalty:
            numbers += f" + {epoch.penalty:.4f}"
        numbers += f"  train {100 * epoch.accuracy:.1f} %"
        if epoch.val_accuracy is not None:
            numbers += f"  val {100 * epoch.val_accuracy:.1f} %"
        self._progress.update(self._task, completed=epoch.epoch + 1, numbers=numbers)
