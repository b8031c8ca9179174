"""What a format of rows is: how a row of it is known, and how it becomes a conversation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from outlive.data.conversation import Conversation
from outlive.data.naming import Naming

Row = Mapping[str, Any]


class Format(NamedTuple):
    """One entry of the table of formats.

    keys: the columns that it reads; others are counted as unused. fits: the columns by which a row is known to have its
    shape, None where it has another. read: row → conversation, which raises Refusal. shape: the columns, in words.
    note: what of the tools that made the format is not done here. detected: whether it may be found without its name.
    """

    keys: frozenset[str]
    fits: Callable[[Row], frozenset[str] | None]
    read: Callable[[Row, Naming | None], Conversation]
    shape: str
    note: str = ""
    detected: bool = True


def has(*names: str, kind: type | tuple[type, ...] = str) -> Callable[[Row], frozenset[str] | None]:
    """A `fits` for rows in which each of these columns holds a value of the kind."""
    known = frozenset(names)

    def fits(row: Row) -> frozenset[str] | None:
        return known if all(isinstance(row.get(name), kind) for name in names) else None

    return fits
