"""Promise: a table's rows are all read or the file is refused, and each value is what the table holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlive.data.ledger import Ledger
from outlive.data.rows import check_rows_file, read_rows
from outlive.data.texts import read_texts
from outlive.run.errors import InputError

TABLE = pa.table({"text": [f"row {number}" for number in range(50)], "n": [-1, 0] * 25})


def _arrow(open_writer: Callable[..., Any]) -> Callable[[Path, Any], None]:
    def write(path: Path, table: Any) -> None:
        with open_writer(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=10)

    return write


stream = _arrow(pa.ipc.new_stream)
FORMS: dict[str, Callable[[Path, Any], None]] = {
    "file": _arrow(pa.ipc.new_file),
    "stream": stream,
    "parquet": lambda path, table: pq.write_table(table, path, row_group_size=20),
}


def _bounds(content: bytes) -> list[int]:
    """Where the messages of a stream begin, and where the last ends."""
    source, places = pa.BufferReader(content), [0]
    while source.seek(places[-1]) < len(content) - 8:
        pa.ipc.read_message(source)
        places.append(source.tell())
    return places


def test_a_stream_that_was_cut_is_refused_wherever_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    stream(path, TABLE)
    content = path.read_bytes()
    bounds = _bounds(content)
    assert len(bounds) == 7  # the schema and five batches
    for end in (*bounds[1:], bounds[3] + 4, bounds[3] + 40, bounds[3] - 8, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(InputError, match=r"can't be read|has no end"):
            list(read_rows(path))


def test_streams_end_to_end_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    contents = []
    for table in (TABLE, TABLE.slice(0, 0), TABLE.slice(3, 2)):
        stream(path, table)
        contents.append(path.read_bytes())
    path.write_bytes(b"".join(contents))
    assert [row.value["text"] for row in read_rows(path) if row.value] == [
        *(f"row {number}" for number in range(50)), "row 3", "row 4",
    ]  # fmt: skip
    path.write_bytes(contents[0] + contents[2][:-8])
    with pytest.raises(InputError, match="has no end"):
        check_rows_file(path)


@pytest.mark.parametrize("form", ["file", "parquet"])
@pytest.mark.parametrize("sizes", [(50, 50), (2, 50), (50, 2), (0, 3)])
def test_files_end_to_end_are_refused(form: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    contents = []
    for size in sizes:
        FORMS[form](tmp_path / "one", TABLE.slice(0, size))
        contents.append((tmp_path / "one").read_bytes())
        assert sum(1 for _ in read_rows(tmp_path / "one")) == size
    (tmp_path / "both").write_bytes(b"".join(contents))
    with pytest.raises(InputError, match=r"end to end|can't be read"):
        list(read_rows(tmp_path / "both"))


def test_bytes_that_are_no_utf8_are_refused_as_in_any_other_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [b"hello", b"caf\xc3\xa9", b"\xff\xfe"]}), tmp_path / "rows.parquet")
    ledger = Ledger("rows.parquet")
    found = list(read_texts([tmp_path / "rows.parquet"], ledger))
    assert (ledger.kept, dict(ledger.refused)) == (2, {"bad_utf8": 1})
    assert found[1].conversation is not None
    pq.write_table(pa.table({"text": [b"\xff\xfe", b"hello"]}), tmp_path / "first.parquet")
    ledger = Ledger("first.parquet")  # a first row, which no format is known for yet
    list(read_texts([tmp_path / "first.parquet"], ledger))
    assert (ledger.kept, dict(ledger.refused)) == (1, {"bad_utf8": 1})


def test_bytes_inside_messages_are_refused_and_those_of_pictures_nobody_reads_are_not(tmp_path: Path) -> None:
    messages = [[{"role": "user", "content": b"q"}, {"role": "assistant", "content": said}] for said in (b"a", b"\xff")]
    pq.write_table(pa.table({"messages": messages, "icon": [b"\x89PNG\xff", b"\xff"]}), tmp_path / "rows.parquet")
    ledger = Ledger("rows.parquet")
    list(read_texts([tmp_path / "rows.parquet"], ledger))
    assert (ledger.kept, dict(ledger.refused)) == (1, {"bad_utf8": 1})
    assert ledger.unused_columns == {"icon": 1}


@pytest.mark.parametrize("form", FORMS)
def test_two_columns_of_one_name_are_refused(form: str, tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    inside = pa.list_(pa.struct([("role", pa.string()), ("role", pa.string())]))
    for table in (twice, pa.table({"messages": pa.array([None], inside)})):
        FORMS[form](tmp_path / "rows", table)
        with pytest.raises(InputError, match=r"two columns of the table have the name '(text|role)'"):
            check_rows_file(tmp_path / "rows")


def test_a_map_with_a_double_key_is_refused_as_json_is(tmp_path: Path) -> None:
    pairs = [[("role", "user"), ("content", "hi")], [("role", "assistant"), ("content", "yo"), ("content", "LOST")]]
    kind = pa.list_(pa.map_(pa.string(), pa.string()))
    table = pa.table({"messages": pa.array([pairs, [pairs[0], pairs[1][:2]]], kind)})
    pq.write_table(table, tmp_path / "rows.parquet")
    ledger = Ledger("rows.parquet")
    list(read_texts([tmp_path / "rows.parquet"], ledger))
    assert (ledger.kept, dict(ledger.refused)) == (1, {"bad_json": 1})
    assert "'content' comes twice" in ledger.examples[0]["detail"]


MOMENTS = {
    "ns": (pa.array([1, 1_700_000_000_123_456_789], pa.timestamp("ns")), "2023-11-14 22:13:20.123456789"),
    "ns time": (pa.array([1, 2], pa.time64("ns")), "00:00:00.000000002"),
    "ns span": (pa.array([1, 2], pa.duration("ns")), "2"),
    "us": (pa.array([2**62, 2_000_000], pa.timestamp("us")), "1970-01-01 00:00:02"),
    "s": (pa.array([2**62, 2], pa.timestamp("s")), "1970-01-01 00:00:02"),
    "day": (pa.array([-(2**30), 1], pa.date32()), "1970-01-02"),
    "span": (pa.array([2**62, 2], pa.duration("s")), "0:00:02"),
    "ns, no such zone": (pa.array([1, 2], pa.timestamp("ns", "No/Where")), "1970-01-01 00:00:00.000000002"),
    "no such zone": (pa.array([1, 2], pa.timestamp("us", "No/Where")), "1970-01-01 00:00:00.000002"),
    "in lists": (pa.array([[1], [2, None]], pa.list_(pa.timestamp("ns"))), ["1970-01-01 00:00:00.000000002", None]),
    "in objects": (pa.array([{"t": 2**62}, {"t": 2}], pa.struct([("t", pa.timestamp("s"))])),
                   {"t": "1970-01-01 00:00:02"}),
    "in maps": (pa.array([[], [("k", 2)]], pa.map_(pa.string(), pa.timestamp("ns"))),
                {"k": "1970-01-01 00:00:00.000000002"}),
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_dates_and_times_of_any_kind_are_read(name: str, tmp_path: Path) -> None:
    column, second = MOMENTS[name]
    stream(tmp_path / "rows.arrow", pa.table({"text": ["a", "b"], "when": column}))
    first_row, second_row = read_rows(tmp_path / "rows.arrow")
    assert first_row.value is not None
    assert second_row.value == {"text": "b", "when": second}


def test_dates_and_times_are_the_same_without_pandas(tmp_path: Path) -> None:
    """Arrow gives nanoseconds to Python only where pandas is there."""
    table = pa.table({"text": ["a", "b"], **{name: column for name, (column, _) in MOMENTS.items()}})
    stream(tmp_path / "rows.arrow", table)
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas/__init__.py").write_text("raise ImportError('no pandas')")
    code = (
        "import json, sys; from pathlib import Path; from outlive.data.rows import read_rows\n"
        "print(json.dumps([row.value for row in read_rows(Path(sys.argv[1]))]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    run = [sys.executable, "-c", code, str(tmp_path / "rows.arrow")]
    said = subprocess.run(run, env=environment, capture_output=True, check=True).stdout
    assert json.loads(said) == [row.value for row in read_rows(tmp_path / "rows.arrow")]
