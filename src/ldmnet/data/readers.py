"""Files to arrays: idx, CIFAR-10 batches, SVHN's .mat, npz and images; tables are in `csvtables`.

Every reader takes a path and returns NumPy arrays, images as uint8 (n, channels, height, width) and labels as
int64 (n,). It trusts nothing in the file: no code in it is run, and a `DataError` names what does not fit.
"""

from __future__ import annotations

import functools
import gzip
import io
import math
import os
import struct
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldmnet.data.matfiles import mat_arrays
from ldmnet.data.npzfiles import NpzArrays, PickledError, TooLargeError
from ldmnet.data.pickles import UnknownNameError, pickled_dict
from ldmnet.errors import DataError, MissingExtraError, missing_extra
from ldmnet.files import expandable, in_bytes, memory, read_bounded

Labels = NDArray[np.int64]
Images = NDArray[np.uint8]

COMMON_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
KNOWN = f"{', '.join(COMMON_SUFFIXES)} and the other images that Pillow opens"
_NO_PICTURES = {"EPS", "PDF", "WMF", "MPEG", "BUFR", "GRIB", "HDF5", "IPTC"}  # need other programs, or are no pixels
MOST_PIXELS = 2**26  # of one image: larger ones take most of a gigabyte to read
_UNSEEN = {"thumbs.db", "desktop.ini"}  # what file managers leave; hidden files are not seen either

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_bytes(path: str | Path) -> bytes:
    """A file's content, decompressed if it is gzip (told by its first bytes, not by its name)."""
    content = read_bounded(path)
    if content[:2] != b"\x1f\x8b":
        return content
    most = expandable(len(content))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            out = file.read(most + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}. Get the file again.") from error
    if len(out) > most:
        raise DataError(
            f"{path} of {in_bytes(len(content))} becomes more than {in_bytes(most)} when it is decompressed. If you "
            "trust it, decompress it yourself (gunzip)."
        )
    return out


def read_idx(path: str | Path) -> NDArray[Any]:
    """An idx file, the format of MNIST, raw or gzipped."""
    content = read_bytes(path)
    kind, ndim = (content[2], content[3]) if len(content) >= 4 else (0, 0)
    if content[:2] != b"\0\0" or kind not in _IDX_TYPES or ndim == 0:
        raise DataError(f"{path} is not an idx file: it begins with {content[:4].hex(' ') or 'nothing'}.")
    header = 4 + 4 * ndim
    if len(content) < header:
        raise DataError(f"{path} is cut short within its header of {header} bytes. Get the file again.")
    shape = struct.unpack(f">{ndim}I", content[4:header])
    dtype = np.dtype(_IDX_TYPES[kind])
    promised, size = header + math.prod(shape) * dtype.itemsize, " x ".join(f"{d:,}" for d in shape)
    if len(content) != promised:
        raise DataError(
            f"{path} is {'cut short' if len(content) < promised else 'too long'}: its header promises {size} "
            f"values, {promised:,} bytes in all, but it holds {len(content):,}. Get the file again."
        )
    try:
        return np.frombuffer(content, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))
    except ValueError as error:  # no values, but sizes or a number of them that no array can have
        raise DataError(f"{path} has a header of {size:.200} values: no array has that shape.") from error


def read_cifar_batch(path: str | Path) -> tuple[Images, Labels]:
    """One file of CIFAR-10's python version: a pickle, of which nothing is run."""
    content = read_bytes(path)
    try:
        entries = {_text(key): value for key, value in pickled_dict(content).items()}
    except UnknownNameError as error:
        raise DataError(
            f"{path} asks for {error}, which no CIFAR-10 batch needs: it was not run. "
            "Get the file from https://www.cs.toronto.edu/~kriz/cifar.html."
        ) from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"{path} is not a CIFAR-10 batch: {type(error).__name__}: {error}.") from error
    data, labels = entries.get("data"), entries.get("labels")
    if not isinstance(data, np.ndarray) or not isinstance(labels, list | np.ndarray):
        found = ", ".join(sorted(entries)) or "none"
        raise DataError(f"{path} is not a CIFAR-10 batch: it needs the entries data and labels, and has {found}.")
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise DataError(f"{path}: data must be uint8 of shape (n, 3072), got {data.dtype} {data.shape}.")
    if isinstance(labels, list) and not all(isinstance(label, int | float) for label in labels):
        raise DataError(f"{path}: the labels must be whole numbers.")
    checked = check_labels(np.asarray(labels), len(data), path, highest=9)
    return np.array(data.reshape(-1, 3, 32, 32), order="C"), checked


