"""Promise: a malformed row is refused under its own reason and costs only itself; nothing crashes, nothing is lost."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlive.data.conversation import content_hash
from outlive.data.formats import FORMATS, detect, read_conversation
from outlive.data.ledger import Ledger
from outlive.data.lint_counts import LintCounts
from outlive.data.lints import all_text, lints_of
from outlive.data.near import sketch_of
from outlive.data.pipeline import RowReader, read_samples
from outlive.data.samples import Policy, SampleMaker
from outlive.data.texts import read_texts, trained_places, turns
from outlive.text.refusal import Refusal
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.cli.bad import outcome, refused
from tests.data.golden_rows import GOLDEN
from tests.fixtures import tiny_tokenizer

Row = dict[str, Any]
NUM_ROWS = 1000


def good(number: int) -> Row:
    """A chat of two to six turns."""
    source = random.Random(number)
    words = ["Paris", "the river", "two apples", "is it so?", "see you", "42"]
    messages = []
    for turn in range(2 * source.randint(1, 3)):
        text = " ".join(source.choices(words, k=source.randint(1, 8)))
        messages.append({"role": ("user", "assistant")[turn % 2], "content": f"{text} {number}"})
    return {"messages": messages}


def in_row(change: Callable[[Row], Any]) -> Callable[[Row, random.Random], bytes]:
    """A kind of mistake that a changed object makes."""

    def make(row: Row, source: random.Random) -> bytes:
        change(row)
        return json.dumps(row).encode()

    return make


def in_message(of: str, **values: Any) -> Callable[[Row, random.Random], bytes]:
    """A kind of mistake in one message of the role `of`: keys that are set, or taken away (...)."""

    def make(row: Row, source: random.Random) -> bytes:
        message = source.choice([item for item in row["messages"] if item["role"] == of])
        for key, value in values.items():
            if value is ...:
                del message[key]
            else:
                message[key] = value
        return json.dumps(row).encode()

    return make


def in_text(change: Callable[[bytes], bytes]) -> Callable[[Row, random.Random], bytes]:
    """A kind of mistake in the line itself."""
    return lambda row, source: change(json.dumps(row).encode())


def call(**function: Any) -> list[Row]:
    return [{"type": "function", "function": function}]


def only_users(row: Row) -> None:
    row["messages"] = [message for message in row["messages"] if message["role"] == "user"]


def no_weight(row: Row) -> None:
    for message in row["messages"]:
        message["weight"] = 0


KINDS: dict[str, tuple[str, Callable[[Row, random.Random], bytes]]] = {
    "cut off": ("bad_json", lambda row, source: json.dumps(row).encode()[: source.randint(1, 40)]),
    "single quotes": ("bad_json", in_text(lambda line: line.replace(b'"', b"'"))),
    "a key twice": ("bad_json", in_text(lambda line: line.replace(b'"content"', b'"role"', 1))),
    "NaN": ("bad_json", in_row(lambda row: row.update(score=float("nan")))),
    "a huge number": ("bad_json", in_text(lambda line: line[:-1] + b', "n": 1e999}')),
    "too deep": ("bad_json", in_text(lambda line: line[:-1] + b', "n": ' + b"[" * 200 + b"]" * 200 + b"}")),
    "two rows in a line": ("bad_json", in_text(lambda line: line + line)),
    "Latin-1": ("bad_utf8", in_text(lambda line: line.replace(b"content", b"cont\xe9nt", 1))),
    "half a pair, raw": ("bad_utf8", in_text(lambda line: line.replace(b"content", b"\xed\xa0\x80", 1))),
    "half a pair, escaped": ("bad_text", in_message("user", content="x \ud800 y")),
    "a list": ("not_an_object", lambda row, source: json.dumps(row["messages"]).encode()),
    "a text": ("not_an_object", in_text(lambda line: json.dumps(line.decode()).encode())),
    "no messages key": ("wrong_format", in_row(lambda row: row.update(message=row.pop("messages")))),
    "messages is a number": ("wrong_format", in_row(lambda row: row.update(messages=3))),
    "messages is empty": ("no_messages", in_row(lambda row: row.update(messages=[]))),
    "messages is no JSON": ("no_messages", in_row(lambda row: row.update(messages="[{'role':"))),
    "a message is text": ("bad_message", in_row(lambda row: row["messages"].append("hi"))),
    "a message is null": ("bad_message", in_row(lambda row: row["messages"].insert(0, None))),
    "an unknown role": ("unknown_role", in_message("assistant", role="robot")),
    "no role": ("unknown_role", in_message("user", role=...)),
    "a role is a list": ("unknown_role", in_message("user", role=["user"])),
    "no content": ("content_not_text", in_message("assistant", content=...)),
    "content is a number": ("content_not_text", in_message("user", content=7)),
    "a part is a number": ("content_not_text", in_message("user", content=[7])),
    "a part of an unknown kind": ("content_not_text", in_message("user", content=[{"type": "smell"}])),
    "reasoning is a list": ("content_not_text", in_message("assistant", reasoning_content=["hm"])),
    "an image": ("images", in_message("user", content=[{"type": "image_url", "image_url": {"url": "x"}}])),
    "a column of images": ("images", in_row(lambda row: row.update(images=["a.png"]))),
    "a negative weight": ("bad_weight", in_message("assistant", weight=-1)),
    "two weights": ("bad_weight", in_message("assistant", weight=1, train=True)),
    "a weight is text": ("bad_weight", in_message("assistant", weight="high")),
    "a range past the end": (
        "bad_weight",
        in_message("assistant", train_detail=[{"begin_offset": 0, "end_offset": 10**6, "train": True}]),
    ),
    "a call without a name": ("bad_tool_calls", in_message("assistant", tool_calls=call(arguments={}))),
    "arguments are a list": ("bad_tool_calls", in_message("assistant", tool_calls=call(name="f", arguments=[1]))),
    "calls are no JSON": ("bad_tool_calls", in_message("assistant", tool_calls="{")),
    "a user calls tools": ("bad_tool_calls", in_message("user", tool_calls=call(name="f", arguments={}))),
    "tools are no JSON": ("bad_tools", in_row(lambda row: row.update(tools="["))),
    "tools are numbers": ("bad_tools", in_row(lambda row: row.update(tools=[1, 2]))),
    "two reasonings": ("two_reasonings", in_message("assistant", thinking="a", reasoning="b")),
    "template arguments": ("template_arguments", in_row(lambda row: row.update(chat_template_kwargs={"a": 1}))),
    "no answer": ("no_assistant_turn", in_row(only_users)),
    "no weight": ("no_target", in_row(no_weight)),
}


def bad_rows() -> list[tuple[str, bytes]]:
    """NUM_ROWS malformed rows: the kind of each, and its line."""
    source, kinds = random.Random(4), list(KINDS)
    made = []
    for number in range(NUM_ROWS):
        kind = kinds[number % len(kinds)]
        made.append((kind, KINDS[kind][1](good(number), source)))
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    tiny_tokenizer(tmp_path / "model")
    rows = bad_rows()
    lines = [json.dumps(good(10_000)).encode()]
    for number, (_, line) in enumerate(rows):
        lines += [line, json.dumps(good(20_000 + number)).encode()]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return tmp_path


def test_a_thousand_malformed_rows_are_each_refused_under_their_reason(here: Path) -> None:
    assert len(KINDS) >= 30
    tokenizer = Tokenizer.load(here / "model")
    maker = SampleMaker(tokenizer, ChatTemplate.of(tokenizer), Policy())
    ledger = Ledger("rows.jsonl")
    results = list(read_samples([here / "rows.jsonl"], RowReader("rows.jsonl", maker), ledger))
    assert all(result.refusal is None for result in results[::2])
    for (kind, _), result in zip(bad_rows(), results[1::2], strict=True):
        assert result.refusal is not None, kind
        assert result.refusal.reason == KINDS[kind][0], (kind, result.refusal)
    expected = Counter(KINDS[kind][0] for kind, _ in bad_rows())
    assert ledger.refused == expected
    assert (ledger.rows, ledger.kept, ledger.bad) == (2 * NUM_ROWS + 1, NUM_ROWS + 1, NUM_ROWS)


def test_without_a_tokenizer_the_same_rows_are_refused_but_for_what_only_it_finds(here: Path) -> None:
    results = list(read_texts([here / "rows.jsonl"], Ledger("rows.jsonl")))
    for (kind, _), result in zip(bad_rows(), results[1::2], strict=True):
        expected = None if KINDS[kind][0] == "bad_text" else KINDS[kind][0]
        assert (result.refusal.reason if result.refusal else None) == expected, kind


def test_bad_rows_refuse_makes_them_exit_2_and_drop_leaves_them_out(here: Path) -> None:
    command = ["prepare", "--model", "model", "--data", "rows.jsonl", "data.validation=null"]
    message = refused(command, f"{NUM_ROWS} of {2 * NUM_ROWS + 1} rows cannot be trained on", "images: ")
    assert message.count("-->") == 5
    done = outcome([*command, "data.bad_rows=drop", "--json"])
    assert json.loads(done.stdout)["ledger"][0]["kept"] == NUM_ROWS + 1


ODD: list[Any] = [None, 0, -1, 2.5, True, "", "x", "[", "{}", [], [None], [[]], {}, {"a": 1}, ["x"], [{"a": None}]]


def _mutate(value: Any, source: random.Random) -> Any:
    """A value with one thing in it changed: taken away, doubled, or replaced by something odd."""
    if source.random() < 0.3 or not isinstance(value, dict | list) or not value:
        return copy.deepcopy(source.choice(ODD))
    if isinstance(value, dict):
        key = source.choice(list(value))
        if source.random() < 0.2:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _mutate(value[key], source)}
    place = source.randrange(len(value))
    if source.random() < 0.2:
        return value + value[place : place + 1]
    return [*value[:place], _mutate(value[place], source), *value[place + 1 :]]


def test_no_mutation_of_any_shape_crashes() -> None:
    """Whatever a row is: a conversation that every later step can take, or a Refusal."""
    source, read = random.Random(8), Counter[str]()
    lints = LintCounts()
    for number in range(6000):
        golden = GOLDEN[number % len(GOLDEN)]
        row = _mutate(golden.row, source)
        if not isinstance(row, dict):
            continue
        for name in {golden.format, *(() if number % 3 else FORMATS)}:
            try:
                conversation = read_conversation(row, name)
                assert turns(conversation) is not None
                sketch = sketch_of(all_text(conversation))
                lints.add(number, lints_of(conversation), content_hash(conversation), sketch)
                trained_places(conversation, "assistant")
                read["read"] += 1
            except Refusal as refusal:
                read[refusal.reason] += 1
        try:
            detect(row)
        except Refusal as refusal:
            read[refusal.reason] += 1
    assert read["read"] > 500
    assert len(read) > 15
