"""The order of file names that people mean: part-2 before part-10."""

from __future__ import annotations

import re
from collections.abc import Iterable


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted with the numbers in them as numbers."""
    return sorted(names, key=_key)


def _key(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name)]
