"""Rows of Parquet and Arrow files, as JSON would hold them, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlive.data.arrow_files import arrow_batches, check_parquet
from outlive.run.errors import InputError
from outlive.text.refusal import Refusal

_BATCH_ROWS = 1000


def table_rows(path: Path, kind: str) -> Iterator[tuple[dict[str, Any] | Refusal, bool]]:
    """The rows of a Parquet file, an Arrow file or an Arrow stream, and whether keys without a value were left out of
    an object inside; or why a row is none. Raises InputError where the file can't be read."""
    from outlive.data.arrow_values import values_of  # it needs Arrow, which rows of text don't

    with _readable(path, kind):
        for batch in _batches(path, kind):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                part = batch.slice(start, _BATCH_ROWS)
                names = part.schema.names
                columns = [values_of(column) for column in part.columns]
                for values in zip(*columns, strict=True) if columns else [()] * part.num_rows:
                    try:
                        yield plain_row(dict(zip(names, values, strict=True)))
                    except Refusal as refusal:
                        yield refusal, False


def check_table(path: Path, kind: str, given: Path | None = None) -> None:
    """Raise InputError where a Parquet or Arrow file has no schema that can be read, or two columns of one name.

    `given`: the file that messages name.
    """
    with _readable(given or path, kind):
        if kind == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(path) as file:
                _refuse_doubles(file.schema_arrow, given or path)
            check_parquet(path)
        else:
            for schema, _ in arrow_batches(path, kind):
                _refuse_doubles(schema, given or path)


def _refuse_doubles(fields: Any, path: Path) -> None:
    """Raise InputError where a schema or an object in it has two fields of one name: one of the two would be lost."""
    import pyarrow as pa

    fields = list(fields)
    names = [field.name for field in fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        fix = "give each column a name of its own"
        raise InputError(f"two columns of the table have the name {twice!r}", where=str(path), fix=fix)
    for field in fields:
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        inside = [kind.field(number) for number in range(kind.num_fields)]
        if pa.types.is_struct(kind):
            _refuse_doubles(inside, path)
        else:
            for one in inside:
                _refuse_doubles([one], path)


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        name = {"parquet": "Parquet"}.get(kind, "Arrow")
        fix = "get the file again from where it comes from; it may have been cut while it was copied"
        raise InputError(f"the {name} file can't be read: {error}", where=str(path), fix=fix) from None


def _batches(path: Path, kind: str) -> Iterator[Any]:
    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(_BATCH_ROWS)
        return
    for _, batches in arrow_batches(path, kind):
        yield from batches


def plain_row(row: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """A row as JSON would hold it, and whether keys without a value were left out of an object inside.

    They are left out at every depth: Arrow gives each object of a column the keys of all of them. Bytes that are no
    UTF-8 stay bytes: who reads their column refuses the row. Raises Refusal for a map with a key that comes twice.
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
            return _plain_map(value, left_out)
        return [_plain(item, left_out) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _plain_map(pairs: list[tuple[Any, Any]], left_out: list[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, item in pairs:
        name = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
        if name in kept:
            raise Refusal("bad_json", f"the key {name!r} comes twice in one map")
        kept[name] = _plain(item, left_out)
    return kept


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
