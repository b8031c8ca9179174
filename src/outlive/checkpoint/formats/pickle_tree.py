"""What a pickle made, before anybody walks through it: not too deep, not inside of itself, no larger than it looks.

A value may be in many places at once. A list of ten times the same list of ten times … takes a few bytes in a pickle
and in memory, and for ever to print.
"""

from __future__ import annotations

from typing import Any

from outlive.checkpoint.formats.pickle_names import Record

_DEEPEST = 100
_FREE = 1 << 20  # entries that any pickle may have
_PER_BYTE = 16  # and those that one may have for each of its bytes
_CONTAINERS = (dict, list, tuple, Record)


def fault(root: Any, length: int) -> str | None:
    """What is wrong with the value of a pickle of `length` bytes. Takes the time of one look at each container."""
    known: dict[int, tuple[int, int]] = {}  # of a container: its depth, and how many entries are in it and below
    inside: set[int] = set()
    waiting = [(root, False)] if isinstance(root, _CONTAINERS) else []
    while waiting:
        value, is_done = waiting.pop()
        place = id(value)
        if is_done:
            inside.discard(place)
            below = [known[id(part)] if isinstance(part, _CONTAINERS) else (0, 1) for part in _parts(value)]
            depth = 1 + max((depth for depth, _ in below), default=0)
            number = 1 + sum(number for _, number in below)
            if depth > _DEEPEST:
                return "values are nested too deep"
            if number > _FREE + _PER_BYTE * length:
                return "it repeats values within values until there are too many"
            known[place] = depth, number
        elif place in inside:
            return "a value is inside of itself"
        elif place not in known:
            inside.add(place)
            waiting.append((value, True))
            waiting += [(part, False) for part in _parts(value) if isinstance(part, _CONTAINERS)]
    return None


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Record):
        return [value.args, value.state]
    return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
