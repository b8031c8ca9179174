"""Rows of Parquet, Arrow and CSV files, as JSON would hold them, in bounded memory."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from outlive.run.errors import InputError

_BATCH_ROWS = 1000
_FIELD_LIMIT = 32 << 20  # characters of one CSV field
_DELIMITERS = (",", "\t", ";")


def table_rows(path: Path, kind: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """The rows of a Parquet file, an Arrow file or an Arrow stream, and whether keys without a value were left out of
    an object inside. Raises InputError where it can't be read."""
    with _readable(path, kind):
        for batch in _batches(path, kind):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                for row in batch.slice(start, _BATCH_ROWS).to_pylist():
                    yield plain_row(row)


def check_table(path: Path, kind: str) -> None:
    """Raise InputError where a Parquet or Arrow file has no schema that can be read."""
    with _readable(path, kind):
        if kind == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(path) as file:
                file.schema_arrow  # noqa: B018
        else:
            next(_batches(path, kind), None)


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        name = {"parquet": "Parquet"}.get(kind, "Arrow")
        fix = "get the file again from where it comes from; it may have been cut while it was copied"
        raise InputError(f"the {name} file can't be read: {error}", where=str(path), fix=fix) from None


def _batches(path: Path, kind: str) -> Iterator[Any]:
    import pyarrow as pa

    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(_BATCH_ROWS)
        return
    with pa.memory_map(str(path)) as source:
        if kind == "arrow_stream":
            yield from pa.ipc.open_stream(source)
            return
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def plain_row(row: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """A row as JSON would hold it, and whether keys without a value were left out of an object inside.

    They are left out at every depth: Arrow gives each object of a column the keys of all of them.
    """
    left_out: list[str] = []
    return {name: _plain(value, left_out) for name, value in row.items() if not _is_nothing(value)}, bool(left_out)


def _plain(value: Any, left_out: list[str]) -> Any:
    """A value of Arrow as JSON holds it: lists, objects, texts, numbers; maps as objects, all else as text."""
    if isinstance(value, dict):
        kept = {name: _plain(item, left_out) for name, item in value.items() if item is not None}
        left_out += [name for name in value if name not in kept] if len(kept) < len(value) else []
        return kept
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {str(name): _plain(item, left_out) for name, item in value}
        return [_plain(item, left_out) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def csv_rows(path: Path, file: BinaryIO, update: Callable[[bytes], object]) -> Iterator[tuple[int, Any]]:
    """The rows of a CSV file with a header, all values as text: the line where each ends, and the row, or the number
    of its fields where the header has another. `update` is given all bytes. Raises InputError."""
    csv.field_size_limit(_FIELD_LIMIT)
    lines = _lines(file, update)
    first = next(lines, "")
    delimiter = max(_DELIMITERS, key=first.count) if path.suffix.lower() != ".tsv" else "\t"
    reader = csv.reader(_chain(first, lines), delimiter=delimiter, strict=True)
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


def _lines(file: BinaryIO, update: Callable[[bytes], object]) -> Iterator[str]:
    for number, line in enumerate(file):
        update(line)
        yield line.decode("utf-8-sig" if number == 0 else "utf-8", "surrogateescape")


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest
