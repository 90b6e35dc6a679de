"""Training curves for TensorBoard: `fit(..., on_epoch=EpochScalars(folder))`. Needs the extra `tensorboard`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from ldmnet.errors import missing_extra
from ldmnet.training.history import Epoch

try:
    from torch.utils.tensorboard.writer import SummaryWriter
except ImportError as error:
    raise missing_extra("tensorboard", "tensorboard") from error


class EpochScalars:
    """Writes every number of every epoch.

    Args:
        folder: where the event files go.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = str(folder)
        self._writer: SummaryWriter | None = None  # made when there is something to write

    def __enter__(self) -> EpochScalars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def __call__(self, epoch: Epoch) -> None:
        """Write one finished epoch."""
        self._writer = self._writer or SummaryWriter(self._folder)
        for name, value in vars(epoch).items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name, value, epoch.epoch)
