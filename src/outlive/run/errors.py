"""Errors that a user reads: what is wrong, where, what was expected, and what to do; docs/errors.md shows the form.

The command line prints them and turns them into exit codes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from outlive.run.credentials import without_credentials
from outlive.run.excerpt import Excerpt, Place, excerpts_of, visible

_RED, _BLUE, _BOLD, _PLAIN = "\x1b[1;31m", "\x1b[1;34m", "\x1b[1m", "\x1b[0m"


class OutliveError(Exception):
    """An error for the user. `what` is one sentence; `where` names file:line, row or tensor; `fix` says what to do.

    `expected` and `nearest`: what could stand there, and the valid name that is closest to what does. `excerpts`: the
    lines that are meant; those of a `where` that has some are taken by themselves. `mistakes`: of an error that sums
    several up, these, of which the first ones may be enough.
    """

    exit_code = 1
    label = "error"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        fix: str | None = None,
        expected: str | None = None,
        nearest: str | None = None,
        excerpts: Sequence[Excerpt] = (),
        mistakes: Sequence[OutliveError] = (),
    ) -> None:
        super().__init__(what)
        # Clean from the start: whoever writes a part of an error into a file writes no credentials with it.
        self.what: str = without_credentials(what)
        self.where: str | None = where if isinstance(where, Place) else without_credentials(where)
        self.fix: str | None = without_credentials(fix)
        self.expected, self.nearest = expected, nearest
        self.excerpts = tuple(excerpts) or excerpts_of(where)
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        return self.render().removeprefix(f"{self.label}: ")

    def render(self, color: bool = False) -> str:
        """The error as a terminal shows it: the mistakes that it sums up, then itself."""
        return "\n".join([*(mistake.render(color) + "\n" for mistake in self.mistakes), *self._lines(color)])

    def to_json(self) -> dict[str, Any]:
        """The same for programs; `line` and `column` count from 1, and what is not known is null."""
        file, line, column = self._position()
        values = {"what": self.what, "where": self.where, "file": file, "line": line, "column": column}
        values |= {"expected": self.expected, "nearest": self.nearest, "fix": self.fix, "exit_code": self.exit_code}
        values = {key: without_credentials(value) for key, value in values.items()}
        return values | ({"mistakes": [mistake.to_json() for mistake in self.mistakes]} if self.mistakes else {})

    def _position(self) -> tuple[str | None, int | None, int | None]:
        if self.excerpts:
            first = self.excerpts[-1]  # of two that exclude each other, the second
            return first.file, first.line, first.column
        found = re.fullmatch(r"(.+):(\d+)", self.where or "")
        return (found[1], int(found[2]), None) if found else (None, None, None)

    def _lines(self, color: bool) -> list[str]:
        def paint(code: str, text: str) -> str:
            return f"{code}{text}{_PLAIN}" if color else text

        numbers = ["" if excerpt.line is None else str(excerpt.line) for excerpt in self.excerpts]
        width = max(2, *map(len, numbers)) if numbers else 2
        bar = paint(_BLUE, f"{'':{width}} |")
        first, *rest = _safe(self.what).split("\n")
        lines = [f"{paint(_RED, self.label + ':')} {paint(_BOLD, first)}"]
        if location := self._location():
            lines.append(f"{'':{width}}{paint(_BLUE, '-->')} {_safe(location)}")
        if self.excerpts:
            lines.append(bar)
        for number, excerpt in zip(numbers, self.excerpts, strict=True):
            text, carets = excerpt.draw()
            lines.append(f"{paint(_BLUE, f'{number:>{width}} |')} {text}".rstrip())
            lines += [f"{bar} {paint(_RED, carets)}"] if carets else []
        lines += [f"{'':{width}}   {line}".rstrip() for line in rest]
        for name, text in self._advice():
            begin, *more = _safe(text).split("\n")
            lines.append(f"{'':{width}} {paint(_BLUE, '=')} {paint(_BOLD, name)}: {begin}")
            lines += [f"{'':{width}}   {line}" for line in more]
        return lines

    def _location(self) -> str | None:
        if len(self.excerpts) != 1:
            return self.where
        only = self.excerpts[0]
        if only.line is None:
            return only.file
        column = "" if only.column is None else f":{only.column}"
        return f"{only.file}:{only.line}{column}"

    def _advice(self) -> list[tuple[str, str]]:
        """What follows the excerpt. What another line says already is not said again."""
        said = f"{self.what}\n{self.fix}"
        advice = [("expected", self.expected)] if self.expected and self.expected not in said else []
        if self.nearest and self.nearest not in (self.fix or ""):
            advice.append(("nearest", self.nearest))
        return [(name, text) for name, text in [*advice, ("fix", self.fix)] if text]


class InputError(OutliveError):
    """The input is wrong: a file, a key, a row, an option. Exit code 2."""

    exit_code = 2


class WorkError(OutliveError):
    """The input was right, but the work failed: disk full, a failed invariant, numbers gone wrong. Exit code 1."""

    exit_code = 1


class NotTrusted(WorkError):
    """What was computed is wrong, and what was computed before may be wrong too: nothing of it is to be kept."""


class Resumable(OutliveError):
    """The work stopped at a point from which it can go on. Exit code 75."""

    exit_code = 75
    label = "stopped"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, or None if none is close."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def _safe(text: str) -> str:
    return visible(without_credentials(text))
