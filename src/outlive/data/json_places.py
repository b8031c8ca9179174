"""Where something stands in a JSON text: asked only once it is known to be wrong, so that good rows cost nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from outlive.data.json_text import MAX_DEPTH

Path = Sequence[str | int]
_TOKEN = re.compile(r'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+)')


class Span(NamedTuple):
    """`length` characters from `start` (counted from 0) on."""

    start: int
    length: int


class _Value(NamedTuple):
    """The beginning of a value: its path, and whether the name before it was there already in the same object."""

    path: tuple[str | int, ...]
    span: Span
    text: str
    name: Span | None
    twice: bool


def find_value(text: str, path: Path) -> Span | None:
    """Where the value at `path` begins (a list or object: its bracket); None where there is none."""
    return next((value.span for value in _values(text) if value.path == tuple(path)), None)


def find_fault(text: str) -> Span | None:
    """What `parse_json` refuses beyond the grammar: a name that comes twice, a number, NaN, too deep a nesting."""
    for value in _values(text):
        if value.twice:
            return value.name
        if len(value.path) >= MAX_DEPTH and value.text in "{[":
            return value.span
        if value.text in ("NaN", "Infinity", "-Infinity") or _is_too_large(value.text):
            return value.span
    return None


def lone_surrogate(text: str) -> Span | None:
    """The first escape of half a surrogate pair, such as \\ud800, in a JSON text."""
    for match in re.finditer(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})?(\\u[dD][c-fC-F][0-9a-fA-F]{2})?", text):
        if (match[1] is None) != (match[2] is None):
            start = match.start(1) if match[1] else match.start(2)
            return Span(start, 6)
    return None


def _is_too_large(text: str) -> bool:
    if not re.fullmatch(r"-?[0-9][0-9.eE+-]*", text):
        return False
    try:
        return not math.isfinite(float(text)) or (text.lstrip("-").isdigit() and len(text) > 4300)
    except ValueError:
        return False


def _values(text: str) -> Iterator[_Value]:
    """The values of a JSON text in its order, as far as it can be read; no recursion, so that no depth is too deep."""
    open_names: list[set[str] | None] = []  # of each open object the names so far; None for a list
    path: list[str | int] = []
    name: Span | None = None
    twice, awaits_name = False, False
    for match in _TOKEN.finditer(text):
        token, span = match[1], Span(match.start(1), match.end(1) - match.start(1))
        names = open_names[-1] if open_names else None
        if token == ":":
            continue
        if token in "}]":
            if not open_names:
                return
            open_names.pop()
            path.pop()
            awaits_name = False
        elif token == ",":
            if path and isinstance(path[-1], int):
                path[-1] += 1
            awaits_name = names is not None
        elif awaits_name and names is not None:
            path[-1], name, awaits_name = _read(token), span, False
            twice = path[-1] in names
            names.add(str(path[-1]))
        else:
            yield _Value(tuple(path), span, token, name, twice)
            name, twice = None, False
            if token in "{[":
                open_names.append(set() if token == "{" else None)
                path.append("" if token == "{" else 0)
                awaits_name = token == "{"


def _read(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token
