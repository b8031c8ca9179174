"""The C library's memory, for work in which blocks of some MiB come and go by the thousand."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h in glibc
_KEPT = 64 << 20


def keep_freed_blocks() -> None:
    """Let this process keep up to 64 MiB that it has freed, for the next block. By default glibc gives a large block
    back to the kernel at once, and the next is made of new pages, each of them zeroed: converting float32 to bfloat16
    took two to three times as long. Without glibc nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _KEPT // 2)  # the most that glibc takes on 64-bit machines is 32 MiB
        mallopt(_TRIM_THRESHOLD, _KEPT)
