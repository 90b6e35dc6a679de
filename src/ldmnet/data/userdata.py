"""Someone's own data: an .npz file, a CSV table or a folder of images by class, told apart by what is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldmnet.data.csvtables import LARGEST, read_table, read_table_like, sorted_classes
from ldmnet.data.readers import (
    KNOWN,
    beside_images,
    check_labels,
    images_by_class,
    images_in,
    is_image,
    listed_faults,
    npz_arrays,
    readable_images,
    shown_name,
)
from ldmnet.data.samples import Samples, row_names
from ldmnet.errors import DataError, InputError
from ldmnet.seeds import generator

__all__ = ["Samples", "read_samples", "share_split"]

TABLES = (".csv", ".tsv", ".txt")
CHANNELS = (1, 3, 4)  # that an image may have
KINDS = "an .npz file, a CSV table or a folder with one folder of images per class"


def read_samples(
    path: str | Path,
    *,
    label: str | None = None,
    size: int | tuple[int, int] | None = None,
    grey: bool = False,
    shape: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
) -> Samples:
    """Read .npz, CSV, a folder of images or, where labels may be missing, one image.

    Args:
        path: the file or folder.
        label: the CSV table's label column, see `read_table`.
        size: resize images to (height, width), or to a square.
        grey: read images with one channel.
        shape: of the samples that a network was trained on. With it the labels may be missing: an .npz without y, a
            table without the label column, a folder with the images in it, an image.
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
        samples = _arrays(path, shape)
    elif path.suffix.lower() in TABLES:
        if shape is not None and len(shape) == 1:
            samples = read_table_like(path, label, shape[0], columns)
        else:
            samples = read_table(path, label)
    elif shape is not None and is_image(path):
        samples = _images(path, size, grey, labelled=False)
    else:
        raise DataError(f"{path} is neither {KINDS.replace(' or ', ' nor ')}.")
    if not torch.isfinite(samples.x).all():
        raise DataError(f"{path}: x has NaN or infinite values. Remove or fill them.")
    if samples.x.is_floating_point() and samples.x.abs().max() > LARGEST:
        raise DataError(f"{path}: x has values beyond {LARGEST:.2g}, the largest that a network can take. Scale them.")
    if shape is not None and tuple(samples.x.shape[1:]) != tuple(shape):
        given = tuple(samples.x.shape[1:])
        raise DataError(f"{path}: a sample has shape {given} but in training it had {tuple(shape)}.")
    if shape is None and len(samples.class_names) < 2:
        raise DataError(f"{path} has one class only, {samples.class_names[0]!r}. A classifier needs two or more.")
    if shape is None and bool((samples.x == samples.x[:1]).all()):
        raise DataError(f"{path}: all {len(samples.x)} samples are the same, so nothing can be learned from them.")
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


def _images(path: Path, size: int | tuple[int, int] | None, grey: bool, *, labelled: bool) -> Samples:
    """A folder's images, or one; those that cannot be read are left out, but every class needs one."""
    side = (size, size) if isinstance(size, int) else size
    loose = [path] if path.is_file() else [] if labelled else images_in(path)
    if not labelled and not loose and not any(inside.is_dir() for inside in path.iterdir()):
        raise DataError(f"{path} holds no images and no folders of images. Known are {KNOWN}.")
    by_class = {} if loose else images_by_class(path)
    files = loose or [file for inside in by_class.values() for file in inside]
    pixels, skipped = readable_images(files, side, grey)
    good = [file for file in files if file not in skipped]
    lost = [name for name, inside in by_class.items() if not set(inside) - set(skipped)]
    if not good or lost:
        where = f"{path}: no image of {', '.join(lost)}" if lost and good else f"{path}: no image"
        raise DataError(f"{where} can be read: {listed_faults(skipped)}.")
    notes = _left_out(path, by_class)
    if loose:
        return Samples(
            torch.from_numpy(pixels), None, [], [shown_name(file.name) for file in good], skipped, notes=notes
        )
    class_names = list(by_class)
    place = {name: i for i, name in enumerate(class_names)}
    y = torch.tensor([place[file.parent.name] for file in good])
    names = [f"{file.parent.name}/{shown_name(file.name)}" for file in good]
    return Samples(torch.from_numpy(pixels), y, class_names, names, skipped, notes=notes)


def _left_out(path: Path, by_class: Iterable[str]) -> tuple[str, ...]:
    """One sentence about what is beside the images and not read; none where there is nothing."""
    folders = [path / name for name in by_class]
    others = {
        file: why for folder in folders or [path] if folder.is_dir() for file, why in beside_images(folder).items()
    }
    if folders:
        others |= dict.fromkeys(images_in(path), "in no class's folder")
    count = "1 entry" if len(others) == 1 else f"{len(others)} entries"
    return (f"left out {count} beside the images: {listed_faults(others)}",) if others else ()


def _arrays(path: Path, shape: Sequence[int] | None) -> Samples:
    x, y = npz_arrays(path, labelled=shape is None)
    if x.size == 0:
        fault = "no samples" if len(x) == 0 else f"samples without values: its shape is {x.shape}"
        raise DataError(f"{path}: x has {fault}.")
    x, notes = _channels_first(x, path, shape)
    if x.ndim == 3:
        x = x[:, None]
    if x.dtype != np.uint8 or x.ndim != 4:
        x = x.astype(np.float32 if np.can_cast(x.dtype, np.float32) else np.float64)
    values = torch.from_numpy(np.ascontiguousarray(x))
    codes, class_names = (None, []) if y is None else _classes(y, len(x), path)
    return Samples(values, codes, class_names, row_names(len(x)), notes=notes)


def _channels_first(x: NDArray[Any], path: Path, shape: Sequence[int] | None) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Images as (n, channels, height, width), with a sentence if they were not, or may not have been."""
    if x.ndim != 4 or x.shape[3] not in CHANNELS or (shape is not None and x.shape[1:] == tuple(shape)):
        return x, ()
    _, first, middle, last = x.shape
    given = f"{path}: x of shape {x.shape} is read as images of"
    if first not in CHANNELS and last < min(first, middle):
        return x.transpose(0, 3, 1, 2), (f"{given} {first} x {middle} pixels with the channels last",)
    if first in CHANNELS:
        return x, (f"{given} {middle} x {last} pixels with the channels first; transpose them if they are last",)
    return x, ()


def _classes(y: NDArray[Any], n: int, path: Path) -> tuple[Tensor, list[str]]:
    """Labels as positions in the names of the classes, which are whole numbers, text, bytes or bool."""
    if y.dtype.kind in "US" and y.shape == (n,):
        try:
            text = y.astype(np.str_) if y.dtype.kind == "U" else np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: the labels are bytes that are not text in UTF-8: {error.object!r}.") from error
        unique, codes = np.unique(text, return_inverse=True)
        order, class_names = sorted_classes(unique.tolist(), path)
        return torch.from_numpy(order[codes]), class_names
    classes, codes = np.unique(
        y if y.dtype.kind == "b" and y.shape == (n,) else check_labels(y, n, path), return_inverse=True
    )
    return torch.from_numpy(codes.astype(np.int64)), [str(c) for c in classes]
