"""Promise: progress can be followed in any output, in few lines, and no number can break it."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from outlive.cli.show.progress import NUM_LINES, Progress, duration
from outlive.run.metrics import Record


def run(num_steps: int, validate: int = 0, terminal: bool = False, **values: float | None) -> list[str]:
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    known = {"loss": 1.25, "lr": 1e-4, "grad_norm": 0.5, "real_tokens_per_second": 1234.5, "seconds": 2.0} | values
    with Progress(console, num_steps) as progress:
        for step in range(1, num_steps + 1):
            progress.on_record(Record("train", step, **known))  # type: ignore[arg-type]
            if validate and step % validate == 0:
                progress.on_record(Record("validation", step, loss=2.0))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("num_steps", [1, 2, 7, 20, 21, 300, 99_999])
def test_few_lines_with_the_first_and_the_last_step(num_steps: int) -> None:
    lines = run(num_steps)
    assert len(lines) <= NUM_LINES + 2
    assert len(lines) >= min(num_steps, NUM_LINES)
    assert lines[0].split()[1].startswith("1/") or " 1/" in lines[0]
    assert f"{num_steps}/{num_steps}" in lines[-1]


def test_every_validation_is_shown() -> None:
    lines = run(300, validate=3)
    assert sum(line.startswith("validation after step") for line in lines) == 100
    assert len(lines) <= 100 + NUM_LINES + 2


def test_a_line_says_loss_rate_speed_and_time_left() -> None:
    line = run(100)[0]
    assert line == "step   1/100  loss 1.2500  lr 1.00e-04  grad 0.5  1,234 tok/s  ETA 3m18s"
    assert "ETA" not in run(100)[-1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("terminal", [False, True])
def test_no_value_breaks_it(value: float | None, terminal: bool) -> None:
    names = ("loss", "lr", "grad_norm", "real_tokens_per_second", "seconds")
    lines = run(3, validate=1, terminal=terminal, **dict.fromkeys(names, value))
    assert lines
    if not terminal:
        assert f"loss {'–' if value is None else value}" in lines[0]


def test_more_steps_than_planned_and_none_planned() -> None:
    console = Console(file=io.StringIO())
    progress = Progress(console, 0)
    progress.on_record(Record("train", 5, loss=1.0, seconds=1.0))
    progress.on_record(Record("eval", 5, loss=None, name="[task]"))
    assert "eval [task] after step 5" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_bar_on_a_terminal_shows_the_values() -> None:
    text = "\n".join(run(5, validate=5, terminal=True))
    assert "5/5" in text
    assert "loss 1.2500" in text
    assert "validation after step 5" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (130, "2m10s"),
        (11_100, "3h05m"),
        (187_200, "2d04h"),
        (math.nan, "?"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("terminal", [False, True])
def test_a_step_that_changed_no_weights_is_always_told(terminal: bool) -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=terminal)
    with Progress(console, 1000) as progress:
        for step in range(1, 8):
            skipped = "the gradient is nan" if step in (3, 4) else None
            progress.on_record(Record("train", step, loss=1.0, skipped=skipped))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("changed no weights: the gradient is nan") == 2