def _text(key: bytes | str) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else key


def read_svhn_mat(path: str | Path) -> tuple[Images, Labels]:
    """SVHN's cropped digits, `X` (32, 32, 3, n) and `y` (n, 1) where 10 stands for the digit 0."""
    content = read_bounded(path)
    try:
        arrays = mat_arrays(content, ("X", "y"), expandable(len(content)))
    except (ValueError, zlib.error) as error:
        raise DataError(f"{path} is not a .mat file of SVHN: {error}.") from error
    if "X" not in arrays or "y" not in arrays:
        raise DataError(f"{path} is not a .mat file of SVHN: it lacks X or y, the pixels and the labels.")
    pixels, labels = arrays["X"], arrays["y"].reshape(-1)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise DataError(f"{path}: X must be uint8 of shape (32, 32, 3, n), got {pixels.dtype} {pixels.shape}.")
    checked = check_labels(labels, pixels.shape[3], path, highest=10)
    return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), np.where(checked == 10, 0, checked)


def npz_arrays(path: str | Path, *, labelled: bool = True) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The arrays `x` (n, ...) and, which may be missing unless `labelled`, `y` of an .npz file, y as it is."""
    advice = f"Save it with np.savez(path, x=x{', y=y' if labelled else ''})."
    content = read_bounded(path)
    try:
        file = NpzArrays(content, max(len(content), expandable(len(content))))
        arrays = {name: file.read(name) for name in ("x", "y") if name in file.names}
    except PickledError as error:
        names = " Save names of classes as text: np.savez(path, x=x, y=y.astype(str))." if error.args == ("y",) else ""
        raise DataError(
            f"{path}: {error} holds Python objects, which could be code and are not loaded.{names}"
        ) from error
    except TooLargeError as error:
        raise DataError(
            f"{path} of {in_bytes(len(content))} becomes {in_bytes(error.size)} when it is decompressed. If you trust "
            "it, save it with np.savez, which does not compress."
        ) from error
    except Exception as error:  # not a zip, a damaged member, or another version of the format
        raise DataError(f"{path} is not an .npz file of plain numbers, or is damaged. {advice}") from error
    missing = [name for name in ("x", "y")[: 1 + labelled] if name not in arrays]
    if missing:
        needs = "the arrays x and y" if labelled else "the array x"
        raise DataError(f"{path} needs {needs}, and has {', '.join(file.names) or 'none'}. {advice}")
    x = arrays["x"]
    if x.dtype.kind not in "biuf" or x.ndim < 2:
        raise DataError(f"{path}: x must be numbers of shape (n, ...), got {x.dtype} {x.shape}.")
    return x, arrays.get("y")


def check_labels(labels: NDArray[Any], n: int, path: str | Path, highest: int | None = None) -> Labels:
    """Labels as int64, checked: whole numbers from 0, one for each of the n samples."""
    if labels.shape != (n,):
        raise DataError(f"{path}: there are {n:,} samples but the labels have shape {labels.shape}.")
    if labels.dtype.kind not in "iu" and n:
        raise DataError(f"{path}: the labels must be whole numbers, got {labels.dtype}.")
    out = labels.astype(np.int64)
    if n and (out.min() < 0 or (highest is not None and out.max() > highest)):
        span = "0 or above" if highest is None else f"0 to {highest}"
        raise DataError(f"{path}: the labels must be {span}, got {out.min()} to {out.max()}.")
    return out


def images_by_class(path: str | Path) -> dict[str, list[Path]]:
    """The image files of `path/<class>/<image>`, sorted, by class."""
    if not Path(path).is_dir():
        raise DataError(f"{path} is not a folder.")
    folders = sorted(p for p in Path(path).iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise DataError(f"{path} has no folders. Put the images in one folder per class: {path}/<class>/<image>.")
    odd = [shown_name(folder.name) for folder in folders if shown_name(folder.name) != folder.name]
    if odd:
        raise DataError(f"{shown_name(str(path))}: the name of the folder {odd[0]} is not text in UTF-8. Rename it.")
    by_class = {folder.name: images_in(folder) for folder in folders}
    empty = [name for name, files in by_class.items() if not files]
    if empty:
        raise DataError(f"{path}: no images in {', '.join(empty)}. Known are {KNOWN}.")
    return by_class


@functools.cache
def _formats() -> dict[str, str]:
    """The endings of the images that the installed Pillow opens, with its names for their formats."""
    try:
        from PIL import Image
    except ImportError:
        return {}
    known = Image.registered_extensions()  # this loads Pillow's formats, those of Image.OPEN too
    return {end: kind for end, kind in known.items() if kind in Image.OPEN and kind not in _NO_PICTURES}


def image_suffixes() -> frozenset[str]:
    """The endings of the images that the installed Pillow opens; the common ones where there is no Pillow."""
    return frozenset(_formats() or COMMON_SUFFIXES)


def is_image(file: Path) -> bool:
    """Whether a file is an image by its name; hidden files, such as macOS' ._photo.jpg, are none."""
    return file.suffix.lower() in image_suffixes() and file.name[0] != "." and not file.is_dir()


