"""Rows of a JSON Lines file, each with its place, so that every later message can name file and line."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from outlive.data.json_text import parse_json
from outlive.run.errors import InputError
from outlive.text.spans import Refusal

BOM = b"\xef\xbb\xbf"
_LOOK = 1 << 16  # bytes at a file's beginning that show what it is

_MAGIC = {
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a gzip file",
    b"PK\x03\x04": "a zip file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"GGUF": "a GGUF model",
    b"ARROW1": "an Arrow file",
    b"\xff\xff\xff\xff": "an Arrow file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@dataclass(frozen=True)
class Row:
    """One row: `index` counts rows from 0, `line` counts lines from 1. `value` is None where `refusal` says why."""

    index: int
    line: int
    value: dict[str, Any] | None
    refusal: Refusal | None = None


@dataclass
class ReadCounts:
    """What reading saw besides rows, and the hash (xxh3-128) of the bytes that were read."""

    blank_lines: int = 0
    crlf_lines: int = 0
    bom: bool = False
    _hash: xxhash.xxh3_128 = field(default_factory=xxhash.xxh3_128)

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()


def read_rows(path: Path, counts: ReadCounts | None = None) -> Iterator[Row]:
    """Yield the rows of a JSON Lines file, one line in memory at a time.

    A line that is no JSON object is yielded with its refusal: the caller decides what a bad row means.
    Raises InputError where the file cannot be read.
    """
    counts = counts if counts is not None else ReadCounts()
    index = 0
    try:
        with path.open("rb") as file:
            for line_number, line in enumerate(file, start=1):
                counts._hash.update(line)
                if line_number == 1 and line.startswith(BOM):
                    counts.bom, line = True, line[len(BOM) :]
                counts.crlf_lines += line.endswith(b"\r\n")
                if not line.strip():
                    counts.blank_lines += 1
                    continue
                yield _parse(line, index, line_number)
                index += 1
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path), fix="check the path") from None
    except OSError as error:
        raise InputError(f"the data file can't be read: {error.strerror}", where=str(path)) from error


def check_rows_file(path: Path) -> str | None:
    """A note where the file looks like one JSON array. Raises InputError where it is no text, is empty or missing."""
    try:
        # Rows are read more than once (to look, to hash, to use): a pipe would give each reader another part of them.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(
                "this is no plain file (a folder, a pipe or a device), and rows are read more than once",
                where=str(path),
                fix="save the rows in a file, and name that",
            )
        with path.open("rb") as file:
            begin = file.read(_LOOK)
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path), fix="check the path") from None
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", where=str(path)) from None
    kind = next((name for magic, name in _MAGIC.items() if begin.startswith(magic)), None)
    if kind is not None or b"\x00" in begin:
        raise InputError(
            f"the file holds no JSON Lines: it is {kind or 'binary'}",
            where=str(path),
            fix="convert it to JSON Lines in UTF-8: one JSON object on each line",
        )
    if not begin.strip(b"\xef\xbb\xbf \r\n\t") and len(begin) < _LOOK:
        raise InputError("the file holds no row", where=str(path), fix="name a file with one JSON object on each line")
    if begin.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"["):
        return f"the file looks like one JSON array; rows are one object a line: jq -c '.[]' {path}"
    return None


def _parse(line: bytes, index: int, line_number: int) -> Row:
    try:
        value = parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Row(index, line_number, None, Refusal("bad_utf8", f"byte {error.start} of the line is no UTF-8"))
    except ValueError as error:
        return Row(index, line_number, None, Refusal("bad_json", str(error)))
    if not isinstance(value, dict):
        return Row(index, line_number, None, Refusal("not_an_object", f"the line holds a {type(value).__name__}"))
    return Row(index, line_number, value)
