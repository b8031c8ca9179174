"""Text that knows where it is from: a `str` that carries, for each run of its characters, the value that it came from.

To a chat template it is a text like any other (it is equal to it, has its hash and its length, is printed and encoded
as it); what a method or an operator makes of it knows its origin too. Where an operation has no rule here, the result
is plain text, which says "from nowhere": never a wrong origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, SupportsIndex, cast

NOWHERE, OPENED, CLOSED = -1, -2, -3  # sources of the template's own text, and of the bounds of a {% generation %}


class Segment(NamedTuple):
    """`length` characters that were made of characters [start, stop) of the value numbered `source`.

    Where length = stop - start they are these characters, one by one; else they stand for them (an escape, "ß" → "SS").
    """

    length: int
    source: int = NOWHERE
    start: int = 0
    stop: int = 0


Segments = tuple[Segment, ...]


class Traced(str):
    """A text and its origin. `_segments` lie end to end and cover it; a template can't read the name."""

    __slots__ = ("_segments",)
    _segments: Segments

    def __str__(self) -> str:
        return self

    def __iter__(self) -> Iterator[str]:
        for place in range(len(self)):
            yield self[place]

    def __getitem__(self, key: SupportsIndex | slice[Any, Any, Any]) -> str:
        part = str.__getitem__(self, key)
        if not isinstance(key, slice):
            place = key.__index__()
            place += len(self) if place < 0 else 0
            return traced(part, cut(self._segments, place, place + 1))
        start, stop, step = key.indices(len(self))
        if step == 1:
            return traced(part, cut(self._segments, start, max(start, stop)))
        return join([self[place] for place in range(start, stop, step)])

    def __add__(self, other: str) -> str:
        return join([self, other]) if isinstance(other, str) else cast(str, str.__add__(self, other))

    def __radd__(self, other: str) -> str:
        return join([other, self])

    def __mul__(self, number: SupportsIndex) -> str:
        return join([self] * number.__index__())

    __rmul__ = __mul__

    def _found(self, part: str, start: int) -> str:
        """`part`, which stands in this text at `start`."""
        return traced(part, cut(self._segments, start, start + len(part)))

    def strip(self, chars: str | None = None, /) -> str:
        return self._found(str.strip(self, chars), len(self) - len(str.lstrip(self, chars)))

    def lstrip(self, chars: str | None = None, /) -> str:
        part = str.lstrip(self, chars)
        return self._found(part, len(self) - len(part))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._found(str.rstrip(self, chars), 0)

    def removeprefix(self, prefix: str, /) -> str:
        part = str.removeprefix(self, prefix)
        return self._found(part, len(self) - len(part))

    def removesuffix(self, suffix: str, /) -> str:
        return self._found(str.removesuffix(self, suffix), 0)

    def _list(self, parts: Iterable[str]) -> list[str]:
        """The parts, which stand in this text in this order, none of them in another."""
        found, place = [], 0
        for part in parts:
            place = self.find(part, place)
            found.append(self._found(part, place))
            place += len(part)
        return found

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(str.rsplit(self, sep, maxsplit), sep)

    def _parts(self, parts: list[str], sep: str | None) -> list[str]:
        if sep is None:
            return self._list(parts)
        found, place = [], 0
        for part in parts:
            found.append(self._found(part, place))
            place += len(part) + len(sep)
        return found

    def splitlines(self, keepends: bool = False) -> list[str]:
        found, place = [], 0
        for line, whole in zip(str.splitlines(self, keepends), str.splitlines(self, True), strict=True):
            found.append(self._found(line, place))
            place += len(whole)
        return found

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = str.partition(self, sep)
        place = len(head)
        return self._found(head, 0), self._found(middle, place), self._found(tail, place + len(middle))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = str.rpartition(self, sep)
        place = len(head)
        return self._found(head, 0), self._found(middle, place), self._found(tail, place + len(middle))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            result = str.replace(self, old, new, count)
            return self if result == self else result
        pieces: list[str] = []
        for place, part in enumerate(self.split(old, count)):
            pieces += [new, part] if place else [part]
        return join(pieces)

    def join(self, values: Iterable[str], /) -> str:
        pieces: list[str] = []
        for place, value in enumerate(values):
            if not isinstance(value, str):
                raise TypeError(f"sequence item {place}: expected str instance, {type(value).__name__} found")
            pieces += [self, value] if place else [value]
        return join(pieces)

    def _mapped(self, result: str, one: Any) -> str:
        """`result`, made of this text character by character; `one` does it for one of them."""
        if len(result) == len(self):
            return traced(result, self._segments)
        if "".join(map(one, str.__iter__(self))) != result:
            return result
        pieces = [traced(one(char), _stretched(char, len(one(char)))) for char in self]
        return join(pieces)

    def upper(self) -> str:
        return self._mapped(str.upper(self), str.upper)

    def lower(self) -> str:
        return self._mapped(str.lower(self), str.lower)

    def capitalize(self) -> str:
        return self._mapped(str.capitalize(self), str.lower)

    def title(self) -> str:
        return self._mapped(str.title(self), str.lower)

    def swapcase(self) -> str:
        return self._mapped(str.swapcase(self), str.swapcase)

    def casefold(self) -> str:
        return self._mapped(str.casefold(self), str.casefold)

    def _padded(self, result: str) -> str:
        place = result.find(self)
        return join([result[:place], self, result[place + len(self) :]])

    def ljust(self, *args: Any) -> str:
        return self._padded(str.ljust(self, *args))

    def rjust(self, *args: Any) -> str:
        return self._padded(str.rjust(self, *args))

    def center(self, *args: Any) -> str:
        return self._padded(str.center(self, *args))


