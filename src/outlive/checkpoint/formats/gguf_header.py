"""The header of a GGUF file, read without trust: every length is held against the bytes that are there, before use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from outlive.checkpoint.formats.gguf_types import (
    ARRAY,
    BOOL,
    DEFAULT_ALIGNMENT,
    ELEMENTS,
    MAGIC,
    MAX_AXES,
    SCALARS,
    STRING,
    padded,
)  # fmt: skip
from outlive.checkpoint.tensors.dtypes import Array
from outlive.checkpoint.tensors.stored import File
from outlive.run.errors import InputError

MAX_HEADER = 1 << 26  # bytes: a vocabulary of 256,000 tokens with its merges takes less than 20 million
_MAX_DEPTH = 4  # arrays in arrays
# What a header may hold is bounded by the memory that it takes, too: in texts, of which the largest vocabularies have
# 0.8 million with their merges; tensors, values and arrays in arrays take as much as several.
_MAX_TEXTS, _TENSOR, _VALUE, _INNER_ARRAY = 1 << 21, 8, 8, 64
_MAX_ALIGNMENT = 1 << 20
_WINDOW = 1 << 20  # bytes of the file that are read at once
_LEAST_VALUE, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes that each takes at least
_AGAIN = "copy it again from where it is whole"


class Info(NamedTuple):
    """A tensor of a file: the code of its elements' type, its shape (rows first), and where it begins in the file."""

    code: int
    shape: tuple[int, ...]
    offset: int


class Header(NamedTuple):
    """What a file says it holds. `kv`: numbers and texts as Python has them; arrays of numbers as numpy's, of the width
    that they have in the file; arrays of texts and of arrays as lists. `types`: the code of each value's type."""

    version: int
    kv: Mapping[str, Any]
    types: Mapping[str, int]
    tensors: Mapping[str, Info]


def read_header(file: File) -> Header:
    """The header of a file. Raises InputError where it is no GGUF file of version 2 or 3, or a damaged one."""
    cursor = Cursor(file)
    if cursor.take(4).tobytes() != MAGIC:
        raise damaged(file, "it doesn't begin with the letters GGUF")
    version = cursor.integer("<u4")
    if version not in (2, 3):
        big = version in (2 << 24, 3 << 24)
        what = "is one for machines with the big end first" if big else f"has version {version}"
        raise InputError(f"this GGUF file {what}", where=str(file.path), fix="use one of version 3, little end first")
    num_tensors, num_values = cursor.count(_LEAST_TENSOR, _TENSOR), cursor.count(_LEAST_VALUE, _VALUE)
    kv: dict[str, Any] = {}
    types: dict[str, int] = {}
    for _ in range(num_values):
        key, code = cursor.text(), cursor.integer("<u4")
        if key in kv:
            raise damaged(file, f"it has the key {key[:80]!r} twice")
        kv[key], types[key] = _value(cursor, code), code
    alignment = _alignment(file, kv, types)
    stated: dict[str, Info] = {}
    for _ in range(num_tensors):
        name, info = cursor.text(), _info(cursor)
        if name in stated:
            raise damaged(file, f"it has the tensor {name[:80]!r} twice")
        stated[name] = info
    return Header(version, kv, types, _placed(file, stated, padded(cursor.place, alignment), alignment))


class Cursor:
    """A file read from its beginning on, within the bounds of the file and of a header."""

    def __init__(self, file: File) -> None:
        self.file, self.place, self.size = file, 0, file.size
        self._window, self._begin, self._texts_left = b"", 0, _MAX_TEXTS

    def take(self, length: int) -> Array:
        """The next bytes, uint8. Raises InputError where there are not so many."""
        self._reserve(length)
        data = self.file.read(self.place, length)
        self.place += length
        return data

    def integer(self, raw: str) -> int:
        """The next number, of one of numpy's types of integers."""
        width = int(raw[-1])
        return int.from_bytes(self._near(width), "little")

    def scalar(self, raw: str) -> Any:
        """The next number, of one of numpy's types."""
        return np.frombuffer(self._near(np.dtype(raw).itemsize), raw)[0].item()

    def text(self) -> str:
        """The next text: its length, then its bytes."""
        length = self.integer("<u8")
        try:
            return self._near(length).decode("utf-8")
        except UnicodeDecodeError:
            raise damaged(self.file, f"a text that ends at byte {self.place:,} is no UTF-8") from None

    def count(self, least: int, texts: int = 0) -> int:
        """The next number of things that take `least` bytes each, or more, and the memory of `texts` texts."""
        number = self.integer("<u8")
        if number * least > self.size - self.place:
            raise damaged(self.file, f"it says that {number:,} things follow at byte {self.place:,}, where its end is")
        self._texts_left -= number * texts
        if self._texts_left < 0:
            raise damaged(
                self.file, f"its header has more than {_MAX_TEXTS:,} texts, or things that take as much memory"
            )
        return number

    def _reserve(self, length: int) -> None:
        if length > self.size - self.place:
            what = f"{length:,} bytes should follow at byte {self.place:,}, and the file has {self.size:,}"
            raise damaged(self.file, what)
        if self.place + length > MAX_HEADER:
            raise damaged(self.file, f"its header has more than {MAX_HEADER:,} bytes")

    def _near(self, length: int) -> bytes:
        """The next bytes, out of a window of the file."""
        self._reserve(length)
        begin = self.place - self._begin
        if begin + length > len(self._window):
            end = min(self.place + max(length, _WINDOW), self.size)
            self._window, self._begin, begin = self.file.read(self.place, end - self.place).tobytes(), self.place, 0
        self.place += length
        return self._window[begin : begin + length]


