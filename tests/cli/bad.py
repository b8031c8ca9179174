"""What every wrong input has in common: one message, exit code 2, no traceback, nothing left half-written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from outlive.cli.main import app


def refused(arguments: list[str], *said: str, code: int = 2) -> str:
    """Run a command in this process; what it prints on stderr. Fails unless it is refused as it should be.

    The current directory is where runs go, `home` in it is where stores go.
    """
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    message: str = done.stderr
    assert done.exit_code == code, (done.exit_code, message, done.stdout[-500:])
    assert "Traceback" not in message
    errors = [line for line in message.splitlines() if line.startswith("error: ")]
    assert errors, message
    for text in said:
        assert text in message, f"{text!r} is not in:\n{message}"
    assert re.search(r"^ += fix: \S", message, re.MULTILINE), f"it does not say what to do:\n{message}"
    assert max(map(len, message.splitlines())) < 700, "a line is too long for anybody to read"
    assert not any(ord(character) < 32 for character in message.replace("\n", "")), repr(message)
    nothing_left()
    return message


def nothing_left(folder: Path | None = None) -> None:
    """No run folder, nothing temporary, and of stores only complete ones."""
    folder = folder or Path.cwd()
    assert not list(folder.glob("runs/*"))
    left = [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
    assert not left, left
    for store in folder.glob("home/stores/*"):
        assert store.is_file() or (store / "manifest.json").is_file(), store


def outcome(arguments: list[str]) -> Any:
    """The result of a command that is to end well."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    return done
