"""Compressed files of rows: unpacked once, and kept by their content."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
                for block in _blocks(path, kind):
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


def _blocks(path: Path, kind: str) -> Iterator[bytes]:
    """What is in a compressed file, all of its streams, in blocks. Raises one of _DAMAGED."""
    if kind == "bzip2":
        return _streams(path, bz2.BZ2Decompressor)
    if kind == "xz":
        return _streams(path, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=4)
    return _read(path, kind)


def _read(path: Path, kind: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        opened: Any = pa.CompressedInputStream(file, "zstd") if kind == "zstd" else gzip.GzipFile(fileobj=file)
        with opened as stream:
            while block := stream.read(_BLOCK):
                yield block


def _streams(path: Path, decompressor: Callable[[], Any], padding: int = 0) -> Iterator[bytes]:
    """Stream after stream to the file's end. Python's own readers leave out, without a word, all that follows on
    bytes which are no stream.

    `padding`: between streams and behind them the form allows zeros, in multiples of so many bytes.
    """
    with path.open("rb") as file:
        data = file.read(_BLOCK)
        while data:
            stream = decompressor()
            while not stream.eof:
                if stream.needs_input and not data and not (data := file.read(_BLOCK)):
                    raise EOFError("it ends in the middle of a stream")
                block, data = stream.decompress(data, _BLOCK), b""
                if block:
                    yield block
            data = stream.unused_data or file.read(_BLOCK)
            num_zeros = 0
            while padding and data[:1] == b"\0":
                rest = data.lstrip(b"\0")
                num_zeros += len(data) - len(rest)
                data = rest or file.read(_BLOCK)
            if padding and num_zeros % padding:
                raise EOFError("what follows a stream is none")


def _refuse_full(target: Path, source: Path) -> None:
    if free_space(target) < _RESERVE:
        raise InputError(
            f"the disk of {target.parent} is full before all of the file is unpacked",
            where=str(source),
            fix="free some space, or name another disk with OUTLIVE_HOME",
        )
