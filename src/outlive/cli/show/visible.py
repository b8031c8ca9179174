"""Tokens as text that a reader can trust: white space and control characters get a sign, characters stay whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

LONGEST_CHARACTER = 8  # tokens that are tried together to make one character: UTF-8 has 4 bytes, with room for a space
_BROKEN = re.compile(r"\\x[0-9a-f]{2}")
# Line breaks, tabs and controls; spaces two or more in a row, or next to a line break; characters without a shape of
# their own, tags among them (the literal ones: JavaScript reads this pattern too, and has no \U). The joiners U+200C
# and U+200D are parts of letters and emojis and stay as they are.
_SIGN = re.compile(
    r"[\x00-\x1f\x7f-\xa0\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e01ef]"
    r"| {2,}| (?=[\r\n])|(?<=\n) "
)
HIDDEN = _SIGN.pattern  # as text, for the scripts of pages: JavaScript reads it the same with the flag u
_EDGE = re.compile(r"\A | \Z")


class Vocabulary(Protocol):
    """What is asked of a tokenizer here: `outlive.text.Tokenizer` has it."""

    @property
    def added_tokens(self) -> dict[str, int]: ...

    def tokens(self, ids: Sequence[int]) -> list[str]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class Cell(NamedTuple):
    """What is shown as one: a token, or the tokens that make a whole character only together.

    `position` is the first token's place in its sequence; `weight` belongs to every token of the cell as a target.
    """

    text: str
    position: int
    ids: tuple[int, ...]
    weight: float
    special: bool


class Stretch(NamedTuple):
    """Neighbouring cells that look the same."""

    text: str
    weight: float
    special: bool


def cells(tokenizer: Vocabulary, ids: Sequence[int], weights: Sequence[float]) -> list[Cell]:
    """The cells of a sequence: ids [L] and the weight [L] of each as a target."""
    ids = [int(index) for index in ids]
    weights = [float(weight) for weight in weights]
    pieces, special = tokenizer.tokens(ids), set(tokenizer.added_tokens.values())
    found, place = [], 0
    while place < len(ids):
        size, text = 1, pieces[place]
        if ids[place] not in special and _BROKEN.search(text):
            size, text = _whole_character(tokenizer, ids, weights, pieces, place)
        taken = tuple(ids[place : place + size])
        found.append(Cell(text, place, taken, weights[place], ids[place] in special))
        place += size
    return found


def _whole_character(
    tokenizer: Vocabulary, ids: Sequence[int], weights: Sequence[float], pieces: Sequence[str], place: int
) -> tuple[int, str]:
    """How many tokens from `place` on make whole characters, and their text; the token's bytes where none do."""
    for end in range(place + 1, min(place + LONGEST_CHARACTER, len(ids)) + 1):
        if weights[end - 1] != weights[place] or not _BROKEN.search(pieces[end - 1]):
            break
        text = tokenizer.decode(ids[place:end])
        if "\ufffd" not in text:
            return end - place, text
    return 1, pieces[place]


def stretches(found: Sequence[Cell]) -> Iterator[Stretch]:
    """Cells joined as far as weight and kind are the same; each special token stays on its own."""
    for (weight, special), group in groupby(found, key=lambda cell: (cell.weight, cell.special)):
        texts = [cell.text for cell in group]
        for text in texts if special else ["".join(texts)]:
            yield Stretch(text, weight, special)


def with_signs(text: str, edges: bool = False) -> Iterator[tuple[str, bool]]:
    """`text` in pieces (text, whether it is a sign): what can't be seen is replaced by what can.

    A line break keeps its effect, after its sign. `edges`: one space at the text's very beginning or end is shown too.
    """
    place = 0
    matches = [*_SIGN.finditer(text), *(_EDGE.finditer(text) if edges else ())]
    for match in sorted(matches, key=lambda match: match.start()):
        if match.start() < place:
            continue  # the edge of a longer stretch of spaces, which is shown already
        if match.start() > place:
            yield text[place : match.start()], False
        yield _sign(match[0]), True
        place = match.end()
    if place < len(text):
        yield text[place:], False


def signed(text: str, edges: bool = False) -> str:
    """As `with_signs`, in one text."""
    return "".join(piece for piece, _ in with_signs(text, edges))


def _sign(hidden: str) -> str:
    if hidden[0] == " ":
        return "·" * len(hidden)
    code = ord(hidden)
    if hidden == "\n":
        return "↵\n"
    if hidden == "\t":
        return "→\t"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return "⍽" if code == 0xA0 else f"⟨U+{code:04X}⟩"
