"""Training curves for TensorBoard. Needs the extra `tensorboard`.

    with EpochScalars("logs") as scalars:
        fit(model, data, on_epoch=scalars)

In a loop of one's own `scalars.update(regularizer.step(features), epoch)` writes an update of the regulariser.
"""

from __future__ import annotations

from pathlib import Path

from ldmnet.errors import missing_extra
from ldmnet.training.history import Epoch
from ldmnet.updates import Update

try:
    from torch.utils.tensorboard.writer import SummaryWriter
except ImportError as error:
    raise missing_extra("tensorboard", "tensorboard") from error


class EpochScalars:
    """Writes the numbers of every epoch, and of the regulariser's updates.

    Args:
        folder: where the event files go.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = str(folder)
        self._writer: SummaryWriter | None = None  # made when there is something to write

    def __enter__(self) -> EpochScalars:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def __call__(self, epoch: Epoch) -> None:
        """Write one finished epoch, and the update that came before it."""
        own = {name: value for name, value in epoch.as_dict().items() if name != "epoch" and value is not None}
        self._write({**own, **(epoch.update or {})}, epoch.epoch)

    def update(self, update: Update, epoch: int) -> None:
        """Write one update of the regulariser, which came before this epoch."""
        self._write(update.scalars(), epoch)

    def _write(self, numbers: dict[str, float], epoch: int) -> None:
        self._writer = self._writer or SummaryWriter(self._folder)
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, epoch)
