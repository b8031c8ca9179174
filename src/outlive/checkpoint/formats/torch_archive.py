"""Archives as torch.save writes them, with one tensor, one plain value or a nested state dict, written as a stream.

Format: https://docs.pytorch.org/docs/stable/notes/serialization.html.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from outlive.checkpoint.formats.pickle_names import STORAGES
from outlive.checkpoint.formats.pickle_write import Called, Named, Reference, pickled
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.run.files import HashedFile

MOST = 1 << 31  # bytes of a tensor in an archive: no number in it needs more than 32 bits
OVERHEAD = 2048  # bytes of an archive beside the numbers, at most, for a tensor of few axes
_ALIGN = 64
_UTF8, _DESCRIPTOR = 0x0800, 0x0008
_WIDE = 0xFFFFFFFF  # from here on a number of the directory is kept in its field of 64 bits
_OF_DTYPE = {dtype: name for name, dtype in STORAGES.items() if name.startswith("torch.") and name.count(".") == 1}


def write_tensor(file: HashedFile, dtype: str, shape: Sequence[int], pieces: Iterable[memoryview]) -> int:
    """Write the archive of a tensor whose bytes `pieces` are, in row-major order; return its length."""
    return _write(file, pickled(described(dtype, tuple(shape), "0")), [lambda: pieces])


def write_value(file: HashedFile, value: Any) -> int:
    """Write the archive of a plain value; return its length. InputError for what `pickled` refuses."""
    return _write(file, pickled(value), [])


def write_many(
    file: HashedFile, value: Any, storages: Sequence[Callable[[], Iterable[memoryview]]], wide: int = _WIDE
) -> int:
    """Write the archive of a nested value whose tensors are `described` with the keys "0", "1" … of `storages`, the
    bytes of each; return its length. wide: from which number on fields of 64 bits are used."""
    return _write(file, pickled(value), storages, wide)


def described(dtype: str, shape: tuple[int, ...], key: str) -> Called:
    """A tensor in a pickle; `key`: the storage that holds its numbers, in row-major order."""
    size = math.prod(shape)
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    hooks = Called(Named("collections", "OrderedDict"))
    if dtype in _OF_DTYPE:
        storage = Reference(("storage", Named("torch", _OF_DTYPE[dtype].removeprefix("torch.")), key, "cpu", size))
        return Called(Named("torch._utils", "_rebuild_tensor_v2"), (storage, 0, shape, strides, False, hooks))
    untyped = Named("torch.storage", "UntypedStorage")
    storage = Reference(("storage", untyped, key, "cpu", size * DTYPES[dtype].width))
    args = (storage, 0, shape, strides, False, hooks, Named("torch", dtype))
    return Called(Named("torch._utils", "_rebuild_tensor_v3"), args)


def _write(
    file: HashedFile, pickle: bytes, storages: Sequence[Callable[[], Iterable[memoryview]]], wide: int = _WIDE
) -> int:
    begin = file.size
    directory = [
        _member(file, begin, name, content, wide) for name, content in (("data.pkl", pickle), ("byteorder", b"little"))
    ]
    for key, pieces in enumerate(storages):
        directory.append(_streamed(file, begin, f"data/{key}", pieces(), wide))
    directory.append(_member(file, begin, "version", b"3\n", wide))
    start = file.size - begin
    file.write(b"".join(directory))
    size = file.size - begin - start
    number = len(directory)
    if number >= 0xFFFF or start >= wide or size >= wide:
        at = file.size - begin
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, number, number, size, start))
        file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, at, 1))
        number, size, start = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
    file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, number, number, size, start, 0))
    return file.size - begin


def _member(file: HashedFile, begin: int, name: str, content: bytes, wide: int) -> bytes:
    """Write a member; return its entry of the directory."""
    place, crc = file.size - begin, zlib.crc32(content)
    full = f"archive/{name}".encode()
    file.write(_local(full, _UTF8, crc, len(content), 0) + content)
    return _entry(full, _UTF8, crc, len(content), place, wide)


def _streamed(file: HashedFile, begin: int, name: str, pieces: Iterable[memoryview], wide: int) -> bytes:
    """A member whose checksum is only known at its end, where it is written. Its content begins at a multiple of 64."""
    place, full, flags = file.size - begin, f"archive/{name}".encode(), _UTF8 | _DESCRIPTOR
    head = file.size + len(_local(full, flags, 0, 0, 0)) + 4
    file.write(_local(full, flags, 0, 0, -head % _ALIGN + 4))
    crc = size = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        file.write(piece)
    file.write(struct.pack("<4sL2Q" if size >= wide else "<4s3L", b"PK\x07\x08", crc, size, size))
    return _entry(full, flags, crc, size, place, wide)


def _local(name: bytes, flags: int, crc: int, size: int, of_extra: int) -> bytes:
    """The header of a member; `of_extra`: the bytes of a field that only fills up, at least 4, or none."""
    extra = struct.pack("<2s H", b"FB", of_extra - 4) + b"Z" * (of_extra - 4) if of_extra else b""
    head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, flags, 0, 0, 0, crc, size, size, len(name), len(extra))
    return head + name + extra


def _entry(name: bytes, flags: int, crc: int, size: int, place: int, wide: int) -> bytes:
    """A member's entry of the directory. Numbers that are too large stand in the zip64 field (APPNOTE 4.5.3)."""
    large = ([size, size] if size >= wide else []) + ([place] if place >= wide else [])
    extra = struct.pack(f"<2H{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    short, at = (0xFFFFFFFF if size >= wide else size), (0xFFFFFFFF if place >= wide else place)
    version = 45 if large else 20
    numbers = (version, version, flags, 0, 0, 0, crc, short, short, len(name), len(extra), 0, 0, 0, 0, at)
    return struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *numbers) + name + extra
