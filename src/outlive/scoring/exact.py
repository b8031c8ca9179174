"""Exact match: of text, and of JSON values."""

from __future__ import annotations

import json


def exact_text(answer: str, expected: str) -> bool:
    """Whether the texts are equal but for white space around them."""
    return answer.strip() == expected.strip()


def exact_json(answer: str, expected: str) -> bool:
    """Whether `answer` is the JSON value of `expected`: key order and white space are free, all else is not.

    An answer that is no JSON, or that goes on after its value, is wrong. Raises ValueError where `expected` is no JSON.
    """
    wanted = json.loads(expected)
    try:
        found = json.loads(answer, object_pairs_hook=_without_doubles)
    except ValueError:
        return False
    # 1 == True and 1 == 1.0 in Python: the canonical texts tell them apart.
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)
