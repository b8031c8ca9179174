"""Notes for the user, from parts that know nothing of consoles."""

from __future__ import annotations

import sys


def to_stderr(note: str) -> None:
    """How a note is said where the caller names no other way."""
    print(f"note: {note}", file=sys.stderr)
