"""Prepare. Invariant 8: no row, key or token is dropped, cut or changed without being counted and shown."""

from __future__ import annotations

import json
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from outlive.data.prepare import Prepared, chat_template, prepare
from outlive.data.preparer import Preparer
from outlive.data.record_batch import Column
from outlive.data.refusals import meaning
from outlive.data.samples import Policy
from outlive.data.store import Store
from outlive.run.config import Data, Source
from outlive.run.errors import InputError
from outlive.run.files import hash_file
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))


def _chat(question: str, answer: str = "fine") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def _write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def _prepare(tokenizer: Tokenizer, path: str, columns: dict[str, Column] | None = None, **data: Any) -> Prepared:
    section = Data(**{"train": [Source(path=path)], "validation": None, "sequence_length": 64, **data})
    return prepare(section, tokenizer, chat_template(section, tokenizer), columns)


BAD = [
    ("{", "bad_json"),
    ("[1]", "not_an_object"),
    ('{"a": NaN}', "bad_json"),
    ({"messages": []}, "no_messages"),
    ({"messages": [3]}, "bad_message"),
    ({"messages": [{"role": "alien", "content": "x"}]}, "unknown_role"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "images"),
    ({"messages": [{"role": "user", "content": "only a question"}]}, "no_assistant_turn"),
    (
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "weight": -1}]},
        "bad_weight",
    ),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "weight": 0}]}, "no_target"),
    ({"text": "another format"}, "wrong_format"),
    ({**_chat("x"), "tools": "{"}, "bad_tools"),
    ({**_chat("x"), "chat_template_kwargs": {"a": 1}}, "template_arguments"),
    ({"messages": [{"role": "user", "content": "\ud800"}, {"role": "assistant", "content": "x"}]}, "bad_text"),
    (_chat("long " * 100), "overlong"),
]


def test_every_row_is_accounted_for(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [_chat("first"), *(row for row, _ in BAD), "", _chat("last")])
    (ledger,) = _prepare(tokenizer, path, bad_rows="drop").ledgers
    assert (ledger.rows, ledger.kept, ledger.blank_lines) == (len(BAD) + 2, 2, 1)
    reasons = [reason for _, reason in BAD]
    assert dict(ledger.refused) == {reason: reasons.count(reason) for reason in set(reasons)}
    told = "\n".join(ledger.lines())
    assert all(f"left out, {reason}: {reasons.count(reason)} ({meaning(reason)})" in told for reason in reasons)
    assert all(map(meaning, reasons))


def test_bad_rows_stop_with_their_places_and_build_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [_chat("first"), *(row for row, _ in BAD)])
    with pytest.raises(InputError) as error:
        _prepare(tokenizer, path)
    message = str(error.value)
    assert "14 of 16 rows" in message  # the overlong one is not wrong
    assert f"bad_json: the JSON ends too early (column 2)\n  --> {path}:2:2\n" in message
    assert message.count(f"{path}:") == 1 + 5
    assert "bad_rows=drop" in message


def test_overlong_alone_is_no_error(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [_chat("first"), _chat("long " * 100)])
    prepared = _prepare(tokenizer, path)
    assert prepared.ledgers[0].overlong == 1
    assert len(prepared.train.stores[0]) == 1


def test_split_keeps_every_target(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [_chat("question", "word " * 200)])
    whole, split = (_prepare(tokenizer, path, sequence_length=length, overlong="split") for length in (2000, 32))
    assert len(split.train.stores[0]) > 5
    stores = (whole.train.stores[0], split.train.stores[0])
    whole_targets, split_targets = (sum(float(s.weights(i).sum()) for i in range(len(s))) for s in stores)
    assert whole_targets == split_targets
    assert split.ledgers[0].counts["split"] == 1
    assert split.ledgers[0].counts["tokens_cut"] == 0


def test_truncation_is_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [_chat("question", "word " * 200), _chat("long " * 100)])
    prepared = _prepare(tokenizer, path, sequence_length=48, overlong="truncate")
    ledger, store = prepared.ledgers[0], prepared.train.stores[0]
    assert len(store) == 1
    assert len(store.tokens(0)) == 48
    assert ledger.refused == {"no_target_left": 1}
    assert ledger.counts["truncated"] == 2
    assert ledger.counts["tokens_cut"] > 200


def test_bom_and_crlf_are_read_and_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(_chat("a")).encode() + b"\r\n" + json.dumps(_chat("b")).encode())
    (ledger,) = _prepare(tokenizer, str(path)).ledgers
    assert (ledger.kept, ledger.bom, ledger.crlf_lines) == (2, True, 1)


def test_columns_that_are_not_read_are_shown(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [{**_chat("a"), "source": "web", "margin": 2}])
    prepared = _prepare(tokenizer, path, columns={"margin": Column("segment")})
    assert dict(prepared.ledgers[0].unused_columns) == {"source": 1}
    assert prepared.train.stores[0].value(0, "margin") == 2.0


