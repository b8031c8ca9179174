"""How large a value of a template is, and the error that stops a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
from jinja2.filters import _GroupTuple
from jinja2.utils import Namespace

from outlive.text.render import limits
from outlive.text.render.provenance import Traced

if TYPE_CHECKING:
    from outlive.text.render.meter import Meter

_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_SEQUENCES: tuple[type, ...] = (list, tuple, set, frozenset, _GroupTuple, *_VIEWS)
CONTAINERS = frozenset({*_SEQUENCES, dict})


class LimitReached(jinja2.TemplateError):
    """The template was stopped. `what` names the limit that was passed, `fix` what can be done."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


class Size(NamedTuple):
    """How large a value is, all that it holds counted as often as it would be printed."""

    values: int
    characters: int
    depth: int


def measured(value: Any, meter: Meter | None) -> Size:
    """The size of a value, level by level; characters are the most that printing it can take.

    With a meter each value is a step, and what nests too deep is refused. Without one all is counted: for JSON data.
    """
    num_values = characters = depth = 0
    level = [value]
    while level:
        depth += 1
        if depth > limits.MAX_NESTING and meter is not None:
            raise LimitReached(
                f"lists and objects lie more than {limits.MAX_NESTING} deep inside each other",
                "look for a list in the template that is put into itself",
            )
        num_values += len(level)
        if meter is not None:
            meter.step(len(level))
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or kind is Traced:
                if meter is not None and len(item) > 255:
                    meter.step(len(item) >> 8)  # it is read
                characters += 2 + len(item) if meter is None or item.isprintable() else 2 + 10 * len(item)
            elif kind in CONTAINERS or isinstance(item, Namespace):
                characters += 4
                parts = _parts(item)
                characters += 4 * len(parts)
                below.extend(parts)
                if meter is not None and len(below) > meter.steps:
                    meter.step(len(below))
            else:
                characters += 10 * len(item) if isinstance(item, str | bytes) else 40
                characters += item.bit_length() // 3 if kind is int else 0
        level = below
    return Size(num_values, characters, depth)


def _parts(value: Any) -> list[Any]:
    """What a list, an object or a namespace holds, keys included."""
    if isinstance(value, Namespace):
        value = value._Namespace__attrs
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value)