def images_in(folder: Path) -> list[Path]:
    """A folder's image files, told by their names, sorted."""
    return [file for file in sorted(folder.iterdir()) if is_image(file)]


def beside_images(folder: Path) -> dict[Path, str]:
    """What else is in a folder of images, with why it is not read; hidden and the system's own files aside."""
    others = (p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.name.lower() not in _UNSEEN)
    return {p: "a folder" if p.is_dir() else f"ending {p.suffix or 'none'}" for p in others if not is_image(p)}


def read_images(files: Sequence[Path], size: tuple[int, int] | None, grey: bool) -> Images:
    """Image files of one size, or resized to one, as uint8 (n, channels, height, width); all must be readable."""
    images, bad = readable_images(files, size, grey)
    if bad:
        raise DataError(f"unreadable: {listed_faults(bad)}. Replace or remove them.")
    return images


def readable_images(files: Sequence[Path], size: tuple[int, int] | None, grey: bool) -> tuple[Images, dict[Path, str]]:
    """The images that can be read, as `read_images` gives them, and why each of the others cannot."""
    images: dict[Path, Images] = {}
    bad: dict[Path, str] = {}
    total = 0
    for file in files:
        try:
            images[file] = _read_image(file, size, grey)
        except MissingExtraError:
            raise
        except DataError as error:
            bad[file] = str(error).removeprefix(f"{file} ").rstrip(".")
        except Exception as error:  # a damaged image can raise nearly anything
            bad[file] = "not an image" if type(error).__name__ == "UnidentifiedImageError" else str(error)
        else:
            total += images[file].nbytes
            if total > memory() // 4:  # they are copied once
                raise DataError(
                    f"the images take more than {in_bytes(memory() // 4)} when they are read: {file} is number "
                    f"{len(images):,} of {len(files):,}. Give one smaller size for all.",
                    setting="size",
                )
    first = next(iter(images), None)
    if first is None:
        return np.zeros((0, 1 if grey else 3, *(size or (1, 1))), np.uint8), bad
    other = next((file for file, image in images.items() if image.shape != images[first].shape), None)
    if other is not None:
        (h, w), (h2, w2) = images[first].shape[1:], images[other].shape[1:]
        raise DataError(
            f"the images differ in size: {first} is {h} x {w} and {other} is {h2} x {w2}. "
            "Give one size for all, and they are resized.",
            setting="size",
        )
    return np.stack(list(images.values())), bad


def listed_faults(bad: Mapping[Path, str], shown: int = 5) -> str:
    """Files with what is wrong with them, the first ones by name."""
    more = f" and {len(bad) - shown} more" if len(bad) > shown else ""
    return ", ".join(f"{shown_name(str(file))} ({fault})" for file, fault in list(bad.items())[:shown]) + more


def shown_name(name: str) -> str:
    """A file's name as text that can be written anywhere, with escapes for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _read_image(file: Path, size: tuple[int, int] | None, grey: bool) -> Images:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise missing_extra("Pillow", "demo") from error
    content = io.BytesIO(read_bounded(file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # said below
        found = Image.open(content, formats=sorted(set(_formats().values())))  # no other: EPS would run Ghostscript
    with found as opened:
        if opened.width * opened.height > MOST_PIXELS:
            raise ValueError(f"its {opened.width:,} x {opened.height:,} pixels are more than {MOST_PIXELS:,}")
        if opened.mode[0] in "IF":
            raise ValueError(f"its pixels are of mode {opened.mode}, not 8 bits")
        image = ImageOps.exif_transpose(opened).convert("L" if grey else "RGB")
        if size is not None and image.size != (size[1], size[0]):
            image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))
