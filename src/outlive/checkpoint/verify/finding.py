"""What a look at a checkpoint finds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


class Finding(NamedTuple):
    """error: the folder is not what it seems. warning: someone may read another model from it. note: worth knowing.

    `id`: its kind, of `consequences.KINDS`. `where`: the file or the tensor.
    """

    level: Level
    id: str
    what: str
    where: str
    fix: str

    def to_json(self) -> dict[str, Any]:
        return dict(self._asdict())


def some(names: Iterable[str], most: int = 3) -> str:
    """'a, b, c and 7 more'."""
    listed = sorted(names)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
