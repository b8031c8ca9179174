"""Files that can be fetched or unpacked again, kept in $OUTLIVE_HOME/sources: whole as they were written, or not at
all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import xxhash

from outlive.run.files import disk_error, hash_file, sibling, sync_folder, write_atomic
from outlive.run.flock import lock, try_lock, unlock
from outlive.run.home import outlive_home

_ABOUT = ".written"  # beside a file: its size and hash, as it was written


class Kept:
    """One of them. `key`: a hash of what decides its content; `name`: its file's name."""

    def __init__(self, key: str, name: str) -> None:
        self.path = outlive_home() / "sources" / key / (name or "rows")

    @property
    def is_there(self) -> bool:
        """Whether the file is there as it was written: its size and hash are compared."""
        try:
            about = self.path.stat()
            written = json.loads((self.path.parent / _ABOUT).read_bytes())
            if not self.path.is_file() or written["size"] != about.st_size:
                return False
            return bool(written["xxh3_128"] == _hash(self.path, about.st_size, about.st_mtime_ns, about.st_ino))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    @contextmanager
    def writing(self) -> Iterator[Callable[[bytes], int]]:
        """Write it, block by block. It has its name when the block ends well; else nothing stays. Raises WorkError.

        What killed processes left half written, of this file or another, is removed.
        """
        temporary, descriptor = sibling(self.path), None
        digest, num_bytes = xxhash.xxh3_128(), 0

        def write(data: bytes) -> int:
            nonlocal num_bytes
            digest.update(data)
            num_bytes += len(data)
            return file.write(data)

        try:
            _sweep(self.path.parent.parent)
            descriptor = _held(temporary)
            with temporary.open("wb") as file:
                yield write
                file.flush()
                os.fsync(file.fileno())
            about = {"size": num_bytes, "xxh3_128": digest.hexdigest()}
            write_atomic(self.path.parent / _ABOUT, json.dumps(about))
            os.replace(temporary, self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from error
        finally:
            if descriptor is not None:
                os.close(descriptor)
            with contextlib.suppress(OSError):
                temporary.unlink()
            if not self.path.exists():
                with contextlib.suppress(OSError):
                    (self.path.parent / _ABOUT).unlink()
            _remove_empty(self.path.parent)


def _held(temporary: Path) -> int | None:
    """The descriptor that holds the lock of a new file, so that nobody sweeps it; None where there are no locks."""
    for _ in range(9):
        temporary.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has swept the folder, which was empty till now
            return lock(temporary, lambda content: None)
    return lock(temporary, lambda content: None)


def _sweep(sources: Path) -> None:
    """Remove half-written files that no living process holds. Where there are no locks nobody knows, and they stay."""
    for left in sources.glob("*/.*.tmp"):
        with contextlib.suppress(OSError):
            descriptor = try_lock(left)
            if descriptor is not None:
                unlock(left, descriptor)
                _remove_empty(left.parent)


def _remove_empty(folder: Path) -> None:
    """Remove a folder of `sources`, and those above it, where nothing is in them."""
    with contextlib.suppress(OSError):
        for place in (folder, *list(folder.parents)[:2]):
            place.rmdir()


@lru_cache(maxsize=1024)
def _hash(path: Path, size: int, mtime_ns: int, inode: int) -> str:
    """The file's hash, read again once something of it is another."""
    return hash_file(path)
