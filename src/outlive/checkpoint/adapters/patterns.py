"""The patterns of an adapter's config (`rank_pattern`, `alpha_pattern`), matched in bounded time whoever wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from outlive.run.errors import InputError

_MOST_STEPS = 10**7  # of one match, at worst
_FIX = "name the modules in the pattern, such as q_proj or layers.3.mlp.up_proj"


def matched(patterns: Mapping[str, Any], path: str, where: str) -> str | None:
    """The first pattern that matches the end of a module's path, at one of its dots or its beginning, as PEFT does it.

    Raises InputError for what is no regular expression, and for one that may take forever.
    """
    for pattern in patterns:
        if path == pattern or path.endswith(f".{pattern}"):
            return pattern
        if re.fullmatch(r"[\w.]+", pattern) and "." not in pattern:
            continue  # a plain name, which does not stand at the end
        compiled = _compiled(pattern, path, where)
        begins = [0, *(place + 1 for place, letter in enumerate(path) if letter == ".")]
        if any(compiled.fullmatch(path[begin:]) for begin in begins):
            return pattern
    return None


def _compiled(pattern: str, path: str, where: str) -> re.Pattern[str]:
    try:
        if len(pattern) > 1000:
            raise ValueError("it is longer than 1000 characters")
        repeats = _repeats(parser.parse(pattern))
        if (len(path) + 1) ** repeats > _MOST_STEPS:
            raise ValueError("it may take forever to match")
        return re.compile(pattern)
    except (ValueError, re.error, RecursionError, OverflowError) as error:
        raise InputError(f"the pattern {pattern[:100]!r} can't be used: {error}", where=where, fix=_FIX) from None


def _repeats(parsed: Any) -> int:
    """How many repetitions a pattern has; a repetition inside another counts as too many to bear."""
    number = 0
    for code, argument in parsed:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            _, most, inner = argument
            below = _repeats(inner)
            if below or codes.BRANCH in [each for each, _ in inner]:
                number += 100 if most is codes.MAXREPEAT or most > 1 else below
            number += int(most is codes.MAXREPEAT or most > 1)
        elif code is codes.SUBPATTERN:
            number += _repeats(argument[-1])
        elif code is codes.BRANCH:
            number += sum(_repeats(branch) for branch in argument[1])
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            number += _repeats(argument[1])
        elif code in (codes.GROUPREF, codes.GROUPREF_EXISTS, codes.ATOMIC_GROUP):
            raise ValueError("references and atomic groups are not read")
    return number
