"""What a pickle of plain containers and NumPy arrays holds; nothing in it can run.

Python's unpickler, the one written in Python, carries out the opcodes that such a pickle needs and no others. Where the
pickle calls for NumPy's names it gets stand-ins, which keep what it says of shape, type and bytes; no other name is
known. All that is made is a part of the file or refers to one, so that the file's size bounds the memory.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

NUMBERS = {*(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f4", "f8", "b1"}  # types of plain arrays
LONGEST_KEY = 1000  # characters
OPCODES = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING "
    "BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS SETITEM SETITEMS "
    "PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD"
)


class UnknownNameError(ValueError):
    """The pickle asks for a name that no array needs, as a function to call; it is the message."""


class _Kept:
    """Stands for what NumPy would make: the arguments of the call, and the state that is set afterwards."""

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        self.state = _of(tuple, state)


class _Dtype(_Kept): ...


class _Reconstructed(_Kept): ...


class _FromBuffer(_Kept): ...


class _Encoded(_Kept): ...


_NAMES = {
    ("numpy", "ndarray"): _Kept,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encoded,  # how Python 3 writes bytes in the older protocols
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Reconstructed for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _FromBuffer for core in ("core", "_core")},
}


class _Entries(dict[Any, Any]):
    """A dict whose keys are bytes or text: Python could not take the hash of a tuple that is nested deep enough."""

    def __setitem__(self, key: Any, value: Any) -> None:
        key = _content(key) if isinstance(key, _Kept) else _of(bytes | str, key)
        if len(key) > LONGEST_KEY:
            raise ValueError(f"a key has {len(key):,} characters")
        super().__setitem__(key, value)


class _Unpickler(pickle._Unpickler):
    """The opcodes above, with stand-ins for what they make; text of Python 2 becomes bytes."""

    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise UnknownNameError(f"{module}.{name}")
        return _NAMES[module, name]

    def load_empty_dict(self) -> None:
        self.stack.append(_Entries())

    def load_dict(self) -> None:
        items, entries = self.pop_mark(), _Entries()  # type: ignore[attr-defined]
        for key, value in zip(items[::2], items[1::2], strict=True):
            entries[key] = value
        self.stack.append(entries)

    dispatch: ClassVar[dict[int, Any]] = {
        **{code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in OPCODES.split())},
        pickle.BYTEARRAY8[0]: pickle._Unpickler.dispatch[pickle.BINBYTES8[0]],  # whose room is not made beforehand
        pickle.EMPTY_DICT[0]: load_empty_dict,
        pickle.DICT[0]: load_dict,
    }


def pickled_dict(content: bytes) -> dict[Any, Any]:
    """The dict that is pickled in `content`, with the arrays among its values; empty if it is something else.

    Raises:
        UnknownNameError: the pickle asks for something that is no plain array.
        Exception: nearly any other, where the content is damaged or no pickle.
    """
    found = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(found, dict):
        return {}
    return {key: _array(value) if isinstance(value, _Kept) else value for key, value in found.items()}


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"there is {type(value).__name__} in a place where it cannot be")
    return value


def _array(kept: _Kept) -> NDArray[Any]:
    """The array that a pickle describes: `_reconstruct` with a state, or protocol 5's `_frombuffer`."""
    if isinstance(kept, _Reconstructed):
        _, shape, kind, fortran, content = kept.state
    else:
        content, kind, shape, order = _of(_FromBuffer, kept).args
        fortran = order in ("F", b"F")
    dtype, content = _dtype(_of(_Dtype, kind)), _content(content)
    shape = tuple(_of(int, side) for side in _of(tuple, shape))
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {shape} does not have {len(content):,} bytes")
    flat: NDArray[Any] = np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")


def _dtype(kept: _Dtype) -> np.dtype[Any]:
    name, order = (part.decode("latin1") if isinstance(part, bytes) else part for part in (kept.args[0], kept.state[1]))
    if not isinstance(name, str) or name not in NUMBERS:
        raise ValueError(f"an array holds {name!r:.40}, not plain numbers")
    return np.dtype(f"{order if order in ('<', '>') else '='}{name}")


def _content(value: Any) -> bytes:
    """Bytes, which the older protocols write as text in latin1."""
    return bytes(_of(str, value.args[0]).encode("latin1") if isinstance(value, _Encoded) else _of(bytes, value))
