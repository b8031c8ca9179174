"""Intervals of scores."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple


class Score(NamedTuple):
    """A share of right answers with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def wilson(num_right: int, num_items: int, confidence: float = 0.95) -> Score:
    """The share num_right / num_items with Wilson's score interval (Wilson 1927, JASA 22:209-212, equation 3).

    Unlike the normal interval it is right for few items and for shares near 0 and 1. Raises ValueError for no items.
    """
    if not 0 <= num_right <= num_items or num_items == 0:
        raise ValueError(f"{num_right} right of {num_items} items")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = num_right / num_items
    middle = (share + z * z / (2 * num_items)) / (1 + z * z / num_items)
    half = z / (1 + z * z / num_items) * math.sqrt(share * (1 - share) / num_items + z * z / (4 * num_items**2))
    return Score(share, max(0.0, middle - half), min(1.0, middle + half))