def damaged(file: File, why: str) -> InputError:
    """The error of a file that is not what its bytes say."""
    return InputError(f"this is no GGUF file, or a damaged one: {why}", where=str(file.path), fix=_AGAIN)


def _value(cursor: Cursor, code: int, depth: int = 0) -> Any:
    if code == STRING:
        return cursor.text()
    if code == ARRAY and depth < _MAX_DEPTH:
        return _array(cursor, depth)
    if code not in SCALARS:
        raise damaged(cursor.file, f"a value before byte {cursor.place:,} has the type {code}")
    value = cursor.scalar("<u1" if code == BOOL else SCALARS[code])
    return bool(value) if code == BOOL else value


def _array(cursor: Cursor, depth: int) -> Any:
    code = cursor.integer("<u4")
    if code in (STRING, ARRAY):
        number = cursor.count(8, 1) if code == STRING else cursor.count(12, _INNER_ARRAY)
        return [_value(cursor, code, depth + 1) for _ in range(number)]
    if code not in SCALARS:
        raise damaged(cursor.file, f"an array before byte {cursor.place:,} has values of the type {code}")
    raw = np.dtype(SCALARS[code])
    number = cursor.count(raw.itemsize)
    values = cursor.take(number * raw.itemsize)
    return values != 0 if code == BOOL else values.view(raw)


def _alignment(file: File, kv: Mapping[str, Any], types: Mapping[str, int]) -> int:
    if "general.alignment" not in kv:
        return DEFAULT_ALIGNMENT
    value = kv["general.alignment"]
    if types["general.alignment"] != 4 or not 0 < value <= _MAX_ALIGNMENT or value & (value - 1):
        raise damaged(file, f"general.alignment is {str(value)[:40]}, and no power of two")
    return int(value)


def _info(cursor: Cursor) -> Info:
    axes = cursor.integer("<u4")
    if axes > MAX_AXES:
        raise damaged(cursor.file, f"a tensor before byte {cursor.place:,} has {axes:,} axes")
    lengths = [cursor.integer("<u8") for _ in range(axes)]
    code, offset = cursor.integer("<u4"), cursor.integer("<u8")
    return Info(code, tuple(reversed(lengths)), offset)  # the file names the innermost axis first


def _placed(file: File, stated: Mapping[str, Info], start: int, alignment: int) -> dict[str, Info]:
    """The tensors with their places in the file. They follow each other without holes, as llama.cpp asks for, too."""
    found, place, size = {}, 0, file.size
    for name, info in stated.items():
        if info.code not in ELEMENTS:
            fix = "use a file of another quantisation"
            raise InputError(f"{name} has elements of the type {info.code}", where=str(file.path), fix=fix)
        element = ELEMENTS[info.code]
        row = info.shape[-1] if info.shape else 1
        if row % element.block:
            raise damaged(file, f"{name}: rows of {row:,} are not of whole blocks of {element.name} ({element.block})")
        if math.prod(length for length in info.shape if length) >= 1 << 60:
            raise damaged(file, f"{name} has the shape {info.shape}")
        if info.offset != place:
            raise damaged(file, f"{name} begins at byte {info.offset:,} of the data, not at {place:,}")
        length = math.prod(info.shape) // element.block * element.num_bytes
        if length and start + place + length > size:
            raise damaged(
                file, f"{name} reaches to byte {start + place + length:,}, and the file has {size:,}: it is cut"
            )
        found[name] = Info(info.code, info.shape, start + place)
        place += padded(length, alignment)
    return found
