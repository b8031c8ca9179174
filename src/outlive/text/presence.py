"""Whether all data of a turn stands in a render, and where: each visible character of each value, by its origin.

A template may cut a text apart and write what it took out with words of its own: "<think>", "</think>". So what has no
origin counts as there where the render holds the same characters in the same place.
"""

from __future__ import annotations

from typing import NamedTuple

from outlive.text.render.trace import Run, Source, Trace


class Data(NamedTuple):
    """Where a turn's data stands: from its first character to the one after its last; start = end: there is none."""

    start: int
    end: int
    runs: list[Run]


class Lost(NamedTuple):
    """A value that the render lacks, in whole or in part; `escaped`: it is JSON text that was encoded once more."""

    source: Source
    escaped: bool = False


def find_data(trace: Trace, message: int, low: int, high: int) -> Data | Lost:
    """The data of a message in characters [low, high) of the render, or the first value of it that is lost there."""
    runs = trace.of(message, low, high)
    ends = [run.end for run in runs]
    for number in trace.needed.get(message, []):
        source = trace.sources[number]
        own = [run for run in runs if run.source == number]
        if _is_json_text(source) and any(not run.is_literal for run in own):
            return Lost(source, escaped=True)
        end = _covered(trace.text, source.text, own, low, high)
        if end is None:
            return Lost(source)
        ends.append(end)
    if not runs:
        return Data(low, max(ends, default=low), [])
    return Data(runs[0].start, max(ends), runs)


def _covered(text: str, value: str, runs: list[Run], low: int, high: int) -> int | None:
    """The character after the value's last in `text`; None where a visible character of the value is missing."""
    at, place, found = 0, low, False
    for run in runs:
        if run.last <= at and found:
            continue  # written once more
        if run.first < at:
            return None
        gap, between = squash(value[at : run.first]), squash(text[place : run.start])
        if gap and (between != gap if found else not between.endswith(gap)):
            return None
        at, place, found = run.last, run.end, True
    rest = squash(value[at:])
    if not rest:
        return place
    if not found:
        return None
    return _after(text, rest, place, high)


def _after(text: str, rest: str, place: int, high: int) -> int | None:
    """The end of `rest`, which has no white space, where `text` goes on with it at `place`, white space aside."""
    for char in rest:
        while place < high and text[place].isspace():
            place += 1
        if place >= high or text[place] != char:
            return None
        place += 1
    return place


def _is_json_text(source: Source) -> bool:
    text = source.text.strip()
    return source.path[-1] == "arguments" and text.startswith("{") and text.endswith("}")


def squash(text: str) -> str:
    """The text without white space: templates may trim and indent data, but not drop a visible character."""
    return "".join(text.split())


def outside(text: str, runs: list[Run], start: int, end: int) -> str:
    """What of [start, end) is the template's own text; where data stood there is a line break."""
    pieces, place = [], start
    for run in runs:
        if run.end > place and run.start < end:
            pieces.append(text[place : max(run.start, place)])
            place = run.end
    return "\n".join([*pieces, text[place:end]])
