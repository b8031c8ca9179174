"""Exact match accepts what means the same and nothing else."""

from __future__ import annotations

import pytest

from outlive.scoring.exact import exact_json, exact_text

EXPECTED = '{"intent": "refund", "order": "A1", "count": 1}'


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (EXPECTED, True),
        ('{"order":"A1","intent":"refund","count":1}\n', True),
        ('{"intent": "refund", "order": "A1", "count": 1.0}', False),
        ('{"intent": "refund", "order": "A1", "count": true}', False),
        ('{"intent": "refund", "order": "A1"}', False),
        ('{"intent": "refund", "order": "A1", "count": 1, "x": 0}', False),
        ('{"intent": "x", "intent": "refund", "order": "A1", "count": 1}', False),
        (EXPECTED + " Thank you!", False),
        ("", False),
    ],
)
def test_json(answer: str, right: bool) -> None:
    assert exact_json(answer, EXPECTED) == right


def test_text() -> None:
    assert exact_text(" yes\n", "yes")
    assert not exact_text("Yes", "yes")
