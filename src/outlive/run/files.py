"""Atomic files and folders, and content hashes. What is read under its final name was written completely."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import xxhash

from outlive.run.errors import InputError, OutliveError, WorkError
from outlive.run.sizes import size

_BLOCK = 1 << 20
_TO_DISK = 64 << 20  # bytes that are written before the disk begins with them
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


def disk_error(
    error: OSError, path: Path | str, doing: str = "write", needed: int | None = None, written: int = 0
) -> WorkError:
    """The WorkError for a failed file operation: what the disk said, the path, and the usual fix.

    Where the disk is full and the size in bytes that was `needed` is known, the message names it and what was free:
    what is free now, and what was `written` of it, which will be removed.
    """
    reason = error.strerror or str(error)
    fix = "check that the path is right"
    if error.errno in _FULL:
        fix = "free some space, or use another disk"
        if needed is not None:
            reason += f": {size(needed)} are needed, {size(free_space(Path(path)) + written)} are free"
    if error.errno == errno.EFBIG:
        fix = "raise the limit on the size of a file (ulimit -f), or use a disk that takes larger ones"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        fix = "raise the limit on open files (ulimit -n)"
    elif error.errno in _DENIED:
        fix = "make the folder writable, or use another"
    elif error.errno == errno.ENOENT and doing == "write":
        fix = "a folder on this path was removed or moved meanwhile: put it back, and leave it alone"
    return WorkError(f"could not {doing}: {reason}", where=str(path), fix=fix)


def free_space(path: Path) -> int:
    """Bytes that this user may still write on the disk of `path`, which need not exist. 0 where it can't be told."""
    path = Path(path).absolute()
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(place).free
    return 0


def writable(text: str) -> str:
    """The text with each half of a surrogate pair, which UTF-8 can't hold, as its escape: so are file names that are no
    UTF-8, and keys of rows. In JSON it is the same text."""
    return text.encode("utf-8", "backslashreplace").decode()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write `data` (text as UTF-8) so that `path` holds the old content or the whole new one, also after a crash.

    Missing parent folders are made. Raises WorkError (full disk, no permission …); then no temporary file stays.
    """
    path = Path(path)
    content = writable(data).encode() if isinstance(data, str) else data
    temporary = sibling(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_synced(temporary, content)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


@contextmanager
def building_folder(final: Path, if_exists: Literal["refuse", "keep"] = "refuse") -> Iterator[Path]:
    """A new folder beside `final` to build in: renamed to `final` when the block ends well, removed when it raises.

    Files and folders are fsynced before the rename, so a folder under its final name is complete. Builders of the same
    `final` never see each other's files; the first to finish wins. With `if_exists="refuse"` an existing `final` is an
    InputError, at the start or at the end; with "keep" the finished one stays and this builder's work is removed.
    A full disk inside the block is raised as WorkError; any other error passes as it is.
    """
    final = Path(final)
    if if_exists == "refuse" and os.path.lexists(final):
        raise _exists(final)
    building = sibling(final)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        building.mkdir()
    except OSError as error:
        raise disk_error(error, final, "make a folder") from error
    try:
        yield building
        place_folder(building, final, if_exists)
    except OutliveError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise disk_error(error, final) from error
        raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


class HashedFile:
    """A file that is being written: its size so far and the xxh3-128 of its bytes, which `write` alone has read."""

    def __init__(self, descriptor: int) -> None:
        self.size = self._on_its_way = 0
        self._descriptor, self._digest = descriptor, xxhash.xxh3_128()

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data` (a memoryview of bytes)."""
        view = memoryview(data)
        for start in range(0, len(view), _BLOCK):  # hashed block by block, while the block is in the cache
            block = view[start : start + _BLOCK]
            self._digest.update(block)
            while block:
                written = os.write(self._descriptor, block)
                self.size += written
                block = block[written:]
        if self.size - self._on_its_way >= _TO_DISK:
            self._begin_to_disk()

    def _begin_to_disk(self) -> None:
        """Let the disk begin, so that the fsync at the end has little left to wait for. Linux does so when it is told
        that pages are not needed, and keeps those that are not on the disk yet."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                length = self.size - self._on_its_way
                os.posix_fadvise(self._descriptor, self._on_its_way, length, os.POSIX_FADV_DONTNEED)
        self._on_its_way = self.size

    @property
    def hexdigest(self) -> str:
        """The xxh3-128 of what was written, as 32 hex digits."""
        return self._digest.hexdigest()


@contextmanager
def hashed_file(path: Path, needed: int | None = None) -> Iterator[HashedFile]:
    """A new file under `path`, hashed while it is written and fsynced at the end.

    `needed`: its size in bytes, where it is known before, for the message of a full disk. Raises WorkError where the
    disk refuses; the file's folder is not fsynced, and what was written of it stays.
    """
    written = 0
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        file = HashedFile(descriptor)
        try:
            yield file
            os.fsync(descriptor)
        finally:
            written = file.size
            os.close(descriptor)
    except OSError as error:
        raise disk_error(error, path, needed=needed, written=written) from error


def hash_file(path: Path) -> str:
    """The xxh3-128 of a file's bytes as 32 hex digits, read in blocks. InputError when there is no such file."""
    digest = xxhash.xxh3_128()
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path), fix="check that the path is right") from error
    except OSError as error:
        raise disk_error(error, path, "read") from error
    return digest.hexdigest()


def hash_bytes(data: bytes) -> str:
    """The xxh3-128 of `data` as 32 hex digits."""
    return xxhash.xxh3_128(data).hexdigest()


def hash_json(value: object) -> str:
    """The hash of a JSON value, independent of key order and white space. ValueError for NaN and infinities."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hash_bytes(text.encode())


def sibling(path: Path) -> Path:
    """A new name beside `path`, for what is not finished: a dot in front, random digits and .tmp behind."""
    # The leading dot keeps half-made things out of listings and globs; the random part keeps builders apart.
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")


def unfinished(path: Path) -> list[Path]:
    """What builders of `path` that were killed left beside it, or are still writing there."""
    named = re.compile(re.escape(f".{path.name[:100]}.") + r"[0-9a-f]{16}\.tmp")
    try:
        return sorted(found for found in path.parent.iterdir() if named.fullmatch(found.name))
    except OSError:
        return []


def _exists(final: Path) -> InputError:
    return InputError("this exists already", where=str(final), fix="use another name, or remove it first")


def place_folder(building: Path, final: Path, if_exists: Literal["refuse", "keep"] = "refuse") -> None:
    """Give a folder that is complete its final name, once all that is in it is on the disk; see `building_folder`."""
    _sync_tree(building)
    try:
        os.rename(building, final)
    except OSError as error:
        if not os.path.lexists(final):
            raise disk_error(error, final) from error
        if if_exists == "keep" and final.is_dir():
            return
        raise _exists(final) from error
    sync_folder(final.parent)


def _write_synced(path: Path, content: bytes) -> None:
    # Mode 0o666 is narrowed by the umask, as for any other new file (tempfile would make it private).
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                _sync(path)
        sync_folder(Path(folder))


def sync_folder(folder: Path) -> None:
    """Bring a folder's own entries to the disk: names made, renamed or removed in it."""
    if os.name == "posix":  # elsewhere a folder can't be opened, and the rename itself is durable enough
        _sync(str(folder))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
