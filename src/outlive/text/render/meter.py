"""The meter of one render: counts what a template does, and stops it where a limit of `limits` is passed.

What an operation would make is counted before it is made, so that no memory is taken for what is refused.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from sys import getrefcount
from typing import Any

from jinja2.runtime import markup_join
from jinja2.utils import Namespace
from markupsafe import Markup, escape

from outlive.text.render import limits
from outlive.text.render.measure import CONTAINERS, LimitReached, Size, measured

_LONG = 4096  # shorter texts cost less to read than to count


class Meter:
    """Steps and characters that are left to one render. `given`: the variables of the render, which its limits grow
    with. Raises LimitReached."""

    __slots__ = ("characters", "depth", "given", "grown", "steps")

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.steps, self.characters, self.depth = limits.MAX_STEPS, limits.MAX_CHARACTERS, 0
        self.given, self.grown = given, False

    def step(self, number: int) -> None:
        """Count `number` steps."""
        self.steps -= number
        if self.steps < 0:
            self._grow()
            if self.steps < 0:
                raise LimitReached(
                    f"it did not end within {limits.MAX_STEPS:,} steps and {limits.STEPS_PER_VALUE} more for each "
                    "value of the conversation",
                    "look for a loop in the template that has no end, or that runs over far too much",
                )

    def spend(self, number: int) -> None:
        """Count `number` characters that are made."""
        if number > self.characters:
            self.fits(number)
        self.characters -= number

    def fits(self, number: int) -> None:
        """Raise LimitReached where `number` characters are more than are left; counts nothing."""
        if number > self.characters:
            self._grow()
            if number > self.characters:
                raise LimitReached(
                    f"it makes more than {limits.MAX_CHARACTERS:,} characters of text and "
                    f"{limits.CHARACTERS_PER_CHARACTER} more for each character of the conversation",
                    "look for a text in the template that is repeated, padded or doubled",
                )

    def _grow(self) -> None:
        if self.grown:
            return
        self.grown = True
        size = measured({key: value for key, value in self.given.items() if not callable(value)}, None)
        self.steps += size.values * limits.STEPS_PER_VALUE
        more = size.characters * limits.CHARACTERS_PER_CHARACTER
        self.characters += min(more, max(limits.MOST_CHARACTERS - limits.MAX_CHARACTERS, 0))

    def enter(self) -> None:
        """Count one level of macros, blocks and recursive loops; whoever calls takes it off `depth` again."""
        self.depth += 1
        if self.depth > limits.MAX_DEPTH:
            self.depth -= 1
            raise LimitReached(
                f"macros, blocks or loops call each other more than {limits.MAX_DEPTH} deep",
                "look for a macro or a loop in the template that calls itself without end",
            )

    def read(self, value: Any) -> None:
        """Count one look at all of a text, or at each entry of a list."""
        if isinstance(value, str | bytes):
            if len(value) > _LONG:
                self.step(len(value) >> 8)
        elif type(value) in CONTAINERS or isinstance(value, range):
            self.step(len(value) >> 3)

    def weigh(self, value: Any) -> Size:
        """Count every value in `value`, at any depth. What holds itself twice, forty times over, is refused here."""
        size = measured(value, self)
        self.step(size.characters >> 8)
        return size

    def weighed(self, value: Any) -> Any:
        """`value`, counted before it is compared, hashed or named in an error."""
        kind = type(value)
        if kind is str:
            if len(value) > _LONG:
                self.step(len(value) >> 8)
        elif kind in CONTAINERS:
            self.weigh(value)
        return value

    def within(self, value: Any) -> Any:
        """`value`, counted before something is looked for in it."""
        if type(value) is dict:
            return value
        if type(value) is range:
            self.read(value)
        return self.weighed(value)

    def text(self, value: Any) -> str:
        """`str(value)`."""
        kind = type(value)
        if kind is str:
            return value  # type: ignore[no-any-return]
        if kind in CONTAINERS or isinstance(value, Namespace):
            self.fits(self.weigh(value).characters)
            return self.made(str(value))  # type: ignore[no-any-return]
        return str(value)

    def escaped(self, value: Any) -> Markup:
        """`escape(value)`: up to 5 characters for one."""
        if not isinstance(value, Markup):
            self.fits(5 * (len(value) if isinstance(value, str) else self.weigh(value).characters))
        result = escape(value)
        self.spend(len(result))
        return result

    def concat(self, pieces: Iterable[str]) -> str:
        """The pieces of an output as one text."""
        texts = pieces if type(pieces) is list else list(pieces)
        self.spend(sum(map(len, texts)))
        return "".join(texts)

    def joined(self, *values: Any) -> str:
        """`a ~ b ~ c`."""
        texts = [value if type(value) is str else self.text(value) for value in values]
        self.spend(sum(map(len, texts)))
        return "".join(texts)

    def joined_escaped(self, *values: Any) -> str:
        """`a ~ b ~ c` where Markup may be among them."""
        texts = [value if isinstance(value, str) else self.text(value) for value in values]
        self.spend(5 * sum(map(len, texts)))
        return markup_join(values)

    def added(self, *values: Any) -> Any:
        """`a + b + c`."""
        total = 0
        for value in values:
            if type(value) is not str:
                return reduce(self._add, values)
            total += len(value)
        self.spend(total)
        return "".join(values)

    def joined_on(self, *values: Any) -> str:
        """`a ~ b ~ c`, which takes the place of a: of what is made, a is not counted where nothing else holds it."""
        alone = getrefcount(values[0]) <= _ALONE
        result = self.joined(*values)
        self._replaced(values[0], alone)
        return result

    def added_on(self, *values: Any) -> Any:
        """`a + b + c`, which takes the place of a."""
        alone = getrefcount(values[0]) <= _ALONE
        result = self.added(*values)
        self._replaced(values[0], alone)
        return result

    def _replaced(self, old: Any, alone: bool) -> None:
        # Some templates write all their text by `ns.out = ns.out ~ more`: it takes time, and no more memory.
        if alone and type(old) is str:
            self.characters += len(old)
            self.step(len(old) >> 10)

    def _add(self, left: Any, right: Any) -> Any:
        if isinstance(left, str | bytes) and isinstance(right, str | bytes):
            escapes = isinstance(left, Markup) or isinstance(right, Markup)
            self.spend((len(left) + len(right)) * (5 if escapes else 1))
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            self.spend((len(left) + len(right)) * limits.COPIED_ENTRY)
        return self.number(left + right)

    def number(self, value: Any) -> Any:
        """`value`; refused where it is a whole number of thousands of digits."""
        if type(value) is int and value.bit_length() > limits.MAX_BITS:
            raise self._number()
        return value

    def bits(self, number: int) -> None:
        if number > limits.MAX_BITS:
            raise self._number()

    @staticmethod
    def _number() -> LimitReached:
        return LimitReached(f"it computes a number of more than {limits.MAX_BITS:,} bits", "no chat needs such numbers")

    def sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """`value[start:stop:step]`."""
        result = value[start:stop:step]
        if type(result) is str:
            self.spend(len(result))
        elif isinstance(result, list | tuple):
            self.spend(len(result) * limits.COPIED_ENTRY)
        return result

    def made(self, value: Any) -> Any:
        """`value`, a result: its characters or entries are counted; a generator counts while it is used up."""
        kind = type(value)
        if kind is str or isinstance(value, str | bytes):
            self.spend(len(value))
        elif kind is list:
            self.spend(len(value) * limits.COPIED_ENTRY)
        elif kind is types.GeneratorType:
            return self.counted(value)
        return value

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values, each of them three steps: what a lazy filter does with it."""
        for value in values:
            self.step(3)
            yield value

    def entries(self, values: Any) -> list[Any]:
        """The values as a list; a text's characters are its entries."""
        if isinstance(values, str):
            self.spend(len(values) * limits.NEW_ENTRY)
        self.read(values)
        return list(self.counted(values) if isinstance(values, types.GeneratorType) else values)


def _count_alone() -> int:
    """The references to a text that only one namespace holds, as a method with `*values` sees them."""

    def seen(*values: Any) -> int:
        return getrefcount(values[0])

    held = {"text": "".join(["never ", "interned"])}
    return seen(held["text"], "")


_ALONE = _count_alone()
