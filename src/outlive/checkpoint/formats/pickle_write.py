"""Pickles of plain values and of the objects that torch wants, written without importing the classes.

Protocol 2, which every Python reads: https://github.com/python/cpython/blob/main/Lib/pickletools.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.checkpoint.remedies import OTHER_FORMAT
from outlive.run.errors import InputError

_MEMO_BYTE = 256


@dataclass(frozen=True)
class Named:
    """A class or function by its name."""

    module: str
    name: str


@dataclass(frozen=True)
class Called:
    """What a function gives."""

    function: Named
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Made:
    """An object of a class, with its state."""

    kind: Named
    state: Any = None


@dataclass(frozen=True)
class Pairs:
    """A dict with keys that are objects."""

    items: Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class Reference:
    """A persistent id: something that is kept outside of the pickle."""

    name: tuple[Any, ...]


def pickled(value: Any) -> bytes:
    """The pickle of None, booleans, integers, floats, texts, tuples, lists, dicts and of the objects above."""
    writer = _Writer()
    writer.write(value)
    return b"".join([b"\x80\x02", *writer.parts, b"."])


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.memo: dict[Any, int] = {}

    def write(self, value: Any) -> None:
        if isinstance(value, (Named, str)):
            self._remembered(value)
        elif value is None or isinstance(value, bool):
            self.parts.append({None: b"N", True: b"\x88", False: b"\x89"}[value])
        elif isinstance(value, int):
            self._integer(value)
        elif isinstance(value, float):
            self.parts.append(b"G" + struct.pack(">d", value))
        elif isinstance(value, tuple):
            self._all(b"(", value, b"t")
        elif isinstance(value, list):
            self._all(b"](", value, b"e")
        elif isinstance(value, Mapping):
            self._all(b"}(", [part for item in value.items() for part in item], b"u")
        elif isinstance(value, Pairs):
            self._all(b"}(", [part for item in value.items for part in item], b"u")
        elif isinstance(value, Called):
            self._all(b"", (value.function, value.args), b"R")
        elif isinstance(value, Made):
            self._all(b"", (value.kind, ()), b"\x81")
            self._all(b"", () if value.state is None else (value.state,), b"" if value.state is None else b"b")
        elif isinstance(value, Reference):
            self._all(b"", (value.name,), b"Q")
        else:
            raise InputError(
                f"a {type(value).__name__} is not written into pickles", fix="keep numbers, texts and lists"
            )

    def _all(self, before: bytes, values: Sequence[Any], after: bytes) -> None:
        self.parts.append(before)
        for value in values:
            self.write(value)
        self.parts.append(after)

    def _integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.parts.append(b"K" + value.to_bytes(1, "little"))
        elif -(1 << 31) <= value < 1 << 31:
            self.parts.append(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            if len(data) > 255:
                raise InputError("an integer of more than 255 bytes is not written into pickles", fix=OTHER_FORMAT)
            self.parts.append(b"\x8a" + len(data).to_bytes(1, "little") + data)

    def _remembered(self, value: Named | str) -> None:
        if (place := self.memo.get(value)) is not None:
            self.parts.append(_numbered(b"h", b"j", place))
            return
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            self.parts.append(b"X" + struct.pack("<I", len(data)) + data)
        else:
            self.parts.append(f"c{value.module}\n{value.name}\n".encode())
        self.memo[value] = len(self.memo)
        self.parts.append(_numbered(b"q", b"r", self.memo[value]))


def _numbered(short: bytes, long: bytes, place: int) -> bytes:
    return short + bytes([place]) if place < _MEMO_BYTE else long + struct.pack("<I", place)
