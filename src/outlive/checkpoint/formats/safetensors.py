"""Files in the safetensors format: https://huggingface.co/docs/safetensors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from outlive.checkpoint.formats.inside import regular_file
from outlive.checkpoint.formats.strided import checked_shape
from outlive.checkpoint.tensors.dtypes import BY_CODE, DTYPES
from outlive.checkpoint.tensors.stored import File, Stored
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

_MOST = 100_000_000  # bytes of a header, as in the format's own library


@dataclass(frozen=True)
class Entry:
    """A tensor of the file: begin and end are bytes from the start of the data on."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What stands in front of the data, which begins at byte `data_start`."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    data_start: int


def read_header(file: File) -> Header:
    """The header of a file. InputError where it is damaged, or does not fit the file."""
    size = file.size
    length = int.from_bytes(file.read(0, 8).tobytes(), "little") if size >= 8 else -1
    if not 0 < length <= min(_MOST, size - 8):
        _fail("it has no header", file)
    try:
        content = json.loads(file.read(8, length).tobytes(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        _fail(f"its header is damaged: {str(error)[:200]}", file)
    if not isinstance(content, dict):
        _fail("its header is damaged", file)
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        _fail("its metadata is no list of texts", file)
    entries = {name: _entry(name, value, file) for name, value in content.items()}
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            _fail("tensors overlap, or there are bytes that belong to none", file)
        end = entry.end
    if 8 + length + end != size:
        _fail(f"it has {size:,} bytes instead of {8 + length + end:,}", file)
    return Header(entries, metadata, 8 + length)


def open_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, by name."""
    file = File(regular_file(path))
    header = read_header(file)
    return {
        name: Stored.in_file(entry.dtype, entry.shape, file, header.data_start + entry.begin)
        for name, entry in header.entries.items()
    }


def _entry(name: str, value: Any, file: File) -> Entry:
    if not isinstance(value, dict):
        _fail(f"the entry of {name[:200]} is damaged", file)
    dtype = BY_CODE.get(value["dtype"]) if isinstance(value.get("dtype"), str) else None
    if dtype is None:
        _fail(f"{name[:200]} is of the type {str(value.get('dtype'))[:40]}, which is not known", file)
    shape = checked_shape(value.get("shape"), name[:200], str(file.path))
    offsets = value.get("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        _fail(f"the entry of {name[:200]} is damaged", file)
    begin, end = offsets
    size = DTYPES[dtype].width
    for length in shape:
        size *= length
    if begin < 0 or end - begin != size:
        _fail(f"the bytes of {name[:200]} do not fit its shape", file)
    return Entry(dtype, shape, begin, end)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name stands there twice")
    return content


def _fail(what: str, file: File) -> NoReturn:
    fix = "copy it again from where it is whole"
    raise InputError(f"the safetensors file can't be read: {what}", where=str(file.path), fix=fix)
