"""Promise: the report says what the records say, of any run whole or broken, and opens without a network."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outlive.cli import main as outlive_main
from outlive.cli.show.chart import MAX_POINTS, Series, joined, line_chart, smooth, ticks
from outlive.cli.show.pages import report_page
from outlive.cli.show.summary import current, summarise
from outlive.run.metrics import Record, Writer

VOID = {"meta", "line", "circle", "path"}


@pytest.fixture(autouse=True)
def _verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(outlive_main.VERBS, "report", ("outlive.cli.report", "report"))


def train(step: int, loss: float | None, attempt: int = 1, **values: Any) -> Record:
    known = {"tokens": 100, "target_tokens": 60, "seconds": 2.0, "lr": 1e-4, "grad_norm": 1.0, "memory": 2**30}
    known |= {"real_tokens_per_second": 50.0, "epoch": step // 50, "time": 1e9 + step}
    return Record("train", step, attempt, loss=loss, **(known | values))  # type: ignore[arg-type]


def validation(step: int, loss: float) -> Record:
    return Record("validation", step, loss=loss, tokens=10, target_tokens=5, seconds=1.0)


def run_folder(path: Path, records: list[Record]) -> Path:
    with Writer(path / "metrics.jsonl") as writer:
        for record in records:
            writer.write(record)
    return path


class Checker(HTMLParser):
    """Every element that opens is closed, and nothing is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href", "srcset"} & {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def check(page: str) -> str:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page
    return page


FALLING = [validation(0, 3.1), *(train(step, 3.0 * 0.97**step) for step in range(1, 101)), validation(100, 0.5)]


def test_the_page_shows_charts_ledger_settings_and_versions(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "my run", FALLING)
    ledger = {"source": "a.jsonl", "format": "messages", "rows": 5, "kept": 3, "refused": {"bad_json": 2}}
    store = {"store": "/s", "source": "a.jsonl", "num_samples": 3, "num_tokens": 99, "num_targets": 9, "weight": 1.0}
    data = {"train": [store], "validation": [], "ledger": [ledger], "plan": {"steps": 100}}
    (folder / "data.json").write_text(json.dumps(data))
    (folder / "lock.json").write_text(json.dumps({"python": "3.11.7", "packages": {"torch": "2.13.0", "zip": "1"}}))
    (folder / "run.yaml").write_text("name: <my run>\n")
    page = check(report_page(folder))
    for text in ("my run", "The loss fell from", "100 of 100", "left out, bad_json", "2.13.0", "&lt;my run&gt;"):
        assert text in page
    assert page.count("<svg ") == 5
    assert "fewer steps" not in page


@pytest.mark.parametrize(
    "records",
    [
        [],
        [validation(0, 1.0)],
        [train(1, 1.0)],
        [train(1, math.nan), train(2, math.inf), train(3, None)],
        [train(1, 0.0, lr=0.0, grad_norm=0.0, memory=None, seconds=None), train(2, 0.0)],
        [train(step, 1.0) for step in range(1, 2500)],
    ],
)
def test_any_records_make_a_page(tmp_path: Path, records: list[Record]) -> None:
    page = check(report_page(run_folder(tmp_path / "run", records)))
    assert "data.json is not here" in page
    assert len(page) < 400_000
    assert "nan" not in page.split("<svg", 1)[-1].split("<h2>Data")[0]


def test_steps_that_are_not_finite_are_shown_even_where_points_are_joined(tmp_path: Path) -> None:
    records = [train(step, math.nan if step == 777 else 1.0) for step in range(1, 3000)]
    page = report_page(run_folder(tmp_path / "run", records))
    assert "not finite at step 777" in page
    assert page.count('class="bad"') == 1
    assert "each point: the mean of 5 steps" in page


def test_warnings() -> None:
    rising = summarise([train(step, 1.0 + step) for step in range(1, 30)], planned_steps=60)
    assert any("did not fall" in warning for warning in rising.warnings())
    assert any("29 of 60" in warning for warning in rising.warnings())
    held_out = summarise([validation(0, 2.0), train(1, 1.0), train(2, 1.1), validation(2, 1.9)])
    assert held_out.warnings() == []
    assert held_out.verdict().endswith("on validation it fell from 2.000 to 1.900.")
    flat = summarise([validation(0, 2.0), train(1, 1.0), train(2, 1.1), validation(2, 2.0)])
    assert any("did not fall" in warning for warning in flat.warnings())
    over = summarise([*FALLING[:-1], validation(50, 0.5), validation(100, 0.8)])
    assert any("rose from 0.500 (step 50) to 0.800" in warning for warning in over.warnings())
    assert summarise(FALLING, 100).warnings() == []


