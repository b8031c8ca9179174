"""Promise: the caret stands under what is wrong in a row, wherever it is nested and whatever stands around it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.data.json_places import Span, find_fault, find_value, lone_surrogate
from outlive.data.json_text import MAX_DEPTH


def _at(text: str, span: Span | None) -> str | None:
    return None if span is None else text[span.start : span.start + span.length]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(['"', "\\", "[{,:}]", "NaN"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return [(path, value)]
    return [leaf for key, item in items for leaf in _leaves(item, (*path, key))]


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_every_value_is_found_by_its_path(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for path, leaf in _leaves(value):
        assert json.loads(str(_at(text, find_value(text, path)))) == leaf
    assert find_value(text, ("nosuch", 99)) is None
    assert find_fault(text) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1, "b": {"a": 2}, "a": 3}', '"a"'),
        ('{"a": "NaN", "b": [NaN]}', "NaN"),
        ('{"a": "1e999", "b": -1e999}', "-1e999"),
        ('{"a": ' + "9" * 5000 + "}", "9" * 5000),
        ("[" * (MAX_DEPTH + 1), "["),
        ('{"a": "\\"NaN", "n": Infinity}', "Infinity"),
    ],
)
def test_faults_beyond_the_grammar(text: str, fault: str) -> None:
    span = find_fault(text)
    assert _at(text, span) == fault
    assert span is not None
    assert span.start == (MAX_DEPTH if fault == "[" else text.rindex(fault))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('"a\\ud800b"', 2),
        ('"\\ude00"', 1),
        ('"\\ud83d\\ude00 \\ud83d"', 14),
        ('"\\ud800\\ud83d\\ude00"', 1),
        ('"\\\\ud800"', None),
        ('"\\\\\\ud800"', 3),
        ('"\\ud83d\\ude00"', None),
        ('"plain"', None),
    ],
)
def test_half_a_pair(text: str, start: int | None) -> None:
    found = lone_surrogate(text)
    assert (found.start if found else None) == start
    assert (found is not None) == any(0xD800 <= ord(character) < 0xE000 for character in json.loads(text))


@given(st.text(max_size=60))
def test_no_text_at_all_breaks_the_search(text: str) -> None:
    find_fault(text)
    find_value(text, ("messages", 0, "role"))
    lone_surrogate(text)
