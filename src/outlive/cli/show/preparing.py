"""How far the preparation of the data is: one live line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from outlive.cli.show.progress import duration
from outlive.run.stopping import resumable

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
        self._resumable = resumable("in the middle of preparing the data")
        self._begun = self._told = time.monotonic()
        self._first_bytes = self._first_tokens = 0

    def __enter__(self) -> Preparing:
        self._resumable.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._stop()
        return self._resumable.__exit__(kind, error, trace)

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