def test_the_summary_counts_what_was_trained() -> None:
    summary = summarise(FALLING, 100)
    assert (summary.tokens, summary.target_tokens, summary.train_seconds) == (10_000, 6_000, 200.0)
    assert summary.tokens_per_second == 50.0
    assert summary.loss is not None
    assert summary.loss.best_step == 100
    assert summary.validation is not None
    assert (summary.validation.first, summary.validation.last) == (3.1, 0.5)


def test_a_later_attempt_replaces_what_it_did_again() -> None:
    first = [validation(0, 3.0), *(train(step, 1.0) for step in range(1, 8))]
    again = [train(step, 2.0, attempt=2) for step in range(6, 9)]
    kept = current([*first, *again])
    assert [record.step for record in kept if record.kind == "train"] == list(range(1, 9))
    assert [record.loss for record in kept if record.step >= 6] == [2.0, 2.0, 2.0]
    assert summarise(kept).attempts == 2


def test_skipped_steps_and_attempts_are_marked(tmp_path: Path) -> None:
    """Also where a skipped step has no loss, or a finite one, and where points are joined."""
    records = [train(step, 1.0, attempt=1 + (step > 900), epoch=0) for step in range(1, 1800)]
    records[9] = train(10, 1.0, grad_norm=math.nan, skipped="the gradient is <nan>")
    records[-1] = train(1799, None, attempt=2, skipped="the loss is inf")
    page = check(report_page(run_folder(tmp_path / "run", records)))
    assert "2 steps changed no weights: steps 10, 1799 (the gradient is &lt;nan&gt;; the loss is inf)" in page
    assert "Steps that changed no weights (2)" in page
    assert page.count(">attempt 2</text>") == 1
    assert "2 attempts" in page
    loss = page.split("<svg", 2)[1]
    assert loss.count('class="bad"') == 2
    assert summarise(records).to_json()["skipped_steps"] == [10, 1799]
    only = [train(1, None, skipped="the loss is nan", lr=None)]
    check(report_page(run_folder(tmp_path / "only", only)))


def test_the_verb_writes_the_page_and_prints_the_figures(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", FALLING)
    done = CliRunner().invoke(outlive_main.app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    assert str(folder / "report.html") in done.stdout
    assert "first 2.9100" in done.stdout
    assert (folder / "report.html").exists()
    done = CliRunner().invoke(outlive_main.app, ["report", str(folder), "--json"])
    assert json.loads(done.stdout)["loss"]["first"] == pytest.approx(2.91)


def test_no_run_or_no_metrics_is_exit_2(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        done = CliRunner().invoke(outlive_main.app, ["report", str(path)])
        assert done.exit_code == 2
        assert not (tmp_path / "report.html").exists()


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert ticks(0.52, 3.2, 5) == pytest.approx([1, 2, 3])
    assert all(3 <= value <= 3.0001 for value in ticks(3, 3.0001, 5))


def test_joining_keeps_the_ends_and_the_extremes() -> None:
    size = 5 * MAX_POINTS
    y = [1.0] * size
    y[777] = 9.0
    x, largest = joined(range(1, size + 1), y, max)
    assert len(x) == MAX_POINTS
    assert x[-1] == size
    assert max(largest) == 9.0
    assert joined([1, 2], [3.0, 4.0], max) == ([1, 2], [3.0, 4.0])


def test_smoothing_keeps_a_line_and_its_gaps() -> None:
    assert smooth([1.0, 2.0, 3.0, 4.0, 5.0], 3)[1:4] == [2.0, 3.0, 4.0]
    assert math.isnan(smooth([1.0, math.nan, 3.0], 3)[1])


def test_chart_values_under_the_pointer_are_the_data() -> None:
    figure = line_chart("Loss <x>", [Series("train", [1, 2, 3], [1.5, math.nan, 0.5], bad=(2,))])
    assert "&quot;x&quot;:[1,2,3],&quot;y&quot;:[1.5,null,0.5]" in figure
    assert "Loss &lt;x&gt;" in figure
    assert figure.count('class="bad"') == 1
