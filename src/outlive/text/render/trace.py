"""A traced render: the text that a template makes of a conversation, and which value each character came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from outlive.text.render.provenance import CLOSED, OPENED, TracedFloat, TracedInt, segments_of, whole
from outlive.text.template import REASONING_KEYS, ChatTemplate, Message

Path = tuple[str | int, ...]
KEY = "key"  # the last step of the path of an argument's name
_UNTRACED = ("role", "type")  # names that templates choose by; as text they belong to the header
_CALLS = ("tool_calls", "function_call")


class Source(NamedTuple):
    """A value of the conversation: where it stands, its text, and whether it is data that a turn can't do without."""

    message: int
    path: Path
    text: str
    needed: bool

    @property
    def name(self) -> str:
        """The path as an error writes it: tool_calls[0].function.name."""
        written = ""
        for step in self.path[:-1] if self.path[-1] == KEY else self.path:
            written += f"[{step}]" if isinstance(step, int) else f".{step}" if written else step
        return written


class Run(NamedTuple):
    """Characters [start, end) of a render were made of characters [first, last) of a source's text."""

    start: int
    end: int
    source: int
    first: int
    last: int

    @property
    def is_literal(self) -> bool:
        return self.end - self.start == self.last - self.first


@dataclass
class Trace:
    """text: the render. sources: all values. runs: where they stand in it, in order. marks: {% generation %} blocks."""

    text: str
    sources: list[Source]
    runs: list[Run] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)

    def of(self, message: int, start: int, end: int) -> list[Run]:
        """The runs of a message's values that lie in [start, end), in order; a run across a bound is cut."""
        return [run for run in self._within(start, end) if self.sources[run.source].message == message]

    def foreign(self, message: int, start: int, end: int) -> Run | None:
        """The first run in [start, end) of a value of another message."""
        others = (run for run in self._within(start, end) if self.sources[run.source].message != message)
        return next(others, None)

    @cached_property
    def needed(self) -> dict[int, list[int]]:
        """For each message the numbers of its values that a turn can't do without, blank ones left out."""
        found: dict[int, list[int]] = {}
        for number, source in enumerate(self.sources):
            if source.needed and source.text.strip():
                found.setdefault(source.message, []).append(number)
        return found

    def _within(self, start: int, end: int) -> Iterator[Run]:
        for place in range(bisect_right(self.runs, start, key=_end_of), len(self.runs)):
            run = self.runs[place]
            if run.start >= end:
                return
            yield _clipped(run, start, end)


def _end_of(run: Run) -> int:
    return run.end


def _clipped(run: Run, start: int, end: int) -> Run:
    low, high = max(run.start, start), min(run.end, end)
    if not run.is_literal:
        return run._replace(start=low, end=high)
    return Run(low, high, run.source, run.first + low - run.start, run.last - (run.end - high))


def trace(template: ChatTemplate, messages: list[Message], **options: Any) -> Trace:
    """Render plain messages with origins. Raises TemplateError. The caller compares `text` with the plain render."""
    marker = _Marker()
    given = [marker.message(place, message) for place, message in enumerate(messages)]
    text = template.render_traced(given, **options)
    result, place, opened = Trace(str.__str__(text), marker.sources), 0, list[int]()
    sound = True
    for length, source, first, last in segments_of(text):
        if source >= 0 and length:
            result.runs.append(Run(place, place + length, source, first, last))
        elif source == OPENED:
            sound = sound and not opened
            opened.append(place)
        elif source == CLOSED and opened:
            result.marks.append((opened.pop(), place))
        place += length
    result.marks = result.marks if sound and not opened else []
    return result


class _Marker:
    """Numbers the values of a conversation, and puts a text that knows its number in the place of each."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.place, self.known = 0, dict[tuple[Any, ...], int]()

    def message(self, place: int, message: Message) -> Message:
        self.place, self.known = place, {}
        return {key: value if key in _UNTRACED else self.value((key,), value) for key, value in message.items()}

    def value(self, path: Path, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return whole(value, self.number(path, value))
        if kind is int or kind is float:
            marked = TracedInt(value) if kind is int else TracedFloat(value)
            marked.source = self.number(path, str(value))
            return marked
        if kind is dict:
            inside = _in_arguments(path)
            return {
                (whole(key, self.number((*path, key, KEY), key)) if inside and type(key) is str else key): (
                    item if key in _UNTRACED and not inside else self.value((*path, key), item)
                )
                for key, item in value.items()
            }
        if kind is list or kind is tuple:
            return kind(self.value((*path, place), item) for place, item in enumerate(value))
        return value

    def number(self, path: Path, text: str) -> int:
        if path[0] in REASONING_KEYS:  # one text under several names
            path = (REASONING_KEYS[0], *path[1:])
            known = self.known.setdefault((path, text), len(self.sources))
            if known < len(self.sources):
                return known
        self.sources.append(Source(self.place, path, text, is_needed(path)))
        return len(self.sources) - 1


def _in_arguments(path: Path) -> bool:
    return path[0] in _CALLS and "arguments" in path


def is_needed(path: Path) -> bool:
    """Whether a value is data of its message: what it says, thinks, or calls; not ids and names of results."""
    if path[0] in _CALLS:
        return _in_arguments(path) or path[-1] == "name"
    if path[0] in REASONING_KEYS:
        return True
    return path[0] == "content" and (len(path) <= 2 or path[-1] in ("text", *REASONING_KEYS))
