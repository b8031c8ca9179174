"""Locks that the kernel keeps: one process holds a file's lock, and it is free at once when that process ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

if sys.platform != "win32":
    import fcntl

# What a file system answers that has no flock (some network and user-space ones).
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}


def lock(path: Path, on_held: Callable[[bytes], None]) -> int | None:
    """The descriptor that holds the lock of the file `path`, which is made; None where there are no locks.

    While another descriptor holds it, this waits; before that `on_held` is called once with the file's content, and may
    raise. Locks are on open files: they also hold off the own process, and forked children keep them. OSError where
    the file can't be made or opened.
    """
    if sys.platform == "win32":
        return None
    said = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not said:
                    on_held(os.pread(descriptor, 1 << 16, 0))
                    said = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(path, descriptor):
                return descriptor
            os.close(descriptor)  # its holder removed it while it was opened here
        except OSError as error:
            os.close(descriptor)
            if error.errno in NO_LOCKS:
                return None
            raise
        except BaseException:
            os.close(descriptor)
            raise


class _Held(Exception):
    """Another descriptor holds the lock."""


def try_lock(path: Path) -> int | None:
    """As `lock`, without waiting: None as well where another descriptor holds it."""

    def held(content: bytes) -> None:
        raise _Held

    try:
        return lock(path, held)
    except _Held:
        return None


def unlock(path: Path, descriptor: int) -> None:
    """Remove the lock's file while it is still held, and let it go."""
    if _is_still(path, descriptor):
        with contextlib.suppress(OSError):
            path.unlink()
    os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
