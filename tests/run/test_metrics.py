"""Promise: every record that was written is read back, whatever its numbers and whenever the process died."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.run import metrics
from outlive.run.errors import InputError, WorkError
from outlive.run.metrics import Metrics, Record, Writer, read, read_superseded, supersede, to_line

FLOATS = st.none() | st.floats()
RECORDS = st.builds(
    Record,
    kind=st.sampled_from(metrics.KINDS),
    step=st.integers(0, 10**12),
    tokens=st.none() | st.integers(0, 10**12),
    loss=FLOATS,
    grad_norm=FLOATS,
    lr=FLOATS,
    time=st.floats(0, 1e10),
    name=st.none() | st.text(),
    skipped=st.none() | st.text(),
)


@given(RECORDS)
def test_a_line_is_standard_json_and_reads_back(record: Record) -> None:
    line = to_line(record)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    values = json.loads(line, parse_constant=refuse)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert repr(metrics.from_values(values)) == repr(record)


def test_not_finite_numbers_are_null_and_named() -> None:
    values = json.loads(to_line(Record(kind="train", step=1, loss=math.nan, grad_norm=math.inf, lr=0.5)))
    assert values["loss"] is None
    assert values["grad_norm"] is None
    assert values["nonfinite"] == {"loss": "nan", "grad_norm": "inf"}


def test_what_is_written_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    with Writer(path) as writer:
        for step in range(3):
            writer.write(Record(kind="train", step=step, loss=1.5, time=0.0))
            assert [record.step for record in read(path).records] == list(range(step + 1))
    assert read(path).cut is None


def test_a_second_writer_appends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for attempt in (1, 2):
        with Writer(path) as writer:
            writer.write(Record(kind="train", step=attempt, attempt=attempt))
    assert [record.attempt for record in read(path).records] == [1, 2]


def test_a_line_cut_anywhere_by_a_crash_is_named_and_the_next_attempt_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first, second = (to_line(Record(kind="train", step=step, loss=0.1, time=0.0)) for step in (1, 2))
    for length in range(1, len(second)):
        path.write_text(first + second[:length])
        found = read(path)
        whole = length == len(second) - 1  # only the line break is missing
        assert [record.step for record in found.records] == ([1, 2] if whole else [1])
        assert found.cut == (None if whole else 2)
        with Writer(path) as writer:
            writer.write(Record(kind="train", step=3))
        after = read(path)
        assert [record.step for record in after.records] == ([1, 2, 3] if whole else [1, 3])
        assert after.cut is None


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"kind": "train"}', '{"kind": "other", "step": 1}', "", "\x00\x00"])
def test_a_bad_line_in_the_middle_is_an_error_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    good = to_line(Record(kind="train", step=1))
    path.write_text(good + line + "\n" + good)
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.where == f"{path}:2"


def test_keys_of_later_versions_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "train", "step": 1, "time": 0.0, "new": 3}\n')
    assert read(path) == Metrics([Record(kind="train", step=1, time=0.0)])


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no metrics"):
        read(tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").touch()
    assert read(tmp_path / "metrics.jsonl") == Metrics([])


def test_a_full_disk_is_a_work_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Writer(tmp_path / "metrics.jsonl") as writer:
        monkeypatch.setattr(os, "fsync", lambda descriptor: full(descriptor, b""))
        with pytest.raises(WorkError, match="could not write"):
            writer.sync()
        for write in (full, lambda descriptor, data: len(data) - 1):
            monkeypatch.setattr(os, "write", write)
            with pytest.raises(WorkError, match="free some space"):
                writer.write(Record(kind="train", step=1))


def test_texts_and_skipped_steps_survive(tmp_path: Path) -> None:
    record = Record("train", 3, loss=math.nan, skipped='the gradient is nan: "a\nb" – ü', name="half \ud83d")
    with Writer(tmp_path / "metrics.jsonl") as writer:
        writer.write(record)
        writer.sync()
    assert repr(read(tmp_path / "metrics.jsonl").records) == repr([record])
    with pytest.raises(ValueError, match="skipped is 3, not a text"):
        metrics.from_values({"kind": "train", "step": 1, "skipped": 3})


def _write(path: Path, records: list[Record]) -> None:
    with Writer(path) as writer:
        for record in records:
            writer.write(record)


def test_a_resume_leaves_one_clean_curve_and_loses_no_record(tmp_path: Path) -> None:
    """Also with keys of later versions, lines that a crash cut, and one resume after another."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "validation", "step": 0, "time": 0.0, "new": 3}\n')
    _write(path, [Record("train", step, loss=math.nan if step == 5 else 1.0) for step in range(1, 8)])
    _write(path, [Record("validation", 4, loss=2.0)])
    with path.open("a") as file:
        file.write('{"kind": "train", "st')
    before = path.read_text().splitlines()
    assert supersede(path, 4) == 3
    assert path.read_text().splitlines() == [*before[:5], before[8]]
    assert (tmp_path / "superseded.jsonl").read_text().splitlines() == before[5:8]
    assert supersede(path, 4) == 0
    _write(path, [Record("train", step, attempt=2) for step in (5, 6)])
    with (tmp_path / "superseded.jsonl").open("a") as file:
        file.write('{"cut')
    assert supersede(path, 3) == 4
    assert [(record.kind, record.step) for record in read(path).records] == [
        ("validation", 0),
        *(("train", step) for step in (1, 2, 3)),
    ]
    assert sorted(record.step for record in read_superseded(path)) == [4, 4, 5, 5, 6, 6, 7]
    assert supersede(tmp_path / "none.jsonl", 0) == 0
    assert read_superseded(tmp_path / "x" / "none.jsonl") == []


class Killed(BaseException):
    """The process died here."""


class Killer:
    """Lets `number` file operations pass, does a part of the next, and then none: what a dead process does."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left, self.number = number, number
        self.seen: list[str] = []
        for name in ("open", "write", "ftruncate", "fsync", "replace", "unlink"):
            patch.setattr(os, name, self.counted(name, getattr(os, name)))

    def counted(self, name: str, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            self.seen.append(name)
            if self.left < 0:
                if self.left == -1 and name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise Killed(name)
            return real(*arguments, **named)

        return call


def test_a_kill_at_any_file_operation_of_a_resume_loses_nothing(tmp_path: Path) -> None:
    records = [Record("train", step, loss=float(step), time=float(step)) for step in range(1, 10)]
    for number in range(100):
        path = tmp_path / str(number) / "metrics.jsonl"
        _write(path, records)
        path.with_name("superseded.jsonl").write_text('{"kind": "train", "step": 7, "time": 0.5}\n{"cut')
        with pytest.MonkeyPatch.context() as patch:
            killer = Killer(patch, number)
            try:
                supersede(path, 6)
                done = True
            except Killed:
                done = False
        found = read(path).records
        assert found in (records, records[:6])
        supersede(path, 6)
        assert read(path) == Metrics(records[:6])
        assert read_superseded(path) == [Record("train", 7, time=0.5), *records[6:]]
        assert sorted(file.name for file in path.parent.iterdir()) == ["metrics.jsonl", "superseded.jsonl"]
        if done:
            break
    assert {"open", "write", "ftruncate", "fsync", "replace"} <= set(killer.seen)
    assert number == len(killer.seen) > 8
