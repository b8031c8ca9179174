"""Files of JSON Lines that are written while a run goes on: each line whole, a cut last one mended, no NaN in JSON."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from outlive.run.errors import InputError
from outlive.run.files import disk_error, writable

Made = TypeVar("Made")
_TAIL = 1 << 16


class Appender:
    """Appends lines to a file; each is in the file when `write` returns, on the disk after `sync`.

    A last line that a crash cut, one of which `make` raises ValueError, is taken off first. WorkError when the disk
    refuses.
    """

    def __init__(self, path: Path, make: Callable[[dict[str, Any]], object] = dict) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            _end_last_line(self.descriptor, make)
        except OSError as error:
            raise disk_error(error, path) from error

    def write(self, lines: bytes) -> None:
        """Append whole lines as one write, so that lines of two processes never mix."""
        try:
            if os.write(self.descriptor, lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the disk took a part of it: it is full
        except OSError as error:
            raise disk_error(error, self.path) from error

    def sync(self) -> None:
        """Wait until all that was written, and the file's name, is on the disk."""
        try:
            os.fsync(self.descriptor)
            if os.name == "posix":
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Line(NamedTuple):
    """One line: its 1-based number, its bytes without the line break, and what was made of its object."""

    number: int
    raw: bytes
    value: Any


def read_lines(path: Path, make: Callable[[dict[str, Any]], Made]) -> Iterator[Line]:
    """The lines of a file with what `make` makes of each object. A line for which it raises ValueError is InputError.

    A last line without a line break that can't be read was cut by a crash: its value is None. OSError where the file
    can't be read.
    """
    lines = path.read_bytes().split(b"\n")
    for number, raw in enumerate(lines, start=1):
        is_last = number == len(lines)
        if not raw and is_last:
            return
        try:
            value = make(json_object(raw))
        except ValueError as error:
            if not is_last:
                fix = "remove the line"
                raise InputError(f"this is no record: {error}", where=f"{path}:{number}", fix=fix) from error
            yield Line(number, raw, None)
        else:
            yield Line(number, raw, value)


def json_object(line: bytes) -> dict[str, Any]:
    """The object of a line. ValueError where it holds none."""
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("a record is a JSON object")
    return value


def to_line(values: Mapping[str, Any]) -> str:
    """An object as one line of JSON. NaN and infinities, which JSON lacks, become null and are named in `nonfinite`:
    key → "nan", "inf" or "-inf"; at a depth the keys are joined as in a JSON Pointer (RFC 6901) without its first
    slash."""
    nonfinite: dict[str, str] = {}
    clean = _finite(dict(values), (), nonfinite)
    if nonfinite:
        clean["nonfinite"] = nonfinite
    return writable(json.dumps(clean, ensure_ascii=False, allow_nan=False, default=str)) + "\n"


def nonfinite_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a line's `nonfinite` names. ValueError where it is damaged."""
    named = values.get("nonfinite", {})
    return {key: float(str(value)) for key, value in named.items()} if isinstance(named, dict) else {}


def _finite(value: Any, place: tuple[str, ...], nonfinite: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        nonfinite["/".join(part.replace("~", "~0").replace("/", "~1") for part in place)] = str(float(value))
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item, (*place, str(key)), nonfinite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, (*place, str(number)), nonfinite) for number, item in enumerate(value)]
    return value


def _end_last_line(descriptor: int, make: Callable[[dict[str, Any]], object]) -> None:
    size = os.fstat(descriptor).st_size
    tail_at = max(0, size - _TAIL)
    os.lseek(descriptor, tail_at, os.SEEK_SET)
    tail = b""
    while block := os.read(descriptor, _TAIL):
        tail += block
    last = tail[tail.rfind(b"\n") + 1 :]
    if not last:
        return
    try:
        make(json_object(last))
    except ValueError:
        os.ftruncate(descriptor, size - len(last))
    else:
        os.write(descriptor, b"\n")  # only the line break is missing
