"""events.jsonl: what happened in a run besides its steps: starts, saves, stops, skipped steps, signals."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from outlive.run.files import disk_error
from outlive.run.lines import Appender, nonfinite_of, read_lines, to_line


class Events:
    """Appends events; each is in the file when `write` returns. A last line that a crash cut is taken off first.

    WorkError when the disk refuses.
    """

    def __init__(self, path: Path | str, attempt: int) -> None:
        self.attempt = attempt
        self._file = Appender(Path(path), _event)

    def write(self, kind: str, **values: Any) -> None:
        """Append {"time", "attempt", "kind", …values}. Values are JSON; NaN and infinities are kept as in metrics."""
        self._file.write(to_line({"time": time.time(), "attempt": self.attempt, "kind": kind, **values}).encode())

    def sync(self) -> None:
        """Wait until all events are on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_events(path: Path | str) -> list[dict[str, Any]]:
    """All events in order, none where there is no such file; numbers that are not finite are floats again.

    A last line that a crash cut is left out; InputError for any other bad line.
    """
    path = Path(path)
    try:
        return [line.value for line in read_lines(path, _event) if line.value is not None]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk_error(error, path, "read the events") from error


def _event(values: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(values.get("kind"), str):
        raise ValueError("an event has a kind")
    for pointer, number in nonfinite_of(values).items():
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
        place: Any = values
        try:
            for part in way:
                place = place[int(part) if isinstance(place, list) else part]
            place[int(last) if isinstance(place, list) else last] = number
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"nonfinite names {pointer}, which is not here") from error
    values.pop("nonfinite", None)
    return values
