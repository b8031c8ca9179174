"""Tokens that open and close a part of an answer, by their writing: <think> … </think>, <|channel> … <channel|>."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

_TAG = re.compile(r"<[^<>\s]+>|\[/?[^\W\d][^\[\]\s]*\]")
_OPENS, _CLOSES = ("start_", "begin_", "open_"), ("end_", "close_")
_STARTED, _ENDED = ("_start", "_begin", ":begin", "_open", "_prefix"), ("_end", ":end", "_close", "_suffix")


class Tag(NamedTuple):
    start: int
    end: int
    name: str
    kind: Literal["opens", "closes", "stands"]


def tags(text: str) -> list[Tag]:
    """The tags in a text, in order."""
    return [Tag(found.start(), found.end(), *_read(found.group()[1:-1])) for found in _TAG.finditer(text)]


def _read(inner: str) -> tuple[str, Literal["opens", "closes", "stands"]]:
    name = inner.strip("|/").lower().replace("▁", "_")
    if "/" in inner[:2]:
        return name, "closes"
    for marks, cut_end, kind in (
        (_CLOSES, False, "closes"),
        (_ENDED, True, "closes"),
        (_OPENS, False, "opens"),
        (_STARTED, True, "opens"),
    ):
        for mark in marks:
            if name.endswith(mark) if cut_end else name.startswith(mark):
                return (name[: -len(mark)] if cut_end else name[len(mark) :]), kind  # type: ignore[return-value]
    if inner.endswith("|") and not inner.startswith("|"):
        return name, "closes"
    if inner.startswith("|") and inner.endswith("|"):
        return name, "stands"
    return name, "opens"


def leaves_open(text: str, then: str = "") -> bool:
    """Whether a text opens a part that neither it nor the beginning of `then` closes, or closes one it did not open."""
    opened: list[str] = []
    for tag in tags(text):
        if tag.kind == "opens":
            opened.append(tag.name)
        elif tag.kind == "stands" or not opened or opened.pop() != tag.name:
            return True
    for tag in tags(then):
        if not opened:
            return False
        if tag.kind != "closes" or opened.pop() != tag.name:
            return True
    return bool(opened)


def begins_with_tag(text: str) -> bool:
    """Whether there is nothing in a text, white space aside, or a tag before all else."""
    return not text.strip() or any(not text[: tag.start].strip() for tag in tags(text)[:1])


def whole_tags(text: str, place: int) -> int:
    """`place`, or the beginning of the tag in whose middle it lies."""
    return next((tag.start for tag in tags(text) if tag.start < place < tag.end), place)
