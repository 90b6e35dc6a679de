"""Who works on what: a lock file with its owner's name, which the system gives up when the owner is gone."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ldmnet.errors import StateError

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked
    fcntl = None  # type: ignore[assignment]


class BusyError(StateError):
    """Another process is at work there; `owner` names it."""

    def __init__(self, lock: Path, owner: str) -> None:
        super().__init__(f"{lock.parent} is being written by {owner}. Wait for it, or choose another folder.")
        self.owner = owner


@contextmanager
def owned(lock: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file; folders that were made for it are removed again if nothing else is in them.

    Args:
        lock: the file.
        wait: until another process is done, in place of `BusyError`.
    """
    tries, made = 100, [folder for folder in lock.parents if not folder.exists()]
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = lock.open("a+", encoding="utf-8", errors="replace")
        except FileNotFoundError:  # its owner took the folder away again just now
            if (tries := tries - 1) > 0:
                continue
            raise
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                    break  # otherwise its owner gave it up just now, and took it away
        except BlockingIOError as error:
            if not wait:
                file.seek(0)
                raise BusyError(lock, file.read(200) or "another process") from error
            time.sleep(0.05)
        file.close()
    try:
        with suppress(OSError):  # a full disk: the name is for people, the lock holds without it
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        lock.unlink(missing_ok=True)
        file.close()
        with suppress(OSError):  # not empty
            for folder in made:
                folder.rmdir()
