"""JSON of rows: nothing that Python's reader would bend or lose in silence passes."""

from __future__ import annotations

import pytest

from outlive.data.json_text import MAX_DEPTH, parse_json


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "'a' comes twice"),
        ('{"x": {"a": 1, "a": 1}}', "'a' comes twice"),
        ("1e999", "too large"),
        ("NaN", "NaN"),
        ("-Infinity", "Infinity"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested"),
        ("[" * 100_000, "nested|Expecting"),
        ("{", "Expecting"),
        ("\ufeff{}", "BOM"),
    ],
)
def test_what_would_be_lost_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(text)


def test_what_json_says_is_read() -> None:
    value = {"a": [1, 2.5, None, True, "[[[" * 100], "b": {}}
    assert parse_json('{"a": [1, 2.5, null, true, "' + "[[[" * 100 + '"], "b": {}}') == value
