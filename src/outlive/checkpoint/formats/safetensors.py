"""safetensors files, read without trust: https://huggingface.co/docs/safetensors

A length (8 bytes, little end first), a JSON header of that length, then the tensors' bytes without holes or overlap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from outlive.checkpoint.tensors.dtypes import BY_CODE, DTYPES
from outlive.checkpoint.tensors.stored import File, Stored
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

MAX_HEADER = 100_000_000  # bytes, as in the format's own library
MAX_AXES = 64
_AGAIN = "copy it again from where it is whole"


class Entry(NamedTuple):
    """A tensor of a file: its dtype by name, and the bytes begin … end - 1 behind the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """What a file says it holds. `data_start`: the byte where the tensors begin."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]
    data_start: int


def open_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name. Raises InputError where it is no safetensors file, or a damaged one."""
    file = File(path)
    header = read_header(file)
    return {
        name: Stored.in_file(entry.dtype, entry.shape, file, header.data_start + entry.begin)
        for name, entry in header.entries.items()
    }


def read_header(file: File) -> Header:
    """The header of a file, every statement of it checked against the file's size. Raises InputError."""
    size = file.size
    if size < 8:
        raise _damaged(file, f"it has {size} bytes; a safetensors file begins with the length of its header")
    length = int.from_bytes(file.read(0, 8).tobytes(), "little")
    if length > MAX_HEADER:
        raise _damaged(file, f"its header would have {length:,} bytes; at most {MAX_HEADER:,} are allowed")
    if 8 + length > size:
        raise _damaged(file, f"its header would have {length:,} bytes, and the file has {size:,}")
    content = _parsed(file, file.read(8, length).tobytes())
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(file, "__metadata__ is no object of texts")
    entries = {name: _entry(file, name, about) for name, about in content.items()}
    _check_places(file, entries, size - 8 - length)
    return Header(entries, metadata, 8 + length)


def _parsed(file: File, text: bytes) -> dict[str, Any]:
    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise _damaged(file, f"its header has {twice!r} twice")
        return found

    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=without_doubles)
    except (ValueError, RecursionError) as error:
        raise _damaged(file, f"its header is no JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise _damaged(file, "its header is no JSON object")
    return content


def _entry(file: File, name: str, about: Any) -> Entry:
    try:
        code, shape, (begin, end) = about["dtype"], about["shape"], about["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _damaged(file, f"{name}: dtype, shape and two data_offsets are expected in the header") from None
    if not isinstance(shape, list) or len(shape) > MAX_AXES or not all(_is_count(length) for length in shape):
        raise _damaged(file, f"{name}: the shape is {str(shape)[:80]}")
    if not (_is_count(begin) and _is_count(end) and begin <= end):
        raise _damaged(file, f"{name}: the data_offsets are {str([begin, end])[:80]}")
    if not isinstance(code, str) or code not in BY_CODE:
        known = ", ".join(BY_CODE)
        fix = f"numbers of these formats are read: {known}"
        raise InputError(f"{name} has the dtype {str(code)[:40]!r}", where=str(file.path), fix=fix)
    dtype = BY_CODE[code]
    needed = math.prod(shape) * DTYPES[dtype].width
    if needed != end - begin:
        raise _damaged(file, f"{name}: {code} {shape} takes {needed:,} bytes, and {end - begin:,} are its own")
    return Entry(dtype, tuple(shape), begin, end)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _check_places(file: File, entries: Mapping[str, Entry], size: int) -> None:
    """Tensors follow each other, from the end of the header to the end of the file."""
    place = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != place:
            what = "overlaps the tensor before it" if entry.begin < place else "leaves a hole before it"
            raise _damaged(file, f"{name} {what}: it begins at byte {entry.begin:,} of the data, not at {place:,}")
        place = entry.end
    if place != size:
        what = "it is cut: " if place > size else ""
        raise _damaged(file, f"{what}its tensors take {place:,} bytes, and {size:,} are there")


def _damaged(file: File, why: str) -> InputError:
    return InputError(f"this is no safetensors file, or a damaged one: {why}", where=str(file.path), fix=_AGAIN)
