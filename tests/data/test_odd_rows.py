"""Promise: whatever a file holds, each row is kept or refused by name; nothing of it is lost, and nothing crashes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from outlive.data.json_text import MAX_DEPTH, parse_json
from outlive.data.ledger import Ledger
from outlive.data.prepare import Prepared, chat_template, prepare
from outlive.data.record_batch import Column
from outlive.data.rows import check_rows_file, read_rows
from outlive.data.store import Store
from outlive.run.config import Data, Source
from outlive.run.errors import InputError
from outlive.text.refusal import MAX_DETAIL, Refusal
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer

GOOD = '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"%s}]%s}'


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))


def _prepare(tokenizer: Tokenizer, path: Path, text: str, columns: dict[str, Column] | None = None) -> Prepared:
    path.write_text(text, encoding="utf-8")
    section = Data(train=[Source(path=str(path))], validation=None, sequence_length=256, bad_rows="drop")
    return prepare(section, tokenizer, chat_template(section, tokenizer), columns)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' comes twice"),
        ('{"a": {"b": 1, "b": 1}}', "'b' comes twice"),
        ('{"a": 1e999}', "too large"),
        ('{"a": -Infinity}', "no JSON value"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ("[" * 100_000 + "]" * 100_000, "nested"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "nested"),
    ],
)
def test_json_that_would_be_lost_or_crash_is_refused(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=what):
        parse_json(text)
    (tmp_path / "rows.jsonl").write_text(f'{{"text": "a"}}\n{text}\n')
    _, row = read_rows(tmp_path / "rows.jsonl")
    assert row.refusal is not None
    assert row.refusal.reason == "bad_json"


def test_json_may_be_deep_and_wide_to_a_point() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deep) == json.loads(deep)
    assert parse_json("[" + "{}," * 500 + "1]")[-1] == 1


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ((', "weight": 1e300', ""), "bad_weight"),
        ((f', "weight": {10**400}', ""), "bad_weight"),
        ((', "weight": 1e-300', ""), "bad_weight"),
        (("", ', "tools": ' + json.dumps("[" * 5000)), "bad_tools"),
        (("", ', "tools": ' + json.dumps('[{"a": 1, "a": 2}]')), "bad_tools"),
    ],
)
def test_numbers_and_tools_out_of_range(tokenizer: Tokenizer, tmp_path: Path, extra: Any, reason: str) -> None:
    prepared = _prepare(tokenizer, tmp_path / "rows.jsonl", f"{GOOD % extra}\n{GOOD % ('', '')}\n")
    (ledger,) = prepared.ledgers
    assert (ledger.kept, dict(ledger.refused)) == (1, {reason: 1})


@pytest.mark.parametrize("arguments", ["[" * 5000, '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_arguments_that_are_no_plain_json_stay_as_they_are(arguments: str, tokenizer: Tokenizer) -> None:
    from outlive.data.formats import read_conversation

    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    row = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]}
    chat: Any = read_conversation(row, "messages")
    assert chat.rendered_messages()[1]["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize(
    ("value", "kept"), [(1e300, 0), (10**400, 0), (2**24 + 1, 0), (2**24, 1), (-3.5, 1), (True, 0)]
)
def test_columns_hold_what_a_float32_holds(tokenizer: Tokenizer, tmp_path: Path, value: Any, kept: int) -> None:
    rows = "".join(GOOD % ("", f', "margin": {json.dumps(margin)}') + "\n" for margin in (value, 1))
    prepared = _prepare(tokenizer, tmp_path / "rows.jsonl", rows, {"margin": Column("segment")})
    assert prepared.ledgers[0].kept == 1 + kept
    assert prepared.ledgers[0].refused["bad_column"] == 1 - kept


def test_names_that_no_utf8_can_hold_are_written_and_read(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A column named by half a surrogate pair, and a file whose name is no UTF-8."""
    path = tmp_path / os.fsdecode(b"rows\xff.jsonl")
    row = GOOD % ("", ', "\\ud800": 1')
    prepared = _prepare(tokenizer, path, f"{row}\n")
    assert prepared.ledgers[0].unused_columns == {"\\ud800": 1}
    (store,) = prepared.train.stores
    assert store.value(0, "sample_id") == "rows\\udcff.jsonl:0:0"
    assert Store(store.folder).manifest["source"] == str(path)


def test_the_ledger_names_the_file_that_was_given(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The store is found by the bytes, which may lie in two places."""
    text = f"{GOOD % ('', '')}\n"
    _prepare(tokenizer, tmp_path / "one.jsonl", text)
    assert _prepare(tokenizer, tmp_path / "two.jsonl", text).ledgers[0].source == str(tmp_path / "two.jsonl")


def test_rows_are_read_from_plain_files_only(tmp_path: Path) -> None:
    """A pipe gives each reader another part of the rows, and waits for ever where nobody writes."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(InputError, match="no plain file"):
            check_rows_file(path)


def test_blank_lines_in_front_are_no_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" * 70_000)
    assert check_rows_file(path) is None
    path.write_text("\n" * 60_000)
    with pytest.raises(InputError, match="no row"):
        check_rows_file(path)


def test_a_detail_quotes_no_whole_book() -> None:
    assert len(Refusal("bad_weight", "x" * 10**6).detail) == MAX_DETAIL
    assert Refusal("bad_weight", "short").detail == "short"


def test_the_ledger_says_so_where_no_format_was_found() -> None:
    assert "none of them in a known format" in Ledger("a.jsonl", rows=1, format_reason="named by --format").lines()[0]


def test_text_that_the_tokenizer_does_not_know_is_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    words = Backend(models.WordLevel({"[UNK]": 0, "hello": 1, "[END]": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path / "words"
    folder.mkdir()
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "[END]"}))
    prepared = _prepare(Tokenizer.load(folder), tmp_path / "r.jsonl", '{"text": "hello hello"}\n{"text": "hello 世"}\n')
    assert prepared.ledgers[0].counts["unknown_tokens"] == 1


@pytest.mark.parametrize("name", ["manifest.json", "data-00000.arrow"])
@pytest.mark.parametrize("damage", [b"", b"null", b"x" * 4000])
def test_a_damaged_store_is_named(tokenizer: Tokenizer, tmp_path: Path, name: str, damage: bytes) -> None:
    prepared = _prepare(tokenizer, tmp_path / "rows.jsonl", f"{GOOD % ('', '')}\n")
    folder = prepared.train.stores[0].folder
    (folder / name).write_bytes(damage)
    with pytest.raises(InputError, match="damaged") as error:
        Store(folder)
    assert name in str(error.value)
    assert "delete" in str(error.value)


def test_an_epoch_without_samples_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    from outlive.data.plan import Layout, Mixture, make_plan, refuse_empty

    stores = _prepare(tokenizer, tmp_path / "rows.jsonl", f"{GOOD % ('', '')}\n").train.stores
    plan = make_plan(Mixture(stores, [0.3]), Layout(256, 1), seed=0, epoch=0)
    with pytest.raises(InputError, match="pass 1 over the data holds no sample"):
        refuse_empty(plan)
