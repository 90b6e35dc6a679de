"""Files written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Gives a place beside `path` to write to, which becomes `path` if nothing goes wrong and is gone otherwise.

    The file has the permissions that the user's umask gives a new file, whatever the library that writes it prefers.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")  # with the same ending
    try:
        temporary.unlink(missing_ok=True)
        temporary.touch(exist_ok=False)
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    with written_whole(path) as place:
        place.write_text(text, encoding="utf-8")
