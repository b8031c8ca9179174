"""Rows of a file of any form, each with its place, so that every later message can name file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from outlive.data.json_text import parse_json, reason
from outlive.data.rows_array import array_items
from outlive.data.rows_csv import csv_rows
from outlive.data.rows_file import BOM, Form, check_rows_file, rows_form, unreadable
from outlive.data.rows_table import table_rows
from outlive.text.refusal import Refusal

__all__ = ["BOM", "MAX_LINE", "ReadCounts", "Row", "check_rows_file", "read_rows"]
MAX_LINE = 32 << 20  # bytes: a row of some eight million tokens; a file without line breaks is no JSON Lines
_BLOCK = 1 << 20


@dataclass(slots=True)
class Row:
    """One row: `index` counts rows from 0, `line` counts lines from 1; in a table without lines it is the row's number
    from 1. `value` is None where `refusal` says why, and in a row that is not parsed yet.

    `raw` is the line as it was read; `column`, counted from 1, and `length` say where it is no JSON. `file`: which file
    of a source of several; `index` counts on through them, `line` does not. `place`: where a line begins and ends in
    its file, in bytes.
    """

    index: int
    line: int
    value: dict[str, Any] | None
    refusal: Refusal | None = None
    raw: bytes = b""
    column: int | None = None
    length: int = 1
    file: str = ""
    place: tuple[int, int] | None = None


@dataclass
class ReadCounts:
    """What reading saw besides rows, how many bytes it read, and their hash (xxh3-128)."""

    blank_lines: int = 0
    crlf_lines: int = 0
    null_keys: int = 0  # rows of a table from whose objects keys without a value were left out
    bom: bool = False
    num_bytes: int = 0
    _hash: xxhash.xxh3_128 = field(default_factory=xxhash.xxh3_128)

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()

    def take(self, data: bytes) -> None:
        """Count bytes that were read, in their order."""
        self._hash.update(data)
        self.num_bytes += len(data)

    def take_file(self, path: Path) -> None:
        """Count all bytes of a file that a library has read."""
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                self.take(block)


def read_rows(path: Path, counts: ReadCounts | None = None, form: Form | None = None) -> Iterator[Row]:
    """Yield the rows of a file: JSON Lines, a JSON array, CSV with a header, Parquet or Arrow. Memory is bounded.

    What is no row is yielded with its refusal: the caller decides what a bad row means. `form` is looked up where it
    is not known. Raises InputError where the file can't be read.
    """
    return map(parsed, unparsed_rows(path, counts, form))


def unparsed_rows(path: Path, counts: ReadCounts | None = None, form: Form | None = None) -> Iterator[Row]:
    """As `read_rows`; a row that stands in the file as JSON text has neither value nor refusal yet (see `parsed`)."""
    counts = counts if counts is not None else ReadCounts()
    form = form or rows_form(path)
    if form == "lines":
        yield from _file_lines(path, counts)
        return
    try:
        if form == "array":
            yield from _read_array(path, counts)
        elif form == "csv":
            yield from _read_csv(path, counts)
        else:
            for index, (value, left_out) in enumerate(table_rows(path, form)):
                counts.null_keys += left_out
                refusal = value if isinstance(value, Refusal) else None
                yield Row(index, index + 1, None if isinstance(value, Refusal) else value, refusal)
            counts.take_file(path)
    except OSError as error:
        raise unreadable(path, error) from error


def _read_array(path: Path, counts: ReadCounts) -> Iterator[Row]:
    with path.open("rb") as file:
        for index, (text, line) in enumerate(array_items(path, file, counts.take)):
            yield Row(index, line, None, None, text.encode("utf-8", "surrogatepass"))


def _read_csv(path: Path, counts: ReadCounts) -> Iterator[Row]:
    with path.open("rb") as file:
        for index, (line, value) in enumerate(csv_rows(path, file, counts.take)):
            if isinstance(value, int):
                refusal = Refusal("bad_table_row", f"the row has {value} fields, the header another number")
                yield Row(index, line, None, refusal)
            elif any("\udc80" <= character <= "\udcff" for text in value.values() for character in text):
                yield Row(index, line, None, Refusal("bad_utf8", "the row is no UTF-8"))
            else:
                yield Row(index, line, value)


def _file_lines(path: Path, counts: ReadCounts) -> Iterator[Row]:
    try:
        with path.open("rb") as file:
            yield from _read_lines(file, counts)
    except OSError as error:
        raise unreadable(path, error) from error


def lines_at(path: Path, first: Row, end: int) -> Iterator[Row]:
    """The rows of a JSON Lines file from `first`, which needs no content, to byte `end`. Raises InputError."""
    assert first.place is not None
    try:
        with path.open("rb") as file:
            file.seek(first.place[0])
            content = BytesIO(file.read(end - first.place[0]))
    except OSError as error:
        raise unreadable(path, error) from error
    for row in _read_lines(content, ReadCounts(), first.index, first.line, first.place[0]):
        yield replace(row, file=first.file) if first.file else row


def _read_lines(
    file: BinaryIO, counts: ReadCounts, index: int = 0, line_number: int = 1, begin: int = 0
) -> Iterator[Row]:
    """The rows of JSON Lines, one line in memory at a time, and of no line more than MAX_LINE bytes.

    `index`, `line_number` and `begin`, in bytes: of the first of them in its file.
    """
    while line := file.readline(MAX_LINE + 1):
        counts.take(line)
        place = begin, begin + len(line)
        if begin == 0 and line.startswith(BOM):
            counts.bom, line = True, line[len(BOM) :]
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            skipped = _skip(file, counts)
            place = begin, place[1] + skipped
            yield replace(_too_long(line, index, line_number, skipped), place=place)
            index += 1
        elif not line.strip():
            counts.blank_lines += 1
            counts.crlf_lines += line.endswith(b"\r\n")
        else:
            counts.crlf_lines += line.endswith(b"\r\n")
            yield Row(index, line_number, None, None, line, place=place)
            index += 1
        begin, line_number = place[1], line_number + 1


def _skip(file: BinaryIO, counts: ReadCounts) -> int:
    """Read on to the line's end, keeping nothing; how many bytes that was."""
    skipped = 0
    while block := file.readline(_BLOCK):
        counts.take(block)
        skipped += len(block)
        if block.endswith(b"\n"):
            break
    return skipped


