"""How far a run is: a live bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import math
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from outlive.run.metrics import Record

NUM_LINES = 20  # plain lines for the steps of a whole run, beside the first, the last and the validations


class Progress:
    """Shows records as they come. Use as a context manager, so that the live bar is taken away at the end.

    On a terminal: one live line. Elsewhere: the first step, the last, about NUM_LINES between them, and every
    validation. Steps that changed no weights are always told. Values may be missing, NaN or infinite.
    """

    def __init__(self, console: Console, num_steps: int) -> None:
        self.console, self.num_steps = console, num_steps
        self._seconds = self._timed = 0.0
        self._line = 0
        self._bar: Any = None
        self._task: Any = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._bar, self._task = _bar(console, num_steps)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_record(self, record: Record) -> None:
        """Take one record. Records of kinds other than train and validation are printed as lines."""
        if record.kind != "train":
            self.console.print(_other_line(record), soft_wrap=True)
            return
        if record.seconds is not None and math.isfinite(record.seconds):
            self._seconds, self._timed = self._seconds + record.seconds, self._timed + 1
        if self._bar is not None:
            values = f"loss {number(record.loss)}  {speed(record)}  ETA {self._eta(record.step)}"
            self._bar.update(self._task, completed=record.step, values=values)
        if record.skipped or (self._bar is None and self._is_due(record.step)):
            self.console.print(self._step_line(record), soft_wrap=True)

    def _is_due(self, step: int) -> bool:
        """Whether a step opens a new twentieth of the run, or is the first that is seen, or the last."""
        line = 1 + step * NUM_LINES // max(self.num_steps, 1)
        due = line > self._line or step >= self.num_steps
        self._line = max(self._line, line)
        return due

    def _step_line(self, record: Record) -> Text:
        done = f"step {record.step:>{len(str(self.num_steps))}}/{self.num_steps}"
        parts = [done, f"loss {number(record.loss)}", f"lr {number(record.lr, '.2e')}"]
        parts += [f"grad {number(record.grad_norm, '.3g')}", speed(record)]
        if record.skipped:
            parts.append(f"changed no weights: {record.skipped}")
        elif record.step < self.num_steps:
            parts.append(f"ETA {self._eta(record.step)}")
        return Text("  ".join(parts), "" if _finite(record.loss) and not record.skipped else "bold red")

    def _eta(self, step: int) -> str:
        if not self._timed:
            return "?"
        return duration(self._seconds / self._timed * max(0, self.num_steps - step))


def _bar(console: Console, num_steps: int) -> tuple[Any, Any]:
    from rich import progress

    bar = progress.Progress(
        progress.TextColumn("training"),
        progress.BarColumn(bar_width=None),
        progress.TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[values]}", markup=False),
        progress.TimeElapsedColumn(),
        console=console,
        refresh_per_second=2,
        expand=True,
    )
    return bar, bar.add_task("training", total=max(num_steps, 1), values="first step …")


def _other_line(record: Record) -> Text:
    name = f" {record.name}" if record.name else ""
    took = f"  ({duration(record.seconds)})" if record.seconds is not None else ""
    line = f"{record.kind}{name} after step {record.step}: loss {number(record.loss)}{took}"
    return Text(line, "bold cyan" if _finite(record.loss) else "bold red")


def number(value: float | None, form: str = ".4f") -> str:
    """A value for people: '–' where there is none, 'nan' and 'inf' as they are."""
    return "–" if value is None else format(value, form)


def speed(record: Record) -> str:
    """Real tokens per second, as '1,234 tok/s'."""
    rate = record.real_tokens_per_second
    return f"{rate:,.0f} tok/s" if _finite(rate) and rate is not None else "– tok/s"


def duration(seconds: float) -> str:
    """'42s', '2m10s', '3h05m', '2d04h'; '?' where it is not finite."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
