"""JSON as rows may hold it: what Python's reader lets pass, but JSON does not say or would lose, is an error here."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 100  # far above any message or schema; far below what recursion bears
# What Python's reader says, by what is to be there.
_REASONS = {
    "Expecting value": "a value is expected here: text in double quotes, a number, true, false, null, [ or {",
    "Expecting property name enclosed in double quotes": "a name in double quotes is expected here",
    "Expecting ',' delimiter": "a comma or the closing bracket is expected here",
    "Expecting ':' delimiter": "a colon is expected here, after the name",
    "Unterminated string starting at": "the text that begins here is never closed by a double quote",
    "Invalid control character at": "a control character stands in a text; JSON writes it as an escape such as \\n",
    "Invalid \\escape": "no such escape; a backslash itself is written \\\\",
    "Extra data": "more follows after the end of the row's JSON; each row has a line of its own",
    "Illegal trailing comma before end of object": "nothing follows this comma; leave it out",
    "Illegal trailing comma before end of array": "nothing follows this comma; leave it out",
}


def parse_json(text: str) -> Any:
    """The value of a JSON text. ValueError, which says why, for text that is no JSON, a key that comes twice in an
    object, NaN, a number that no float holds, and lists and objects nested more than MAX_DEPTH deep.

    What breaks the grammar is a json.JSONDecodeError, which has the position; `reason` says it in other words.
    """
    try:
        value = (json.loads if text.startswith("\ufeff") else _DECODER.decode)(text)  # loads has a word for that mark
    except RecursionError:
        raise _too_deep() from None
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


def reason(error: ValueError) -> str:
    """Why a text is no JSON, without the position, which an excerpt shows."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    if not error.doc[error.pos :].strip():
        return "the JSON ends too early"
    return _REASONS.get(error.msg, error.msg[0].lower() + error.msg[1:])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is too large")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):  # the first of the two would be lost in silence
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} comes twice in one object")
    return value


# Made once: making one takes as long as reading a short row.
_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_doubles)


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep()
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]


def _too_deep() -> ValueError:
    return ValueError(f"lists and objects are nested more than {MAX_DEPTH} deep")
