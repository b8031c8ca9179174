"""Promise: one sees how far a long preparation is, and nothing is written for a short one."""

from __future__ import annotations

import signal
from io import StringIO

import pytest
from rich.console import Console

from outlive.cli.show import preparing as module
from outlive.cli.show.preparing import Preparing
from outlive.data.preparer import Progress
from outlive.run.errors import Resumable


class Clock:
    """Time as the test says it is."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    return clock


def shown(clock: Clock, terminal: bool, seconds: float) -> str:
    written = StringIO()
    with Preparing(Console(file=written, force_terminal=terminal, width=120)) as preparing:
        for step in range(11):
            clock.now += seconds / 10
            preparing.on_progress(Progress("rows.jsonl", 100 * step, 1000 * step, 10 * step, 100))
        preparing.say("damaged [store]")
    return written.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then(clock: Clock) -> None:
    lines = shown(clock, terminal=False, seconds=100).splitlines()
    assert lines[0] == "preparing rows.jsonl: 40%, 400 rows  4,000 tokens  100 tok/s  ETA 1m00s"
    assert len(lines) == 3
    assert lines[-1] == "note: damaged [store]"


def test_a_short_one_says_nothing_of_itself(clock: Clock) -> None:
    assert shown(clock, terminal=False, seconds=20) == "note: damaged [store]\n"
    assert "preparing" not in shown(clock, terminal=True, seconds=0.9)


def test_a_terminal_has_one_live_line(clock: Clock) -> None:
    text = shown(clock, terminal=True, seconds=10)
    assert "1,000 rows  10,000 tokens  1,000 tok/s  ETA 0s" in text


def test_what_an_earlier_attempt_did_is_not_counted_as_speed(clock: Clock) -> None:
    written = StringIO()
    with Preparing(Console(file=written, width=120)) as preparing:
        preparing.on_progress(Progress("rows.jsonl", 500, 5000, 50, 100))
        clock.now = 40.0
        preparing.on_progress(Progress("rows.jsonl", 540, 5400, 54, 100))
    assert "10 tok/s  ETA 7m40s" in written.getvalue()


def test_sigterm_ends_it_as_an_interrupt_does() -> None:
    """So that what was prepared so far can be told, and the live line is taken away."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, Preparing(Console(file=StringIO(), width=120)):
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interruption_that_left_work_is_resumable(error: BaseException) -> None:
    """Exit code 75, as of a run: job scripts start it again."""
    error.add_note("rows.jsonl: 500 rows prepared so far, and kept")
    with pytest.raises(Resumable, match="in the middle") as stopped, Preparing(Console(file=StringIO(), width=120)):
        raise error
    assert stopped.value.exit_code == 75
    assert "500 rows prepared so far" in str(stopped.value.fix)
