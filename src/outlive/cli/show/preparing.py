"""How far the preparation of the data is: one live line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from outlive.cli.show.progress import duration
from outlive.run.errors import Resumable

if TYPE_CHECKING:
    from outlive.data.preparer import Progress

LINE_SECONDS = 30.0  # between two lines where there is no terminal
FIRST_SECONDS = 1.0  # what is done sooner is not worth a bar


class Preparing:
    """Shows how far each source is. Use as a context manager, so that the live line is taken away at the end.

    In it SIGTERM ends the process as Ctrl-C does, by an exception: what was prepared is kept, and where some was, the
    exception becomes a Resumable that says so.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Any = None
        self._task: Any = None
        self._source = ""
        self._previous: Any = None  # what SIGTERM did before
        self._begun = self._told = time.monotonic()
        self._first_bytes = self._first_tokens = 0

    def __enter__(self) -> Preparing:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._previous = signal.signal(signal.SIGTERM, _end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)
            self._previous = None
        kept = getattr(error, "__notes__", [])
        if isinstance(error, KeyboardInterrupt | SystemExit) and kept:
            raise Resumable("in the middle of preparing the data", fix="; ".join(kept)) from None

    def say(self, note: str) -> None:
        """A note on a line of its own, above the live line."""
        self.console.print(f"note: {note}", markup=False, soft_wrap=True)

    def on_progress(self, progress: Progress) -> None:
        """Take how far a source is."""
        now = time.monotonic()
        if progress.source != self._source:
            self._stop()
            self._source, self._begun, self._told = progress.source, now, now
            self._first_bytes, self._first_tokens = progress.num_bytes, progress.num_tokens  # of an earlier attempt
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            if now - self._begun > FIRST_SECONDS:
                self._draw(progress, now)
        elif now - self._told > LINE_SECONDS:
            self._told = now
            share = f"{progress.num_bytes / max(1, progress.all_bytes):.0%}"
            line = f"preparing {progress.source}: {share}, {self._facts(progress, now)}"
            self.console.print(line, markup=False, soft_wrap=True)

    def _facts(self, progress: Progress, now: float) -> str:
        seconds = max(now - self._begun, 1e-9)
        speed = (progress.num_tokens - self._first_tokens) / seconds
        done = progress.num_bytes - self._first_bytes
        left = seconds * (progress.all_bytes - progress.num_bytes) / done if done else float("inf")
        return f"{progress.num_rows:,} rows  {progress.num_tokens:,} tokens  {speed:,.0f} tok/s  ETA {duration(left)}"

    def _draw(self, progress: Progress, now: float) -> None:
        if self._bar is None:
            from rich import progress as parts

            self._bar = parts.Progress(
                parts.TextColumn("preparing"),
                parts.BarColumn(bar_width=None),
                parts.TextColumn("{task.fields[facts]}", markup=False),
                console=self.console,
                refresh_per_second=2,
                expand=True,
            )
            self._task = self._bar.add_task("preparing", total=max(progress.all_bytes, 1), facts="")
            self._bar.start()
        self._bar.update(self._task, completed=progress.num_bytes, facts=self._facts(progress, now))

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # the code that a shell reports for it
