"""Promise: the same rows give the same samples, whatever form of file holds them; nothing is added by the form."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlive.data import rows_array, rows_table
from outlive.data.ledger import Ledger
from outlive.data.rows import ReadCounts, check_rows_file, read_rows
from outlive.data.texts import read_texts
from outlive.run.errors import InputError
from outlive.run.files import hash_file
from tests.data.golden_rows import call, said


def _called(number: int) -> dict[str, Any]:
    """A chat with a tool call; the arguments of even and odd rows have other keys."""
    arguments = {"city": "Paris"} if number % 2 else {"zone": "UTC", "day": number}
    return {
        "messages": [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": "", "tool_calls": [call(arguments)]},
            {"role": "tool", "content": "12:00"},
            {"role": "assistant", "content": "yes", "weight": 0.5 if number % 3 else 1.0},
        ],
        "score": number / 2,
    }


ROWS = [_called(number) for number in range(5)]


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)


def _arrow(open_writer: Callable[..., Any]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        table = pa.Table.from_pylist(ROWS)
        with open_writer(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)

    return write


def _array(indent: int | None) -> Callable[[Path], Any]:
    return lambda path: path.write_text(json.dumps(ROWS, indent=indent))


FORMS: dict[str, Callable[[Path], Any]] = {
    "JSON Lines": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "array": _array(None),
    "array, indented": _array(2),
    "Parquet": _parquet,
    "Arrow file": _arrow(pa.ipc.new_file),
    "Arrow stream": _arrow(pa.ipc.new_stream),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_the_same_in_every_form(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_array, "_BLOCK", 100)  # every row of an array lies across reads
    monkeypatch.setattr(rows_table, "_BATCH_ROWS", 2)
    path = tmp_path / "rows"
    FORMS[form](path)
    check_rows_file(path)
    counts = ReadCounts()
    rows = list(read_rows(path, counts))
    assert [row.index for row in rows] == list(range(5))
    assert [row.value for row in rows] == ROWS
    assert counts.hash == hash_file(path)
    ledger = Ledger(str(path))
    found = list(read_texts([path], ledger))
    assert (ledger.rows, ledger.kept, ledger.format) == (5, 5, "messages")
    assert [result.conversation.weights[3] for result in found] == [1.0, 0.5, 0.5, 1.0, 0.5]  # type: ignore[union-attr]


def test_keys_that_arrow_added_are_left_out_and_values_kept(tmp_path: Path) -> None:
    """Arrow gives each object of a column the keys of all; a tool call would get arguments that nobody gave."""
    table = pa.Table.from_pylist(ROWS)
    raw = table.to_pylist()[1]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert raw == {"city": "Paris", "day": None, "zone": None}
    pq.write_table(table, tmp_path / "rows.parquet")
    counts = ReadCounts()
    row = list(read_rows(tmp_path / "rows.parquet", counts))[1].value
    assert counts.null_keys == 5
    assert row is not None
    assert row["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
    assert row["messages"][0] == {"role": "user", "content": "question 1"}


def test_values_that_json_has_not_become_text_or_nothing(tmp_path: Path) -> None:
    import datetime

    table = pa.table(
        {
            "instruction": ["a"],
            "input": pa.array([float("nan")]),
            "output": ["b"],
            "day": [datetime.date(2026, 1, 2)],
            "pairs": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    (row,) = read_rows(tmp_path / "rows.parquet")
    assert row.value == {"instruction": "a", "output": "b", "day": "2026-01-02", "pairs": {"k": 1}}


@pytest.mark.parametrize(("name", "delimiter"), [("rows.csv", ","), ("rows.tsv", "\t"), ("rows.csv", ";")])
def test_csv_keeps_every_character(name: str, delimiter: str, tmp_path: Path) -> None:
    rows = [
        {"instruction": 'say "hi", twice;\tplease', "input": "", "output": "line\nbreak"},
        {"instruction": "007", "input": "1e5", "output": "NaN"},
        {"instruction": "ü 世界", "input": "x" * 200_000, "output": "true"},
    ]
    with (tmp_path / name).open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    found = list(read_rows(tmp_path / name))
    assert [row.value for row in found] == rows
    assert [row.line for row in found] == [3, 4, 5]


def test_a_csv_row_of_another_length_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"prompt,completion\na,b\nc\nd,e,f\ng,\xff\nh,i\n")
    ledger = Ledger("rows.csv")
    list(read_texts([tmp_path / "rows.csv"], ledger))
    assert (ledger.kept, dict(ledger.refused)) == (2, {"bad_table_row": 2, "bad_utf8": 1})
    assert [example["line"] for example in ledger.examples] == [3, 4, 5]


def test_bad_rows_of_a_table_are_shown_with_what_is_wrong(tmp_path: Path) -> None:
    rows = [{"messages": said("hi", "yes")}, {"messages": [{"role": "robot", "content": "x"}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    ledger = Ledger("rows.parquet")
    list(read_texts([tmp_path / "rows.parquet"], ledger))
    (example,) = ledger.examples
    assert (example["line"], example["reason"]) == (2, "unknown_role")
    shown = example["excerpt"]
    assert shown["text"][shown["column"] - 1 :].startswith('"robot"')


@pytest.mark.parametrize("form", ["Parquet", "Arrow file", "Arrow stream"])
def test_a_table_that_was_cut_is_named(form: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    FORMS[form](path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="can't be read"):
        list(read_rows(path))


def test_an_array_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(rows_array, "_BLOCK", 1 << 14)
    with (tmp_path / "rows.json").open("w") as file:
        file.write("[")
        for number in range(3000):
            file.write(("," if number else "") + json.dumps({"text": f"{number} " + "x" * 900}))
        file.write("]")
    tracemalloc.start()
    assert sum(1 for _ in read_rows(tmp_path / "rows.json")) == 3000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
