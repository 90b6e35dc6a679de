"""One way to write a file, whole or not at all, and one way to read what somebody else may have made."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from ldmnet.errors import DataError, LDMNetError

UNPACKED, UNPACKED_TIMES = 256 * 2**20, 20  # of what a compressed file may become: bytes, and times its size
NO_MEMORY_KNOWN = 16 * 2**30  # bytes that are assumed where the system does not tell
WHOLE_NUMBERS = 2**64  # beyond, JSON's numbers are nobody's seed or count
SUM, SUM_DIGITS = "sum", 12  # the last name in an object with a checksum, and its hexadecimal digits
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_count = itertools.count()


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Gives a place to write to, which becomes `path` if nothing goes wrong and is gone otherwise.

    A link stays, and the file that it names is written. What is not a regular file, as a device or a pipe, is written
    through. The file has the permissions that the user's umask gives a new file, whatever the library that writes it
    prefers, and the disk has it, and its name, when this ends.
    """
    through = _stream(path)
    if through is not None:
        with _naming(path), tempfile.TemporaryDirectory(prefix="ldmnet-") as folder:
            place = Path(folder, path.name)
            place.touch()
            yield place
            with place.open("rb") as source, through() as out:
                shutil.copyfileobj(source, out)
        return
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(path.parent)
    private = path.parent / f"{_prefix()}{os.getpid()}-{next(_count)}"
    temporary = private / path.name
    try:
        with _naming(path):
            private.mkdir()
            temporary.touch(exist_ok=False)
            mode = stat.S_IMODE(temporary.stat().st_mode)
            yield temporary
            temporary.chmod(mode)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    with written_whole(path) as place:
        place.write_bytes(text.encode())


def append_line(path: Path, line: str) -> None:
    """Add a line to a file of lines; the disk has it when this ends, and a write that fails is taken back."""
    new = not path.exists()
    with _naming(path), path.open("ab", buffering=0) as file:
        before, left = file.seek(0, os.SEEK_END), memoryview(f"{line}\n".encode())
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(before)
            raise
    if new:
        _sync_folder(path.parent)


def mend_tail(path: Path) -> None:
    """End a file of JSON lines with a whole line: what a cut left of the last one is dropped, with a warning."""
    with _naming(path), path.open("rb+") as file:
        whole, tail = torn(file.read())
        if tail:
            warnings.warn(f"{path}: {_cut_short(tail)} and was dropped.", UserWarning, stacklevel=3)
            file.truncate(len(whole))
        if whole and not whole.endswith(b"\n"):
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())


def torn(content: bytes) -> tuple[bytes, bytes]:
    """JSON lines without the last one if it is only a part of one, and that part; a newline may be missing."""
    end = content.rfind(b"\n") + 1
    try:
        if content[end:]:
            json.loads(content[end:])
    except (ValueError, RecursionError):
        return content[:end], content[end:]
    return content, b""


def _cut_short(tail: bytes) -> str:
    return f"the last line was cut short after {len(tail)} bytes ({tail[:40].decode(errors='replace')!r})"


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in an error that does not, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno not in (None, errno.EPIPE):
            error.filename = str(path)
        raise


def _stream(path: Path) -> Callable[[], BinaryIO] | None:
    """How to open what must be written through: a standard stream, a device, a pipe; None for a file or a new name."""
    try:
        there = path.stat()
    except OSError:
        return None
    for number in (1, 2):  # /dev/stdout: where it was sent to a file, the stream's own place in the file counts
        with suppress(OSError):
            if os.path.samestat(there, os.fstat(number)):
                sys.stdout.flush()
                return lambda: os.fdopen(os.dup(number), "wb")
    if stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return None if stat.S_ISREG(there.st_mode) else lambda: path.open("wb")


@cache
def _prefix() -> str:
    """What the names of temporary folders begin with on this machine, or in this container: where a pid is one."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return f".ldmnet-{hashlib.sha256(f'{socket.gethostname()} {space}'.encode()).hexdigest()[:8]}-"


def clear_leftovers(folder: Path) -> None:
    """Remove the temporary folders of writes whose process was killed."""
    if os.name == "nt":  # where one cannot ask whether a process lives without ending it
        return
    for place in folder.glob(f"{_prefix()}*"):
        pid = place.name[len(_prefix()) :].split("-")[0]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(place, ignore_errors=True)
        except (OSError, ValueError, OverflowError):
            continue


def _sync_folder(folder: Path) -> None:
    """Have the disk keep a folder's new names, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(handle)
    finally:
        os.close(handle)


