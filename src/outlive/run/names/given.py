"""A setting as someone wrote it, and the error for two that set one key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outlive.run.errors import InputError
from outlive.run.excerpt import both
from outlive.run.yaml_file import Key, dotted


@dataclass(frozen=True)
class Given:
    """A key as someone wrote it, its value, and where ("run.yaml:3", "override lr=1e-4")."""

    key: Key
    value: Any
    place: str


def refuse_twice(settings: list[tuple[Given, Given]]) -> None:
    """InputError when two of (as written, as ours) set the same key."""
    seen: dict[Key, Given] = {}
    for written, ours in settings:
        first = seen.setdefault(ours.key, written)
        if first is not written:
            raise two_names(first, written, ours.key)


def two_names(first: Given, second: Given, key: Key) -> InputError:
    """The error for two settings of one key: both names, both places."""
    names = dotted(first.key), dotted(second.key)
    what = f"{names[0]} is given twice" if names[0] == names[1] else f"{names[0]} and {names[1]} both set {dotted(key)}"
    return InputError(what, where=both(first.place, second.place), fix=f"keep one; its name here is {dotted(key)}")
