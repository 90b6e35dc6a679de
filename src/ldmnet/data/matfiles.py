"""Arrays of whole numbers in MATLAB's .mat files of version 5, as SVHN's: a header, then elements with a tag each.

Only what these files need is read, and every type, class and size is checked before it is used.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER = 128  # bytes
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}  # of stored data
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}  # of arrays
MATRIX, COMPRESSED = 14, 15
COMPLEX = 0x08  # a bit of an array's flags


def mat_arrays(content: bytes, names: tuple[str, ...], most: int) -> dict[str, NDArray[Any]]:
    """The arrays of some names.

    Args:
        content: of the file.
        names: which arrays to read; others are passed over.
        most: bytes that a compressed array may have.

    Raises:
        ValueError: the content is of another kind, or damaged.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or content[124:126] not in (b"\x00\x01", b"\x01\x00"):
        raise ValueError("its header is not that of a .mat file of version 5")
    found: dict[str, NDArray[Any]] = {}
    place = HEADER
    while place < len(content):
        kind, part, place = _element(content, place, order)
        if kind == COMPRESSED:
            kind, part, _ = _element(_inflated(part, most), 0, order)
        if kind == MATRIX:
            name, array = _matrix(part, names, order)
            if array is not None:
                found[name] = array
    return found


def _element(content: bytes, place: int, order: str) -> tuple[int, bytes, int]:
    """The type and the data of the element at a place, and where the next one is."""
    if place + 8 > len(content):
        raise ValueError("it is cut short within a tag")
    first, size = (int(v) for v in np.frombuffer(content, f"{order}u4", 2, place))
    if first >> 16:  # a small element: up to four bytes within the tag
        if first >> 16 > 4:
            raise ValueError("a small element is too long")
        return first & 0xFFFF, content[place + 4 : place + 4 + (first >> 16)], place + 8
    end = place + 8 + size
    if end > len(content):
        raise ValueError(f"it is cut short: an element promises {size:,} bytes")
    return first, content[place + 8 : end], end if first == COMPRESSED else place + 8 + -(-size // 8) * 8


def _inflated(part: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(part, most)
    if stream.unconsumed_tail:
        raise ValueError(f"an array takes more than {most:,} bytes when it is decompressed")
    if not stream.eof:
        raise ValueError("a compressed array is cut short")
    return content


def _matrix(part: bytes, names: tuple[str, ...], order: str) -> tuple[str, NDArray[Any] | None]:
    """The name of an array and, if it is one of `names`, the array."""
    kind, flags, place = _element(part, 0, order)
    if (kind, len(flags)) != (6, 8):
        raise ValueError("an array has no flags")
    word = int(np.frombuffer(flags, f"{order}u4")[0])
    kind, sides, place = _element(part, place, order)
    if kind != 5 or len(sides) % 4:
        raise ValueError("an array has no dimensions")
    shape = tuple(int(side) for side in np.frombuffer(sides, f"{order}i4"))
    kind, label, place = _element(part, place, order)
    name = label.decode("latin1")
    if kind != 1 or name not in names:
        return name, None
    if word & 0xFF not in CLASSES or word >> 8 & COMPLEX:
        raise ValueError(f"{name} is not an array of real numbers")
    kind, values, _ = _element(part, place, order)
    if kind not in TYPES:
        raise ValueError(f"{name} is stored as type {kind}, which holds no numbers")
    dtype = np.dtype(f"{order}{TYPES[kind]}")
    if len(shape) < 2 or min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"{name} of shape {shape} does not have {len(values):,} bytes")
    array = np.frombuffer(values, dtype).reshape(shape, order="F")
    with np.errstate(invalid="ignore"):  # a fraction or a NaN that is stored for whole numbers
        return name, array.astype(CLASSES[word & 0xFF], casting="unsafe")
