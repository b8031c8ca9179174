"""Atomic files and folders, and content hashes. What is read under its final name was written completely."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import xxhash

from outlive.run.errors import InputError, OutliveError, WorkError

_BLOCK = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


def disk_error(error: OSError, path: Path | str, doing: str = "write") -> WorkError:
    """The WorkError for a failed file operation: what the disk said, the path, and the usual fix."""
    reason = error.strerror or str(error)
    fix = "check that the path is right"
    if error.errno in _FULL:
        fix = "free some space, or use another disk"
    elif error.errno in _DENIED:
        fix = "make the folder writable, or use another"
    return WorkError(f"could not {doing}: {reason}", where=str(path), fix=fix)


def writable(text: str) -> str:
    """The text with each half of a surrogate pair, which UTF-8 can't hold, written as \\udXXX: so are file names that
    are no UTF-8, and keys of rows. In JSON it is the same text."""
    return text.encode("utf-8", "backslashreplace").decode()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write `data` (text as UTF-8) so that `path` holds the old content or the whole new one, also after a crash.

    Missing parent folders are made. Raises WorkError (full disk, no permission …); then no temporary file stays.
    """
    path = Path(path)
    content = writable(data).encode() if isinstance(data, str) else data
    temporary = _sibling(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_synced(temporary, content)
        os.replace(temporary, path)
        _sync_folder(path.parent)
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
    building = _sibling(final)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        building.mkdir()
    except OSError as error:
        raise disk_error(error, final, "make a folder") from error
    try:
        yield building
        _sync_tree(building)
        _place(building, final, if_exists)
    except OutliveError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise disk_error(error, final) from error
        raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def hash_file(path: Path) -> str:
    """The xxh3-128 of a file's bytes as 32 hex digits, read in blocks. InputError when there is no such file."""
    digest = xxhash.xxh3_128()
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path)) from error
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


def _sibling(path: Path) -> Path:
    # The leading dot keeps half-made things out of listings and globs; the random part keeps builders apart.
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")


def _exists(final: Path) -> InputError:
    return InputError("this exists already", where=str(final), fix="use another name, or remove it first")


def _place(building: Path, final: Path, if_exists: Literal["refuse", "keep"]) -> None:
    try:
        os.rename(building, final)
    except OSError as error:
        if not os.path.lexists(final):
            raise disk_error(error, final) from error
        if if_exists == "keep" and final.is_dir():
            return
        raise _exists(final) from error
    _sync_folder(final.parent)


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
        _sync_folder(Path(folder))


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder can't be opened, and the rename itself is durable enough
        _sync(str(folder))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
