"""Errors that a user reads: what is wrong, where, and what to do. The command line turns them into exit codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OutliveError(Exception):
    """An error for the user. `what` is one sentence; `where` names file:line, row or tensor; `fix` says what to do."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(self.render())

    def render(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.fix:
            lines.append(f"  fix:   {self.fix}")
        return "\n".join(lines)


class InputError(OutliveError):
    """The input is wrong: a file, a key, a row, an option. Exit code 2."""

    exit_code = 2


class WorkError(OutliveError):
    """The input was right, but the work failed: disk full, a failed invariant, numbers gone wrong. Exit code 1."""

    exit_code = 1


class Resumable(OutliveError):
    """The work stopped at a point from which it can go on. Exit code 75."""

    exit_code = 75


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, or None if none is close."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None