def test_columns_that_are_not_read_have_one_order(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A set of names has another order in each process, and the manifest is to be the same."""
    names = [f"column {number}" for number in range(12)]
    path = _write(tmp_path / "rows.jsonl", [{**_chat("a"), **dict.fromkeys(reversed(names), 1)}])
    assert list(_prepare(tokenizer, path).ledgers[0].unused_columns) == sorted(names)


def test_equal_rows_land_on_one_side(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = [_chat(f"question {number % 40}") for number in range(200)]
    prepared = _prepare(tokenizer, _write(tmp_path / "rows.jsonl", rows), validation=0.3)
    assert prepared.validation is not None
    sides = [
        set(store.whole_column("content_hash")) for store in (prepared.train.stores[0], prepared.validation.stores[0])
    ]
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[0] | sides[1]) == 40
    assert prepared.ledgers[0].validation_rows == len(prepared.validation.stores[0])


def test_named_sources_that_overlap_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    train = _write(tmp_path / "train.jsonl", [_chat("a"), _chat("b")])
    other = [Source(path=_write(tmp_path / "other.jsonl", [_chat("b"), _chat("c")]))]
    with pytest.raises(InputError, match="1 of 2 validation samples") as error:
        _prepare(tokenizer, train, validation=other)
    assert "other.jsonl:0" in str(error.value)
    prepared = _prepare(tokenizer, train, validation=other, validation_overlap="allow")
    assert prepared.validation is not None
    found = [lint for lint in prepared.ledgers[1].lints if lint["id"] == "validation_overlap"]
    assert [(lint["count"], lint["rows"]) for lint in found] == [(1, [0])]


def test_no_row_left_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no row"):
        _prepare(tokenizer, _write(tmp_path / "empty.jsonl", []))
    with pytest.raises(InputError, match="no row is left"):
        _prepare(tokenizer, _write(tmp_path / "bad.jsonl", ["{"]), bad_rows="drop")
    with pytest.raises(InputError, match="no such file"):
        _prepare(tokenizer, str(tmp_path / "missing.jsonl"))


def test_real_weights_are_stored(tokenizer: Tokenizer, tmp_path: Path) -> None:
    chat = _chat("a")
    chat["messages"][1]["weight"] = 0.5
    store = _prepare(tokenizer, _write(tmp_path / "rows.jsonl", [_chat("b"), chat])).train.stores[0]
    assert set(store.weights(0).tolist()) == {0.0, 1.0}
    assert set(store.weights(1).tolist()) == {0.0, 0.5}


def test_every_setting_that_changes_tokens_changes_the_key(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    _write(path, [_chat("a")])
    template = chat_template(Data(train=[Source(path="x")]), tokenizer)
    base = Preparer(tokenizer, template, Policy(), {}, tmp_path)
    source = Source(path=str(path))
    keys = [base.key(source, hash_file(path), 0.0, "train"), base.key(source, hash_file(path), 0.1, "train")]
    keys.append(base.key(source, hash_file(path), 0.1, "validation"))
    keys.append(base.key(Source(path=str(path), limit=1), hash_file(path), 0.0, "train"))
    keys.append(base.key(Source(path=str(path), format="messages"), hash_file(path), 0.0, "train"))
    for policy in (Policy("all"), Policy(turn_end="suffix"), Policy(system="x"), Policy(sequence_length=9)):
        keys.append(Preparer(tokenizer, template, policy, {}, tmp_path).key(source, hash_file(path), 0.0, "train"))
    keys.append(
        Preparer(tokenizer, template, Policy(), {"m": Column("group")}, tmp_path).key(
            source, hash_file(path), 0.0, "train"
        )
    )
    other_template = tmp_path / "other.jinja"
    other_template.write_text(tokenizer.chat_template + "{# another #}")
    other = chat_template(Data(train=[Source(path="x")], chat_template=str(other_template)), tokenizer)
    keys.append(Preparer(tokenizer, other, Policy(), {}, tmp_path).key(source, hash_file(path), 0.0, "train"))
    other_tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "t2", eos_token="<|endoftext|>"))
    keys.append(Preparer(other_tokenizer, template, Policy(), {}, tmp_path).key(source, hash_file(path), 0.0, "train"))
    _write(path, [_chat("b")])
    keys.append(base.key(source, hash_file(path), 0.0, "train"))
    assert len(set(keys)) == len(keys)


def test_the_date_is_in_the_key_only_where_the_template_tells_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    _write(path, [_chat("a")])
    dated = tmp_path / "dated.jinja"
    dated.write_text("{{ strftime_now('%d %B %Y') }}\n" + tokenizer.chat_template)
    for file, different in ((str(dated), True), (None, False)):
        sections = [
            Data(train=[Source(path="x")], chat_template=file, date=date) for date in ("2026-01-01", "2026-01-02")
        ]
        keys = {
            Preparer(tokenizer, chat_template(section, tokenizer), Policy(), {}, tmp_path).key(
                Source(path=str(path)), hash_file(path), 0.0, "train"
            )
            for section in sections
        }
        assert (len(keys) == 2) == different


def _build(folder: str, tokenizer_folder: str, path: str) -> str:
    tokenizer = Tokenizer.load(tokenizer_folder)
    template = chat_template(Data(train=[Source(path="x")]), tokenizer)
    stores, _ = Preparer(tokenizer, template, Policy(), {}, Path(folder)).store_pair(Source(path=path), 0.0)
    return str(stores["train"].folder)


def test_two_builders_at_once_make_one_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [_chat(f"question {number}") for number in range(300)])
    home = tmp_path / "shared"
    with get_context("spawn").Pool(3) as pool:
        folders = pool.starmap(_build, [(str(home), str(tokenizer.folder), path)] * 3)
    assert len(set(folders)) == 1
    assert [entry.name for entry in (home / "stores").iterdir()] == [Path(folders[0]).name]
    store = Store(Path(folders[0]))
    store.verify()
    assert len(store) == 300
