"""What a pickle of plain containers and NumPy arrays holds, read without Python's unpickler: nothing in it can run.

`pickletools` lists the opcodes, which only parses, and each is carried out here on plain values. Where the pickle calls
for NumPy's types, stand-ins keep what it says of shape, type and bytes; no other name is known. All that is made is a
part of the file or refers to one, so that the file's size bounds the memory.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = {*(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f4", "f8", "b1"}  # types of plain arrays
LONGEST_KEY = 1000  # characters
_NAMES = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",  # how Python 3 writes bytes in the older protocols
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "reconstruct" for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): "frombuffer" for core in ("core", "_core")},
}
_INTEGERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"}
_TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_AS_THEY_ARE = {*_INTEGERS, *_TEXTS, *_BYTES, "FLOAT", "BINFLOAT"}
_OLD_BYTES = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # of Python 2
_MADE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
}


class UnknownNameError(ValueError):
    """The pickle asks for a name that no array needs, as a function to call; it is the message."""


@dataclass(eq=False)
class _Name:
    """Stands for one of NumPy's names."""

    name: str


@dataclass(eq=False)
class _Call:
    """Stands for what NumPy would make: the name that was called, its arguments, and the state set afterwards."""

    name: str
    args: tuple[Any, ...]
    state: tuple[Any, ...] = ()


def pickled_dict(content: bytes) -> dict[Any, Any]:
    """The dict that is pickled in `content`, with the arrays among its values; empty if it is something else.

    Raises:
        UnknownNameError: the pickle asks for something that is no plain array.
        Exception: nearly any other, where the content is damaged or no pickle.
    """
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(io.BytesIO(content)):
        machine.do(opcode.name, argument)
    found = machine.stack.pop()
    if not isinstance(found, dict):
        return {}
    return {key: _array(value) if isinstance(value, _Call) else value for key, value in found.items()}


@dataclass(eq=False)
class _Machine:
    """The stack, its marks and the memo while a pickle is carried out."""

    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def do(self, name: str, argument: Any) -> None:
        """Carry out one opcode."""
        stack, memo = self.stack, self.memo
        if name in _AS_THEY_ARE:
            stack.append(argument)
        elif name in _OLD_BYTES:
            stack.append(argument.encode("latin1"))
        elif name in _MADE:
            stack.append(_MADE[name]())
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument)])
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._marked() if name == "TUPLE" else self._last(int(name[-1]))))
        elif name in ("APPEND", "APPENDS"):
            items = self._last(1) if name == "APPEND" else self._marked()
            _of(list, stack[-1]).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._last(2) if name == "SETITEM" else self._marked()
            _of(dict, stack[-1]).update(zip(map(_key, items[::2]), items[1::2], strict=True))
        elif name in ("LIST", "DICT"):
            items = self._marked()
            stack.append(items if name == "LIST" else dict(zip(map(_key, items[::2]), items[1::2], strict=True)))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            where, what = argument.split(" ", 1) if name == "GLOBAL" else (_of(str, part) for part in self._last(2))
            if (where, what) not in _NAMES:
                raise UnknownNameError(f"{where}.{what}")
            stack.append(_Name(_NAMES[where, what]))
        elif name == "REDUCE":
            called, args = self._last(2)
            stack.append(_Call(_of(_Name, called).name, _of(tuple, args)))
        elif name == "BUILD":
            (state,) = self._last(1)
            _of(_Call, stack[-1]).state = _of(tuple, state)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it has the opcode {name}")

    def _last(self, count: int) -> list[Any]:
        """Take so many values off the stack."""
        if len(self.stack) < count:
            raise ValueError("a value is missing on its stack")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _marked(self) -> list[Any]:
        """Take what stands above the last mark off the stack."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"there is {type(value).__name__} in a place where it cannot be")
    return value


def _key(value: Any) -> bytes | str:
    key = _content(value) if isinstance(value, _Call) else _of(bytes | str, value)
    if len(key) > LONGEST_KEY:
        raise ValueError(f"a key has {len(key):,} characters")
    return key


def _array(call: _Call) -> NDArray[Any]:
    """The array that a pickle describes: `_reconstruct` with a state, or protocol 5's `_frombuffer`."""
    if call.name == "reconstruct":
        _, shape, kind, fortran, content = call.state
    elif call.name == "frombuffer":
        content, kind, shape, order = call.args
        fortran = order in ("F", b"F")
    else:
        raise ValueError(f"there is {call.name} in the place of an array")
    dtype = _dtype(_of(_Call, kind))
    shape = tuple(_of(int, side) for side in _of(tuple, shape))
    content = _content(content)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {shape} does not have {len(content):,} bytes")
    flat: NDArray[Any] = np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")


def _dtype(call: _Call) -> np.dtype[Any]:
    name = call.args[0] if call.name == "dtype" and call.args else None
    name = name.decode("latin1") if isinstance(name, bytes) else name
    if name not in NUMBERS:
        raise ValueError(f"an array holds {name!r:.40}, not plain numbers")
    order = call.state[1] if len(call.state) > 1 else "|"
    order = order.decode("latin1") if isinstance(order, bytes) else order
    return np.dtype(f"{order if order in ('<', '>') else '='}{name}")


def _content(value: Any) -> bytes:
    """Bytes, which the older protocols write as text in latin1."""
    if isinstance(value, _Call) and value.name == "encode" and value.args:
        return bytes(_of(str, value.args[0]).encode("latin1"))
    return bytes(_of(bytes | bytearray, value))
