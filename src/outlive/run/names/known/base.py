"""Keys of other tools that have no counterpart here: each with the reason, and the values that ask for nothing new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EVERY: tuple[Any, ...] = ("every value",)  # a mark, compared by identity
_OFF: tuple[Any, ...] = (False, 0, "", "none", "no", "None", "disabled", [], {}, [None])


@dataclass(frozen=True)
class Known:
    """Keys without a counterpart. `why`: one sentence, `fix`: what to do where a value asks for more.

    `same`: values that ask for what happens anyway, or EVERY. `off`: whether false, 0 and empty ask for nothing.
    `secret`: their values are credentials, which are never shown.
    """

    names: tuple[str, ...]
    why: str
    fix: str
    same: tuple[Any, ...] = ()
    off: bool = True
    secret: bool = False

    def accepts(self, value: Any) -> bool:
        """Whether `value` asks for nothing that does not happen anyway."""
        if value is None or self.same is EVERY:
            return True
        return any(_equal(value, item) for item in (*self.same, *(_OFF if self.off else ())))


def _equal(value: Any, item: Any) -> bool:
    # 1 and True are equal to Python, and not the same setting.
    number = isinstance(value, int | float) and isinstance(item, int | float)
    return bool(value == item) and (isinstance(value, bool) == isinstance(item, bool) if number else True)


def not_needed(why: str, names: str) -> Known:
    """Keys that are accepted at every value."""
    return Known(tuple(names.split()), why, "remove it", same=EVERY)


def lacking(why: str, names: str, fix: str = "remove it", same: tuple[Any, ...] = (), off: bool = True) -> Known:
    """Keys that are accepted only where their value asks for nothing new."""
    return Known(tuple(names.split()), why, fix, same, off)
