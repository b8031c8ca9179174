"""Promise: every record that was written is read back, whatever its numbers and whenever the process died."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.run import metrics
from outlive.run.errors import InputError, WorkError
from outlive.run.metrics import Metrics, Record, Writer, read, to_line

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
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = Writer(tmp_path / "metrics.jsonl")
    writer.close()
    monkeypatch.setattr(writer, "file", Full())
    with pytest.raises(WorkError, match="free some space"):
        writer.write(Record(kind="train", step=1))
