"""What was read of someone's own data, from whatever kind of file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from ldmnet.errors import DataError


@dataclass(frozen=True, eq=False)
class Samples:
    """What was read.

    Attributes:
        x: (n, ...): uint8 images (n, channels, height, width), or float32 or float64, as the numbers need.
        y: (n,) int64 positions in `class_names`; None where there are no labels.
        class_names: the classes, sorted.
        names: of each sample: its file, or its row counted from 1.
        skipped: why, by file, of images that could not be read and are left out.
        columns: the names of a table's columns; None without a header.
        label: the name of a table's label column; None without a header.
        notes: sentences about what was read otherwise than one may think, or not read.
    """

    x: Tensor
    y: Tensor | None
    class_names: list[str]
    names: list[str]
    skipped: dict[Path, str] = field(default_factory=dict)
    columns: list[str] | None = None
    label: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> Tensor:
        """The labels, or an error where there are none."""
        if self.y is None:
            raise DataError("the data has no labels, and this needs them.")
        return self.y


def row_names(n: int) -> list[str]:
    """The names of samples that have none: their rows, counted from 1."""
    return [str(i) for i in range(1, n + 1)]
