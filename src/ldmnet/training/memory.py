"""Freed memory that is kept: a training step frees and asks again for the same tens of megabytes."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process keep the memory that its tensors free, in place of handing it back to the system.

    By default glibc hands large blocks back as soon as they are free, and the next step pays for fresh pages, each
    cleared by the system: for some networks much of the time, for others nothing (docs/performance.md). No result
    changes. The process then stays as large as it ever was; memory on a GPU is not touched.

    Returns:
        Whether it took effect: there is nothing to set where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # no such function, or no way to ask for it
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))
