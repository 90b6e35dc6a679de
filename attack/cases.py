"""What the parts share: numbered cases that a seed repeats, run in forked processes with limits of memory and time.

A part is a class with `run(start, stop)`, which yields one `Outcome` per case. A case is drawn from the seed, the
part's name and the case's number alone, so that any case can be run again, and an attack can be cut and resumed.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import pickle
import random
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY = 2**30  # bytes that a case may take beyond what the process had before it
SECONDS = 10.0  # that a case of a reader may take
GOOD = frozenset(
    {"right", "refused", "told", "fewer whole lines"}
)  # the same result; an error of ours; a warning of ours


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        case: its number.
        kind: the reader, the command or the check.
        end: "right", "refused" (an error of ours), "told" (a warning of ours); anything else is a failure.
        words: what was seen, of a failure.
    """

    case: int
    kind: str
    end: str
    words: str = ""


def draw_of(seed: int, part: str, case: int) -> random.Random:
    """The random numbers of a case."""
    return random.Random(f"{seed}:{part}:{case}")


def limit_memory(more: int = MEMORY) -> None:
    """Let this process take so many bytes beyond what it has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def forked(work: Callable[[], int], log: Path, *, seconds: float, memory: int = 2 * MEMORY) -> int:
    """The exit code of some work in a process of its own: minus the signal if one ended it, 99 if time did."""
    pid = begin(work, log, memory=memory)
    return ended(pid, seconds)


def begin(work: Callable[[], int], log: Path, *, memory: int = 2 * MEMORY) -> int:
    """Start some work in a process of its own, whose output goes to a file."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        for name, number in (("stdout", 1), ("stderr", 2)):
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        faulthandler.disable()
        limit_memory(memory)
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 71
        os._exit(code)


def ended(pid: int, seconds: float) -> int:
    """Wait for a process and its group; end them when the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code
        time.sleep(0.002)
    kill_group(pid)
    os.waitpid(pid, 0)
    return 99


def kill_group(pid: int) -> None:
    """Kill a process of `begin` and what it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def in_batches(
    case: Callable[[int], tuple[str, str, str]], start: int, stop: int, *, size: int = 500, memory: int = MEMORY
) -> Iterator[Outcome]:
    """Run cases in forked processes, many in each; one that ends its process costs that case alone.

    Args:
        case: from a number to (kind, end, words).
        start: the first number.
        stop: behind the last.
        size: how many a process does at most.
        memory: bytes that a process may take.
    """
    while start < stop:
        last = min(stop, start + size)
        at, kind, results, broken = _batch(case, start, last, memory)
        yield from results
        if broken:
            yield Outcome(at, kind, broken)
            start = at + 1
        else:
            start = last


def _batch(
    case: Callable[[int], tuple[str, str, str]], start: int, stop: int, memory: int
) -> tuple[int, str, list[Outcome], str]:
    """One process's cases: where it was, what was done, and how it broke, if it did."""
    place = mmap.mmap(-1, 128)  # shared: the number of the case that is under way, and when it began
    reader, writer = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _serve(case, start, stop, place, writer, memory)
    os.close(writer)
    parts: list[bytes] = []
    broken = ""
    while True:
        ready, _, _ = select.select([reader], [], [], 1.0)
        if ready:
            part = os.read(reader, 2**20)
            if not part:
                break
            parts.append(part)
        elif time.monotonic() - struct.unpack_from("d", place, 8)[0] > SECONDS and struct.unpack_from("d", place, 8)[0]:
            broken = f"longer than {SECONDS:g} s"
            os.kill(pid, signal.SIGKILL)
    os.close(reader)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    at = struct.unpack_from("q", place, 0)[0]
    kind = bytes(place[16:80]).rstrip(b"\0").decode()
    place.close()
    content, results = b"".join(parts), []
    while content:
        (length,) = struct.unpack_from("I", content)
        if len(content) < 4 + length:
            break
        results.append(Outcome(*pickle.loads(content[4 : 4 + length])))
        content = content[4 + length :]
    if code != 0 and not broken:
        broken = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return at, kind, results, broken


def _serve(case: Callable[..., Any], start: int, stop: int, place: mmap.mmap, writer: int, memory: int) -> None:
    """Do cases, and write each outcome to the pipe as it comes."""
    code = 1
    try:
        limit_memory(memory)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(writer, "wb", buffering=0) as out:  # what was done is known, whatever comes
            for number in range(start, stop):
                struct.pack_into("qd", place, 0, number, time.monotonic())
                place[16:80] = bytes(64)
                try:
                    kind, end, words = case(number)
                except Exception as error:
                    kind, end, words = "the attack itself", "broken", short(error)
                content = pickle.dumps((number, kind, end, words))
                out.write(struct.pack("I", len(content)) + content)
            struct.pack_into("d", place, 8, 0.0)
        code = 0
    finally:
        os._exit(code)


def short(error: BaseException) -> str:
    """An error with the place where it was raised, in one line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]} ({Path(last.filename).name}:{last.lineno})"
