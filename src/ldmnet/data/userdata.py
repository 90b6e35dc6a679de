"""Someone's own data: an .npz file, a CSV table or a folder of images by class, told apart by what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldmnet.data.csvtables import read_table, read_table_like
from ldmnet.data.readers import (
    IMAGE_SUFFIXES,
    images_by_class,
    images_in,
    listed_faults,
    read_npz,
    readable_images,
)
from ldmnet.errors import DataError, InputError
from ldmnet.seeds import generator

KINDS = "an .npz file, a CSV table or a folder with one folder of images a class"


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
    """

    x: Tensor
    y: Tensor | None
    class_names: list[str]
    names: list[str]
    skipped: dict[Path, str] = field(default_factory=dict)
    columns: list[str] | None = None

    @property
    def labels(self) -> Tensor:
        """The labels, or an error where there are none."""
        if self.y is None:
            raise DataError("the data has no labels, and this needs them.")
        return self.y


def read_samples(
    path: str | Path,
    *,
    label: str | None = None,
    size: int | tuple[int, int] | None = None,
    grey: bool = False,
    shape: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
) -> Samples:
    """Read .npz, CSV or a folder of images.

    Args:
        path: the file or folder.
        label: the CSV table's label column, see `read_csv`.
        size: resize images to (height, width), or to a square.
        grey: read images with one channel.
        shape: of the samples that a network was trained on. With it the labels may be missing: an .npz without y, a
            table without the label column, a folder with the images in it.
        columns: the names of the columns that a network was trained on, if they had names.

    Raises:
        DataError: it is none of the three, or does not fit `shape`.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist. Name {KINDS}.")
    if path.is_dir():
        samples = _images(path, size, grey, labelled=shape is None)
    elif path.suffix.lower() == ".npz":
        samples = _arrays(path, labelled=shape is None)
    elif path.suffix.lower() in (".csv", ".tsv", ".txt"):
        samples = _table(path, label, shape, columns)
    else:
        raise DataError(f"{path} is neither {KINDS.replace(' or ', ' nor ')}.")
    if not torch.isfinite(samples.x).all():
        raise DataError(f"{path}: x has NaN or infinite values. Remove or fill them.")
    if shape is not None and tuple(samples.x.shape[1:]) != tuple(shape):
        given = tuple(samples.x.shape[1:])
        raise DataError(f"{path}: a sample has shape {given} but in training it had {tuple(shape)}.")
    if shape is None and len(samples.class_names) < 2:
        raise DataError(f"{path} has one class only, {samples.class_names[0]!r}. A classifier needs two or more.")
    return samples


def share_split(labels: Tensor, share: float, seed: int, class_names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Hold out a share of every class, at least one sample.

    Returns:
        The indices to train on and those held out, both ascending.
    """
    if not 0 < share < 1:
        raise InputError(f"the share must be above 0 and below 1, got {share}.")
    draw = generator(seed, "split")
    held = torch.zeros(len(labels), dtype=torch.bool)
    for c in range(len(class_names)):
        members = (labels == c).nonzero().squeeze(1)
        if len(members) < 2:
            raise DataError(
                f"class {class_names[c]!r} has {len(members)} sample: one to train on and one to hold out are needed. "
                "Add samples, or remove the class."
            )
        count = min(max(1, round(share * len(members))), len(members) - 1)
        held[members[torch.randperm(len(members), generator=draw)[:count]]] = True
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)


@dataclass(frozen=True, eq=False)
class Standardize:
    """Mean 0 and deviation 1 by the training set's statistics: each column of a table, all pixels of images as one.

    Attributes:
        mean: of the shape of a sample.
        deviation: of a table's columns, or one number for images.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Standardize:
        """Take the statistics of a training set."""
        mean = x.double().mean(0)
        spread = (x.double() - mean).square()
        deviation = (spread.mean(0) if x.ndim == 2 else spread.mean()).sqrt()
        scale = mean.abs() if x.ndim == 2 else mean.abs().max()
        return cls(mean, torch.where(deviation <= 1e-12 * scale, torch.ones_like(deviation), deviation))

    def __call__(self, x: Tensor) -> Tensor:
        """Inputs for the network, float32."""
        return ((x.double() - self.mean) / self.deviation).float()

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Standardize:
        """From what `to_json` gave."""
        return cls(*(torch.tensor(saved[key], dtype=torch.float64) for key in ("mean", "deviation")))


def _images(path: Path, size: int | tuple[int, int] | None, grey: bool, *, labelled: bool) -> Samples:
    """A folder's images; those that cannot be read are left out, but every class needs one."""
    side = (size, size) if isinstance(size, int) else size
    loose = [] if labelled else images_in(path)
    if not labelled and not loose and not any(inside.is_dir() for inside in path.iterdir()):
        raise DataError(f"{path} holds no images and no folders of images. Known are {', '.join(IMAGE_SUFFIXES)}.")
    by_class = {} if loose else images_by_class(path)
    files = loose or [file for inside in by_class.values() for file in inside]
    pixels, skipped = readable_images(files, side, grey)
    good = [file for file in files if file not in skipped]
    lost = [name for name, inside in by_class.items() if not set(inside) - set(skipped)]
    if not good or lost:
        where = f"{path}: no image of {', '.join(lost)}" if lost and good else f"{path}: no image"
        raise DataError(f"{where} can be read: {listed_faults(skipped)}.")
    if loose:
        return Samples(torch.from_numpy(pixels), None, [], [file.name for file in good], skipped)
    class_names = list(by_class)
    y = torch.tensor([class_names.index(file.parent.name) for file in good])
    return Samples(torch.from_numpy(pixels), y, class_names, [f"{f.parent.name}/{f.name}" for f in good], skipped)


def _arrays(path: Path, *, labelled: bool) -> Samples:
    y: NDArray[Any] | None = None
    if labelled or "y" in _members(path):
        x, y = read_npz(path)
    else:
        with np.load(path, allow_pickle=False) as content:
            if "x" not in content.files:
                raise DataError(f"{path} needs the array x, and has {', '.join(content.files) or 'none'}.")
            x = content["x"]
        if x.dtype.kind not in "biuf" or x.ndim < 2:
            raise DataError(f"{path}: x must be numbers of shape (n, ...), got {x.dtype} {x.shape}.")
    if len(x) == 0:
        raise DataError(f"{path}: x has no samples.")
    if x.ndim == 3:
        x = x[:, None]
    if x.dtype != np.uint8 or x.ndim != 4:
        x = x.astype(np.float32 if np.can_cast(x.dtype, np.float32) else np.float64)
    values = torch.from_numpy(np.ascontiguousarray(x))
    names = [str(i) for i in range(1, len(x) + 1)]
    if y is None:
        return Samples(values, None, [], names)
    classes, codes = np.unique(y, return_inverse=True)
    return Samples(values, torch.from_numpy(codes.astype(np.int64)), [str(c) for c in classes], names)


def _members(path: Path) -> list[str]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return list(content.files)
    except Exception:  # read_npz says what is wrong with it
        return ["y"]


def _table(path: Path, label: str | None, shape: Sequence[int] | None, columns: Sequence[str] | None) -> Samples:
    if shape is not None and len(shape) == 1:
        table = read_table_like(path, label, shape[0], columns)
    else:
        table = read_table(path, label)
    y = None if table.y is None else torch.from_numpy(table.y)
    names = [str(i) for i in range(1, len(table.x) + 1)]
    return Samples(torch.from_numpy(table.x), y, table.class_names, names, columns=table.columns)