class TracedInt(int):
    """A whole number that knows which value of a message it is."""

    source: int


class TracedFloat(float):
    """A number that knows which value of a message it is."""

    source: int


def traced(text: str, segments: Segments) -> str:
    """A text with its origin; a plain one where there is nothing to say of it."""
    if all(segment.source == NOWHERE for segment in segments):
        return str.__str__(text)
    result = Traced(text)
    result._segments = segments
    return result


def whole(text: str, source: int) -> Traced:
    """All of the value numbered `source`."""
    result = Traced(text)
    result._segments = (Segment(len(text), source, 0, len(text)),)
    return result


def of_number(value: TracedInt | TracedFloat, text: str) -> Traced:
    """`text`, a number as it is printed."""
    result = Traced(text)
    result._segments = (Segment(len(text), value.source, 0, 1),)
    return result


def segments_of(text: str) -> Segments:
    if isinstance(text, Traced):
        return text._segments
    return (Segment(len(text)),) if text else ()


def join(pieces: Iterable[str]) -> str:
    """The pieces as one text that knows where each is from."""
    texts = pieces if isinstance(pieces, list) else list(pieces)
    segments: list[Segment] = []
    plain = 0
    for text in texts:
        if type(text) is Traced:
            if plain:
                segments.append(Segment(plain))
                plain = 0
            segments += text._segments
        else:
            plain += len(text)
    joined = "".join(texts)
    if not segments:
        return joined
    if plain:
        segments.append(Segment(plain))
    result = Traced(joined)
    result._segments = tuple(segments)
    return result


def cut(segments: Segments, start: int, stop: int) -> Segments:
    """The segments of characters [start, stop). Marks of length 0 on either bound are kept."""
    found, place = [], 0
    for segment in segments:
        if place > stop:
            break
        end = place + segment.length
        low, high = max(start, place), min(stop, end)
        if segment.source <= OPENED:
            if start <= place <= stop:
                found.append(segment)
        elif low < high:
            if high - low == segment.length:
                found.append(segment)
            elif segment.source >= 0 and segment.length == segment.stop - segment.start:
                first = segment.start + low - place
                found.append(Segment(high - low, segment.source, first, first + high - low))
            else:
                found.append(segment._replace(length=high - low))
        place = end
    return tuple(found)


def marked(text: str) -> str:
    """A text between the marks of a {% generation %} block: marks have no characters."""
    result = Traced(text)
    result._segments = (Segment(0, OPENED), *segments_of(text), Segment(0, CLOSED))
    return result


def _stretched(char: str, length: int) -> Segments:
    return tuple(segment._replace(length=length) if segment.length else segment for segment in segments_of(char))
