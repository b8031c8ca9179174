"""Rows of CSV files with a header, in bounded memory."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from outlive.run.errors import InputError

_FIELD_LIMIT = 32 << 20  # characters of one CSV field
_DELIMITERS = (",", "\t", ";")


def csv_rows(path: Path, file: BinaryIO, update: Callable[[bytes], object]) -> Iterator[tuple[int, Any]]:
    """The rows of a CSV file with a header, all values as text: the line where each ends, and the row, or the number
    of its fields where the header has another. `update` is given all bytes. Raises InputError."""
    csv.field_size_limit(_FIELD_LIMIT)
    lines = _lines(file, update)
    first = next(lines, "")
    reader = csv.reader(_chain(first, lines), delimiter=_delimiter(path, first), strict=True)
    try:
        names = next(reader, [])
        if len(set(names)) < len(names) or not all(name.strip() for name in names):
            what = f"the first line of the file is no header: two names are equal, or one is empty: {names}"
            raise InputError(what, where=f"{path}:1", fix="write the columns' names in the first line")
        for fields in reader:
            if fields:
                row = dict(zip(names, fields, strict=True)) if len(fields) == len(names) else len(fields)
                yield reader.line_num, row
    except csv.Error as error:
        fix = "mend the quotes, or write the rows as JSON Lines"
        raise InputError(f"the CSV can't be read: {error}", where=f"{path}:{reader.line_num}", fix=fix) from None


def delimiter_of(path: Path) -> str:
    """What stands between the fields of a CSV file: its first line says it, or its name where that ends in .tsv."""
    with path.open("rb") as file:
        return _delimiter(path, next(_lines(file, lambda line: None), ""))


def _delimiter(path: Path, first: str) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)


def _lines(file: BinaryIO, update: Callable[[bytes], object]) -> Iterator[str]:
    for number, line in enumerate(file):
        update(line)
        yield line.decode("utf-8-sig" if number == 0 else "utf-8", "surrogateescape")


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest
