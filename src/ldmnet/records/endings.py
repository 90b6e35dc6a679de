"""Runs that end, but badly: what their warnings said, for the records."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ldmnet.errors import BadEndWarning


@contextmanager
def bad_ends() -> Iterator[list[str]]:
    """Gives a list that collects the sentences of each `BadEndWarning`; all other warnings are shown as before."""
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", BadEndWarning)
        show = warnings.showwarning

        def hear(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, BadEndWarning):
                show(message, category, filename, lineno, file, line)
            elif str(message) not in found:
                found.append(str(message))

        warnings.showwarning = hear
        yield found
