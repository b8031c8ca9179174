"""JSON, `%` and `format` with origins: the text that the plain operation made, laid out once more piece by piece.

Each function is given the plain result, and gives it back where its own layout differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from string import Formatter
from typing import Any

from outlive.text.render.provenance import (
    Segment,
    Traced,
    TracedFloat,
    TracedInt,
    cut,
    join,
    of_number,
    traced,
)

_PERCENT = re.compile(r"%(?:\((?P<name>[^)]*)\))?(?P<kind>[sd%])")
_ESCAPED = {True: re.compile(r'["\\]|[^ -~]'), False: re.compile(r'["\\\x00-\x1f]')}
_TRACED = (Traced, TracedInt, TracedFloat)


def holds_traced(value: Any) -> bool:
    """Whether a value, or one that it holds, has an origin."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _TRACED):
            return True
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
    return False


def traced_json(value: Any, options: Mapping[str, Any], result: str) -> str:
    """`result`, which is json.dumps(value) with these options."""
    if not holds_traced(value):
        return result
    indent, separators = options.get("indent"), options.get("separators")
    comma, colon = separators or ((", ", ": ") if indent is None else (",", ": "))
    space = " " * indent if isinstance(indent, int) else indent
    writer = _Writer(bool(options.get("ensure_ascii", False)), space, comma, colon, bool(options.get("sort_keys")))
    again = join(list(writer.written(value, 0)))
    return again if again == result else result


class _Writer:
    def __init__(self, ascii_only: bool, space: str | None, comma: str, colon: str, sort: bool) -> None:
        self.ascii_only, self.space, self.comma, self.colon, self.sort = ascii_only, space, comma, colon, sort

    def written(self, value: Any, depth: int) -> Iterator[str]:
        if isinstance(value, str):
            yield self.text(value)
        elif isinstance(value, TracedInt | TracedFloat):
            yield of_number(value, json.dumps(value))
        elif isinstance(value, dict) and value:
            items = sorted(value.items()) if self.sort else value.items()
            yield "{"
            for place, (key, item) in enumerate(items):
                yield self.comma if place else ""
                yield self.line(depth + 1)
                yield self.text(key) if isinstance(key, str) else json.dumps({key: 0})[1:-4]
                yield self.colon
                yield from self.written(item, depth + 1)
            yield self.line(depth) + "}"
        elif isinstance(value, list | tuple) and value:
            yield "["
            for place, item in enumerate(value):
                yield self.comma if place else ""
                yield self.line(depth + 1)
                yield from self.written(item, depth + 1)
            yield self.line(depth) + "]"
        else:
            yield json.dumps(value)

    def line(self, depth: int) -> str:
        return "" if self.space is None else "\n" + self.space * depth

    def text(self, value: str) -> str:
        encode = encode_basestring_ascii if self.ascii_only else encode_basestring
        encoded = encode(value)
        if type(value) is not Traced:
            return encoded
        pieces, place = ['"'], 0
        for found in _ESCAPED[self.ascii_only].finditer(value):
            escaped = encode(found.group())[1:-1]
            pieces.append(value[place : found.start()])
            segments = cut(value._segments, found.start(), found.end())
            pieces.append(traced(escaped, tuple(_stretched(segment, len(escaped)) for segment in segments)))
            place = found.end()
        return join([*pieces, value[place:], '"'])


def _stretched(segment: Segment, length: int) -> Segment:
    return segment._replace(length=length) if segment.length else segment


def percent_format(text: str, values: Any, result: Any) -> Any:
    """`result`, which is text % values: fields of the kinds %s, %d and %(name)s."""
    given = values if isinstance(values, tuple) else (values,)
    if type(result) is not str or not (holds_traced(text) or holds_traced(values)):
        return result
    pieces, place, number = list[str](), 0, 0
    for found in _PERCENT.finditer(text):
        pieces.append(text[place : found.start()])
        place = found.end()
        if found["kind"] == "%":
            pieces.append("%")
            continue
        try:
            value = values[found["name"]] if found["name"] is not None else given[number]
        except (KeyError, IndexError, TypeError):
            return result
        number += found["name"] is None
        pieces.append(_printed(value))
    again = join([*pieces, text[place:]])
    return again if again == result else result


def brace_format(text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Any:
    """`result`, which is text.format(*args, **kwargs): fields without a format, an attribute or a conversion."""
    if type(result) is not str or not (holds_traced(args) or holds_traced(dict(kwargs))):
        return result
    pieces, number = list[str](), 0
    for literal, name, form, conversion in Formatter().parse(str.__str__(text)):
        pieces.append(literal)
        if name is None:
            continue
        if form or conversion:
            return result
        key = str(number) if name == "" else name
        number += name == ""
        try:
            pieces.append(_printed(args[int(key)] if key.isdigit() else kwargs[key]))
        except (KeyError, IndexError):
            return result
    again = join(pieces)
    return again if again == result else result


def _printed(value: Any) -> str:
    if isinstance(value, TracedInt | TracedFloat):
        return of_number(value, str(value))
    return value if isinstance(value, str) else str(value)