def _too_long(line: bytes, index: int, line_number: int, skipped: int) -> Row:
    size = len(line) + skipped
    refusal = Refusal("line_too_long", f"the line has {size:,} bytes, and a row has at most {MAX_LINE:,}")
    return Row(index, line_number, None, refusal, line[:1000])


def parsed(row: Row) -> Row:
    """The row with its value, or with the reason why it has none."""
    if row.value is not None or row.refusal is not None:
        return row
    line = row.raw
    try:
        text = line.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        column, wrong = len(line[: error.start].decode("utf-8")) + 1, line[error.start : error.start + 3]
        # UTF-8 has no form for half of a surrogate pair; what other programs write for one begins like this.
        kind = "half of a surrogate pair" if wrong[0] == 0xED and wrong[1:2] >= b"\xa0" else f"byte 0x{wrong[0]:02x}"
        refusal = Refusal("bad_utf8", f"{kind} at byte {error.start} of the line is no UTF-8")
        return replace(row, refusal=refusal, column=column)
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        refusal = Refusal("bad_json", f"{reason(error)} (column {error.pos + 1})")
        return replace(row, refusal=refusal, column=error.pos + 1)
    except ValueError as error:
        return replace(row, refusal=Refusal("bad_json", str(error)))
    if not isinstance(value, dict):
        refusal = Refusal("not_an_object", f"the line holds {_KINDS[type(value).__name__]}")
        return replace(row, refusal=refusal)
    return Row(row.index, row.line, value, None, line, file=row.file)


_KINDS = {"list": "a list", "str": "a text", "int": "a number", "float": "a number", "bool": "true or false",
          "NoneType": "null"}  # fmt: skip