def read_bounded(path: str | Path, most: int | None = None, error: type[LDMNetError] = DataError) -> bytes:
    """The content of a regular file of at most `most` bytes.

    Args:
        path: the file; a pipe or a device, which may never end, is refused.
        most: half of the memory unless given.
        error: what is raised.
    """
    most = most or memory() // 2
    try:
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            there = os.fstat(file.fileno())
            if not stat.S_ISREG(there.st_mode):
                raise error(f"{path} cannot be read: it is not a regular file.")
            if there.st_size <= most:
                return file.read(there.st_size)
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror or fault}.") from fault
    except ValueError as fault:  # a name with a zero byte in it
        raise error(f"{path!r} cannot be read: {fault}.") from fault
    raise error(f"{path} has {in_bytes(there.st_size)}, more than the {in_bytes(most)} that can be read.")


def read_json_lines(path: Path, error: type[LDMNetError] = DataError) -> list[Any]:
    """The values of a file of JSON lines; a last line that a cut left is left out, with a warning."""
    whole, tail = torn(read_bounded(path, error=error))
    if tail and whole:  # a single line that cannot be read was perhaps never one of these
        warnings.warn(f"{path}: {_cut_short(tail)} and is left out.", UserWarning, stacklevel=3)
    found = []
    for number, line in enumerate((whole or tail).splitlines(), 1):
        try:
            found.append(parse_json(line.decode()))
        except ValueError as fault:
            raise error(f"{path}, line {number}, is not a record: {fault}.") from fault
    return found


def read_json(path: Path, error: type[LDMNetError] = DataError) -> Any:
    """The value of a JSON file."""
    content = read_bounded(path, error=error)
    try:
        return parse_json(content.decode())
    except ValueError as fault:
        raise error(f"{path} cannot be read: {fault}.") from fault


def parse_json(text: str) -> Any:
    """A JSON value whose numbers are finite and of a size that can be counted with, and whose text can be written.

    Raises:
        ValueError: it is none, or an object of `sealed_json` that does not have its checksum.
    """
    try:
        found = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as fault:
        raise ValueError("it is nested too deeply") from fault
    if isinstance(found, dict) and found:
        _unsealed(text, found)
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > 21 or abs(number := int(text)) > WHOLE_NUMBERS:
        raise ValueError(f"{text[:20]}... is a number of more than 64 bits")
    return number


def json_text(content: Any) -> str:
    """A value as JSON that `parse_json` reads: a number that is not finite becomes null."""
    try:
        return json.dumps(content, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(content), allow_nan=False)


def sealed_json(content: dict[str, Any]) -> str:
    """An object as one line of JSON that ends with a checksum of all before it, which `parse_json` compares."""
    text = json_text({key: value for key, value in content.items() if key != SUM})[:-1]
    return f'{text}, "{SUM}": "{_sum(text)}"}}'


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:SUM_DIGITS]


def _unsealed(text: str, found: dict[str, Any]) -> None:
    """Take the checksum from an object, if it has one and it is right; a name of it that was damaged counts, too."""
    last = next(reversed(found), "")
    damaged_name = len(last) == len(SUM) and re.fullmatch(f"[0-9a-f]{{{SUM_DIGITS}}}", str(found[last]))
    if SUM not in found and not damaged_name:
        return
    body, _, seal = text.rstrip().rpartition(", ")
    if seal != f'"{SUM}": "{_sum(body)}"}}':
        raise ValueError(
            f"it does not have its checksum, so it is damaged or was edited. If you edited it, remove {SUM!r} from it"
        )
    del found[SUM]


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


@cache
def memory() -> int:
    """Bytes of memory that this process may have."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        return whole if limit == resource.RLIM_INFINITY else min(whole, limit)
    except (ImportError, AttributeError, OSError, ValueError):
        return NO_MEMORY_KNOWN


def expandable(size: int) -> int:
    """How many bytes may come out of a compressed file of this size: real data shrinks a few times, a trap 1,000."""
    return min(max(UNPACKED, UNPACKED_TIMES * size), memory() // 2)


def in_bytes(count: int) -> str:
    """A number of bytes in words."""
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:,} bytes"
