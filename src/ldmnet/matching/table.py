"""Samples with an identity, seen in two modalities: the table that protocols draw from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldmnet.data.npzfiles import NpzArrays
from ldmnet.errors import DataError, InputError
from ldmnet.files import expandable, read_bounded

SPLITS = ("train", "test", "gallery", "probe")
Describe = Callable[[NDArray[Any]], Tensor]  # images (n, ...) to descriptors (n, d)


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

    @cached_property
    def twins(self) -> int:
        """How many samples equal, number for number, a sample of another person."""
        people: dict[bytes, set[int]] = defaultdict(set)
        keys = [sha256(row.numpy().tobytes()).digest() for row in self.x]
        for key, person in zip(keys, self.identity.tolist(), strict=True):
            people[key].add(person)
        return sum(len(people[key]) > 1 for key in keys)

    def notes(self) -> str:
        """What was left out, and what is odd about the samples, in words; empty if nothing."""
        odd = f"{self.twins} samples are the same as a sample of another person: are they one?" if self.twins else ""
        return "; ".join(filter(None, (self.note, odd)))

    def prepared(self, train: Tensor) -> Tensor:
        """All rows with the training rows' mean removed, divided by the table's scale."""
        centred = self.x - self.x[train].mean(0)
        if self.scale is not None:
            return centred / self.scale
        size = float(centred[train].square().sum(1).mean().sqrt())
        return centred / size if size > 0 else centred


def two_modalities(
    name: str, first: NDArray[Any], second: NDArray[Any], identities: tuple[Sequence[Any], Sequence[Any]],
    modalities: tuple[str, str], describe: Describe | None = None, **more: Any,
) -> MatchTable:  # fmt: skip
    """A table from one array per modality, the gallery's first, and the identities of their rows."""
    if first.shape[1:] != second.shape[1:]:
        raise DataError(
            f"{name}: the samples of {modalities[0]} have shape {first.shape[1:]} but those of {modalities[1]} "
            f"{second.shape[1:]}. Resize one of them, or use features of equal length."
        )
    people, identity = np.unique(np.concatenate([np.asarray(part) for part in identities]), return_inverse=True)
    x = as_inputs(np.concatenate([first, second]), name, describe)
    return MatchTable(
        name,
        x,
        torch.from_numpy(identity.astype(np.int64)),
        torch.repeat_interleave(torch.arange(2), torch.tensor([len(first), len(second)])),
        tuple(map(str, people)),
        modalities,
        **more,
    )


def standardised(images: NDArray[Any] | Tensor) -> Tensor:
    """Every image flattened, with mean 0 and deviation 1; an image of one colour becomes zero."""
    flat = torch.as_tensor(images).flatten(1).float()
    flat = flat - flat.mean(1, keepdim=True)
    deviation = flat.square().mean(1, keepdim=True).sqrt()
    return flat / deviation.where(deviation > 1e-6, torch.ones_like(deviation))


def as_inputs(x: NDArray[Any], name: str, describe: Describe | None = None) -> Tensor:
    """Images (n, h, w, ...) described, or standardised one by one; descriptors (n, d) as they are; all finite."""
    bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
    if len(bad):
        raise DataError(
            f"{name}: x has NaN or infinite values in {len(bad)} of {len(x)} rows, the first in row {bad[0]}."
        )
    if describe is not None:
        return describe(x)
    x = x.astype(np.float32)  # whatever the order of its bytes
    return standardised(x) if x.ndim > 2 else torch.from_numpy(x)


def read_npz_arrays(path: str | Path, needed: Sequence[str], advice: str = "") -> Mapping[str, NDArray[Any]]:
    """All arrays of an .npz file, the needed ones among them."""
    content = read_bounded(path)
    try:
        file = NpzArrays(content, max(len(content), expandable(len(content))))
        arrays = {name: file.read(name) for name in file.names}
    except Exception as error:  # not a zip, a damaged member, or Python objects inside
        raise DataError(f"{path} is not an .npz file of plain arrays, or is damaged. {advice}".rstrip()) from error
    missing = [name for name in needed if name not in arrays]
    if missing:
        found = ", ".join(arrays) or "none"
        raise DataError(f"{path} lacks the arrays {', '.join(missing)}; it has {found}. {advice}".rstrip())
    return arrays
