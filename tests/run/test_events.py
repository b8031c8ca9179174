"""Promise: every event that was written is read back, whatever its values and whenever the process died."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from outlive.run.errors import InputError
from outlive.run.events import Events, read_events


def test_what_is_written_reads_back_with_its_attempt(tmp_path: Path) -> None:
    path = tmp_path / "run" / "events.jsonl"
    for attempt in (1, 2):
        with Events(path, attempt) as events:
            events.write("saved", step=3, path=Path("a/b"), text="line\nbreak \ud83d")
            events.sync()
    found = read_events(path)
    assert [(event["attempt"], event["kind"], event["step"], event["path"]) for event in found] == [
        (1, "saved", 3, "a/b"),
        (2, "saved", 3, "a/b"),
    ]
    assert found[0]["text"] == "line\nbreak \ud83d"
    assert isinstance(found[0]["time"], float)


def test_numbers_that_json_lacks_survive_at_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with Events(path, 1) as events:
        events.write("skipped", loss=math.nan, norms={"a/b~c.weight": [1.0, math.inf, (-math.inf,)]}, sample="x")
    (line,) = path.read_text().splitlines()
    json.loads(line, parse_constant=lambda name: pytest.fail(name))
    (event,) = read_events(path)
    assert math.isnan(event["loss"])
    assert event["norms"] == {"a/b~c.weight": [1.0, math.inf, [-math.inf]]}
    assert "nonfinite" not in event


def test_a_line_cut_anywhere_by_a_crash_is_mended_by_the_next_attempt(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with Events(path, 1) as events:
        events.write("started")
        events.write("saved", step=2)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first + 1, len(whole)):
        path.write_bytes(whole[:length])
        kinds = ["started", "saved"] if length == len(whole) - 1 else ["started"]
        assert [event["kind"] for event in read_events(path)] == kinds
        with Events(path, 2) as events:
            events.write("resumed")
        assert [event["kind"] for event in read_events(path)] == [*kinds, "resumed"]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"kind": 3}', "", '{"kind": "a", "nonfinite": {"b/0": "nan"}}'])
def test_a_bad_line_in_the_middle_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "a"}\n' + line + '\n{"kind": "b"}\n')
    with pytest.raises(InputError) as caught:
        read_events(path)
    assert caught.value.where == f"{path}:2"


def test_no_file_is_no_events(tmp_path: Path) -> None:
    assert read_events(tmp_path / "events.jsonl") == []
