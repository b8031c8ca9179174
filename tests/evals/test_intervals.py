"""Wilson's interval against published values, and its limits."""

from __future__ import annotations

import pytest

from outlive.evals.intervals import wilson


def test_values_of_newcombe_1998() -> None:
    """Newcombe, Statistics in Medicine 17:857-872, table I, method 3: the score interval without correction."""
    for right, items, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]:
        score = wilson(right, items)
        assert (score.low, score.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert wilson(29, 29).high == 1.0
    assert str(wilson(1, 2)) == "0.50 [0.09, 0.91]"


@pytest.mark.parametrize(("right", "items"), [(0, 0), (3, 2), (-1, 2)])
def test_impossible_counts_are_refused(right: int, items: int) -> None:
    with pytest.raises(ValueError, match="items"):
        wilson(right, items)
