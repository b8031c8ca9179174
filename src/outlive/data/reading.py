"""Reading rows with the ledger kept: every row is counted once, as kept or with its refusal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from outlive.data.conversation import Conversation
from outlive.data.formats import FIELDS, FORMATS, detect, read_conversation
from outlive.data.ledger import Ledger
from outlive.data.lint_counts import LintCounts
from outlive.data.naming import Naming
from outlive.data.rows import ReadCounts, Row, parsed, unparsed_rows
from outlive.run.files import writable
from outlive.text.refusal import Refusal


class Outcome(Protocol):
    """What became of a row."""

    @property
    def refusal(self) -> Refusal | None: ...


Result = TypeVar("Result", bound=Outcome)


def each_row(
    files: Sequence[Path],
    ledger: Ledger,
    outcome: Callable[[Row], Result],
    limit: int | None = None,
    read: ReadCounts | None = None,
    lints: LintCounts | None = None,
) -> Iterator[Result]:
    """The outcome of every row of a source (of the first `limit`). The ledger is balanced when the last was taken."""
    read = read if read is not None else ReadCounts()
    for row in map(parsed, source_rows(files, read, limit)):
        result = outcome(row)
        ledger.take(row, result.refusal)
        yield result
    ledger.finish(read, lints)


def source_rows(
    files: Sequence[Path], read: ReadCounts, limit: int | None = None, names: Sequence[str] = ()
) -> Iterator[Row]:
    """The rows of a source's files, one after the other, not parsed yet; the first `limit` of them.

    `names`: of the files, where they are not those of `file_names`. Raises InputError where a file can't be read.
    """
    return islice(_rows(files, read, names or file_names(files)), limit)


def _rows(files: Sequence[Path], read: ReadCounts, names: Sequence[str]) -> Iterator[Row]:
    if len(files) == 1:
        yield from unparsed_rows(files[0], read)
        return
    first = 0
    for path, name in zip(files, names, strict=True):
        index = -1
        for row in unparsed_rows(path, read):
            index = row.index
            yield replace(row, index=first + index, file=name)
        first += index + 1


def file_names(files: Sequence[Path]) -> list[str]:
    """How each file of a source is named in its samples' ids: by its name, where several share one by their paths."""
    if len({path.name for path in files}) == len(files):
        return [writable(path.name) for path in files]
    whole = [os.path.abspath(path) for path in files]
    common = os.path.commonpath([os.path.dirname(path) for path in whole])
    return [writable(os.path.relpath(path, common)) for path in whole]


def conversation_of(
    row: Row, ledger: Ledger, columns: frozenset[str] = frozenset(), naming: Naming | None = None
) -> Conversation:
    """The conversation of a row, in the ledger's format or, where it names none yet, in the one detected here.

    Columns that neither the format nor `columns` reads are counted. Raises Refusal.
    """
    if row.value is None:
        raise row.refusal or Refusal("bad_json", "the row is empty")
    value = naming.row(row.value) if naming is not None else row.value
    if not row.raw:  # of a table, whose bytes need be no text
        _refuse_bytes(value, FORMATS[ledger.format].keys | columns if ledger.format else FIELDS)
    if not ledger.format:
        ledger.format, ledger.format_reason = detect(value)
    shape = FORMATS[ledger.format]
    if not ledger.note:
        ledger.note = shape.note
    names_messages = naming is not None and (naming.roles or naming.message_keys)
    conversation = read_conversation(value, ledger.format, naming if names_messages else None)
    unused = value.keys() - shape.keys
    if unused and (unused := unused - columns):
        ledger.unused_columns.update(sorted(map(writable, unused)))  # a set has another order in each process
    return conversation


def _refuse_bytes(value: Mapping[str, Any], columns: frozenset[str]) -> None:
    """Raise Refusal where one of the columns holds bytes that are no UTF-8. In a column that nobody reads, such as
    pictures, they may be."""
    for name in columns & value.keys():
        if _has_bytes(value[name]):
            raise Refusal("bad_utf8", f"the bytes of column {name!r} are no UTF-8")


def _has_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_bytes, value.values()))
    return any(map(_has_bytes, value)) if isinstance(value, list) else isinstance(value, bytes)
