"""Arrays in .npz files, one at a time: type and size are checked before anything is decompressed."""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any

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
        if info.file_size > self._left:
            raise TooLargeError(info.file_size)
        self._left -= info.file_size
        with self._zip.open(info) as file:
            header = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = header(file)
            if dtype.hasobject:
                raise PickledError(name)
            if math.prod(shape) * dtype.itemsize > info.file_size:  # read_array makes room for all of it
                raise ValueError("its header does not fit its size")
            file.seek(0)
            array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
        return array
