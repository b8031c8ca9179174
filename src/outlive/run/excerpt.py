"""What an error points at: a line of a file or of the command line, with carets under the text that is meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from outlive.run.credentials import line_without_credentials, without_credentials

WIDTH = 96  # columns of a line that are shown; longer lines are cut around the carets
_ROOM = 20_000  # characters on each side that are searched for credentials
COMMAND_LINE = "command line"
# Characters without a shape of their own, among them those that turn the direction of what follows (CVE-2021-42574).
_HIDDEN = {
    0xAD, 0x61C, 0x115F, 0x1160, 0x180E, 0x200B, 0x200E, 0x200F, 0x3164, 0xFEFF,
    *range(0x2028, 0x202F), *range(0x2060, 0x2070), *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
}  # fmt: skip


@dataclass(frozen=True)
class Excerpt:
    """One line and the part of it that is meant.

    `line` counts from 1 and is None on the command line. `column` counts characters from 1; None: the whole line is
    meant. `text` is the line from its character `start` (counted from 0) on; `more`: it goes on after `text`.
    """

    file: str
    line: int | None
    text: str
    column: int | None = None
    length: int = 1
    start: int = 0
    more: bool = False

    def cut(self, around: int = 200) -> Excerpt:
        """The same with at most so many characters on each side of what is meant, and without credentials."""
        # Credentials are taken out of a wide part first: half of one would not be known as one any more.
        return self._part(_ROOM)._clean()._part(around)

    def draw(self) -> tuple[str, str]:
        """The line as it is shown, and the carets below it (empty where the whole line is meant)."""
        short = self.cut(WIDTH)
        cells = [_cell(character) for character in short.text]
        widths = [sum(map(_width, cell)) for cell in cells]
        at = 0 if short.column is None else max(0, min(short.column - 1 - short.start, len(cells)))
        first = _first_shown(widths, at)
        last, used = first, 0
        while last < len(cells) and used + widths[last] <= WIDTH:
            used, last = used + widths[last], last + 1
        before = "…" if first or short.start else ""
        line = before + "".join(cells[first:last]) + ("…" if last < len(cells) or short.more else "")
        if short.column is None:
            return line, ""
        length = max(1, sum(widths[at : min(at + short.length, last)]))
        return line, " " * (len(before) + sum(widths[first:at])) + "^" * length

    def _part(self, around: int) -> Excerpt:
        at = 0 if self.column is None else min(max(0, self.column - 1 - self.start), len(self.text))
        first, last = max(0, at - around), at + min(self.length, around) + around
        more = self.more or last < len(self.text)
        return replace(self, text=self.text[first:last], start=self.start + first, more=more)

    def _clean(self) -> Excerpt:
        clean = line_without_credentials(self.text)
        if clean == self.text or self.column is None:
            return replace(self, text=clean)
        same_before = _same(self.text, clean)
        same_after = _same(self.text[same_before:][::-1], clean[same_before:][::-1])
        at, gone = self.column - 1 - self.start, len(self.text) - len(clean)
        if at >= len(self.text) - same_after:
            return replace(self, text=clean, column=self.column - gone)
        at = min(at, same_before)
        return replace(self, text=clean, column=self.start + at + 1, length=max(1, min(self.length, len(clean) - at)))


class Place(str):
    """Where something stands, as "run.yaml:3" or "override seed=1", and the lines that show it.

    `value` is the excerpt of a key's value, where that stands on the key's line.
    """

    excerpts: tuple[Excerpt, ...]
    value: Excerpt | None

    def __new__(cls, text: str, excerpts: Sequence[Excerpt] = (), value: Excerpt | None = None) -> Place:
        place = super().__new__(cls, text)
        place.excerpts, place.value = tuple(excerpts), value
        return place


def both(first: str, second: str) -> Place:
    """Two places as one, for an error that is about both."""
    return Place(f"{first} and {second}", [*excerpts_of(first), *excerpts_of(second)])


def excerpts_of(where: str | None) -> tuple[Excerpt, ...]:
    """The lines that a place shows; none for a plain text."""
    return where.excerpts if isinstance(where, Place) else ()


def said_on_command_line(text: str, first: str, value: str) -> Place:
    """The place of something typed: `text` is how it is called, `first` + `value` what was typed."""
    line = first + value
    key = Excerpt(COMMAND_LINE, None, line, 1, max(1, len(first.rstrip("= "))))
    return Place(
        without_credentials(text), [key], Excerpt(COMMAND_LINE, None, line, len(first) + 1, max(1, len(value)))
    )


def visible(text: str) -> str:
    """Text that a terminal shows as it is: control characters and the like get a sign; line breaks stay."""
    return "".join(character if character == "\n" else _cell(character) for character in text)


def _same(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _cell(character: str) -> str:
    code = ord(character)
    if character == "\t":
        return "→   "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 or code in _HIDDEN:
        return f"⟨U+{code:04X}⟩"
    return character


def _width(character: str) -> int:
    """Columns of a terminal that a character takes."""
    if unicodedata.combining(character) or character == "\u200d":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _first_shown(widths: Sequence[int], at: int) -> int:
    """Which cell the shown part begins with, so that what is meant stands in it with a third of the width before."""
    if sum(widths) <= WIDTH:
        return 0
    first, room = at, WIDTH // 3
    while first > 0 and room >= widths[first - 1]:
        first, room = first - 1, room - widths[first - 1]
    while first > 0 and sum(widths[first - 1 :]) <= WIDTH:
        first -= 1
    return first
