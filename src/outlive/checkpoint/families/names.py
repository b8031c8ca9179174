"""Names of tensors with places in them, such as `model.layers.{layer}.mlp.experts.{expert}.up_proj.weight`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

Places = dict[str, str]  # of each place in a pattern: the number that a name has there


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression; a place is a number without leading zeros."""
    parts = re.split(r"\{(\w+)\}", pattern)
    text = "".join(rf"(?P<{part}>0|[1-9][0-9]{{0,6}})" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile(text)


@cache
def places_of(pattern: str) -> tuple[str, ...]:
    """The places of a pattern, in their order."""
    return tuple(re.findall(r"\{(\w+)\}", pattern))


def filled(pattern: str, places: Places) -> str:
    """The name that a pattern stands for."""
    for place in places_of(pattern):
        pattern = pattern.replace("{" + place + "}", places[place])
    return pattern


def matching(names: Iterable[str], pattern: str) -> Iterator[tuple[str, Places]]:
    """The names that a pattern stands for, each with its places."""
    expression = compiled(pattern)
    for name in names:
        if (match := expression.fullmatch(name)) is not None:
            yield name, match.groupdict()
