"""Arrays in .npz files, one at a time: shape, type and size are checked before anything is decompressed."""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


class PickledError(ValueError):
    """An array holds Python objects; its name is the message."""


class TooLargeError(ValueError):
    """An array has more bytes than may be read."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")
        self.size = size


class NpzArrays:
    """The arrays of an .npz file.

    Args:
        content: of the file.
        most: bytes that the arrays which are read may have together.

    Attributes:
        names: of the arrays.
    """

    def __init__(self, content: bytes, most: int) -> None:
        self._zip = zipfile.ZipFile(io.BytesIO(content))
        self._left = most
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
        self.names = list(self._members)

    def read(self, name: str) -> NDArray[Any]:
        """One array, of numbers or text.

        Raises:
            PickledError: it holds Python objects.
            TooLargeError: it has more bytes than may be read.
            Exception: nearly any other, where the file is damaged.
        """
        info = self._members[name]
        with self._zip.open(info) as file:
            version = npy.read_magic(file)
            if version not in ((1, 0), (2, 0), (3, 0)):
                raise ValueError(f"its format has the version {version}")
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = header(file)
            if dtype.hasobject:
                raise PickledError(name)
            size = math.prod(shape) * dtype.itemsize
            if max(size, info.file_size) > self._left:
                raise TooLargeError(max(size, info.file_size))
            self._left -= size
            if min(shape, default=0) < 0 or size > info.file_size:
                raise ValueError("its header does not fit its size")
            content = file.read(size + 1)
        if len(content) != size:
            raise ValueError("its header does not fit its content")
        flat: NDArray[Any] = np.frombuffer(content, dtype) if size else np.zeros(math.prod(shape), dtype)
        return np.array(flat.reshape(shape, order="F" if fortran else "C"), order="K")
