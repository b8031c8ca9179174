"""Reading rows with the ledger kept: every row is counted once, as kept or with its refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from outlive.data.conversation import Conversation
from outlive.data.formats import FORMATS, detect, read_conversation
from outlive.data.ledger import Ledger
from outlive.data.lints import LintCounts
from outlive.data.naming import Naming
from outlive.data.rows import ReadCounts, Row, read_rows
from outlive.run.files import writable
from outlive.text.refusal import Refusal


class Outcome(Protocol):
    """What became of a row."""

    @property
    def refusal(self) -> Refusal | None: ...


Result = TypeVar("Result", bound=Outcome)


def each_row(
    path: Path,
    ledger: Ledger,
    outcome: Callable[[Row], Result],
    limit: int | None = None,
    read: ReadCounts | None = None,
    lints: LintCounts | None = None,
) -> Iterator[Result]:
    """The outcome of every row of a file (of the first `limit`). The ledger is balanced when the last was taken."""
    read = read if read is not None else ReadCounts()
    for row in read_rows(path, read):
        if limit is not None and row.index >= limit:
            break
        ledger.rows += 1
        result = outcome(row)
        if result.refusal is not None:
            ledger.refuse(row, result.refusal)
        else:
            ledger.kept += 1
        yield result
    ledger.finish(read, lints)


def conversation_of(
    row: Row, ledger: Ledger, columns: frozenset[str] = frozenset(), naming: Naming | None = None
) -> Conversation:
    """The conversation of a row, in the ledger's format or, where it names none yet, in the one detected here.

    Columns that neither the format nor `columns` reads are counted. Raises Refusal.
    """
    if row.value is None:
        raise row.refusal or Refusal("bad_json", "the row is empty")
    value = naming.row(row.value) if naming is not None else row.value
    if not ledger.format:
        ledger.format, ledger.format_reason = detect(value)
    if not ledger.note:
        ledger.note = FORMATS[ledger.format].note
    names_messages = naming is not None and (naming.roles or naming.message_keys)
    conversation = read_conversation(value, ledger.format, naming if names_messages else None)
    unused = value.keys() - FORMATS[ledger.format].keys - columns
    if unused:
        ledger.unused_columns.update(map(writable, unused))
    return conversation
