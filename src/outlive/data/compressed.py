"""Compressed files of rows: unpacked once, and kept by their content."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from outlive.data.kept import Kept
from outlive.data.rows_file import compression
from outlive.run.errors import InputError
from outlive.run.files import free_space, hash_file
from outlive.run.sizes import size

_BLOCK = 1 << 20
_RESERVE = 64 << 20  # bytes of the disk that are left for others
_ENDINGS = (".gz", ".bz2", ".xz", ".zst")
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, pa.ArrowInvalid, ValueError)


def unpacked(path: Path, say: Callable[[str], None]) -> Path:
    """The file itself, or what it is the compressed form of, by its first bytes.

    Raises InputError for a damaged one, and WorkError where the disk can't hold what is in it; nothing stays then.
    """
    kind = compression(path)
    if kind is None:
        return path
    name = path.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    kept = Kept(hash_file(path), name)
    if not kept.is_there:
        say(f"unpacking {path} ({size(path.stat().st_size)}) to {kept.path}")
        with kept.writing() as write:
            try:
                with _opened(path, kind) as stream:
                    while block := stream.read(_BLOCK):
                        _refuse_full(kept.path, path)
                        write(block)
            except _DAMAGED as error:
                fix = "get the file again from where it comes from"
                raise InputError(f"the {kind} file is damaged: {error}", where=str(path), fix=fix) from error
            except OSError as error:
                if error.errno is not None:
                    raise
                fix = "get the file again from where it comes from"
                raise InputError(f"the {kind} file is damaged: {error}", where=str(path), fix=fix) from error
    return kept.path


def _opened(path: Path, kind: str) -> IO[bytes] | Any:
    if kind == "zstd":
        return pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    if kind == "gzip":
        return gzip.open(path, "rb")
    return bz2.open(path, "rb") if kind == "bzip2" else lzma.open(path, "rb")


def _refuse_full(target: Path, source: Path) -> None:
    if free_space(target) < _RESERVE:
        raise InputError(
            f"the disk of {target.parent} is full before all of the file is unpacked",
            where=str(source),
            fix="free some space, or name another disk with OUTLIVE_HOME",
        )
