"""Promise: whatever is given as data, all of it is used, or one message says what is wrong, where and what to do."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlive.data import rows as rows_module
from tests.cli.bad import outcome, refused
from tests.fixtures import tiny_tokenizer


def chat(answer: Any = "fine", question: Any = "How are you?", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}], **more}


GOOD = json.dumps(chat()).encode()


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    tiny_tokenizer(tmp_path / "model")
    return tmp_path


def prepare(name: str = "rows.jsonl", *settings: str) -> list[str]:
    return ["prepare", "--model", "model", "--data", name, "data.validation=null", *settings]


def _array(rows: int = 3, **options: Any) -> bytes:
    return json.dumps([chat(str(number)) for number in range(rows)], **options).encode()


# Files that hold no rows at all: the bytes, and what the message says.
FILES: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", ["holds no row", "0 bytes"]),
    "only white space": (b" \n\t\r\n\n", ["holds no row", "only white space"]),
    "only a BOM": (b"\xef\xbb\xbf", ["holds no row"]),
    "random bytes": (random.Random(0).randbytes(5000), ["binary"]),
    "gzip": (gzip.compress(GOOD * 9)[:-9], ["the gzip file is damaged", "get the file again"]),
    "broken Parquet": (b"PAR1" + bytes(range(200)), ["the Parquet file can't be read", "cut"]),
    "broken Arrow": (b"ARROW1" + bytes(range(200)), ["the Arrow file can't be read", "cut"]),
    "zip": (b"PK\x03\x04" + bytes(200), ["a zip file", "unzip"]),
    "UTF-16": (GOOD.decode().encode("utf-16"), ["UTF-16 text", "iconv"]),
    "UTF-16 without a mark": (GOOD.decode().encode("utf-16-le"), ["UTF-16 text", "iconv"]),
    "only NULs": (bytes(5000), ["NUL bytes"]),
    "a pointer of LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["git lfs pull"]),
    "one object, indented": (json.dumps(chat(), indent=2).encode(), ["over several lines", "jq -c ."]),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_holds_no_rows(here: Path, case: str) -> None:
    content, said = FILES[case]
    (here / "rows.jsonl").write_bytes(content)
    message = refused(prepare(), "rows.jsonl", *said)
    assert message.count("error: ") == 1
    assert not (here / "home").exists()


# One bad row at line 17: its bytes, and what the message says; the column where one place is meant.
ROWS: dict[str, tuple[bytes, list[str]]] = {
    "cut off": (b'{"messages": [{"role": "user", "con', ["bad_json", "rows.jsonl:17:32", "never closed"]),
    "a comma is missing": (b'{"text": "a" "b": 1}', ["bad_json", "rows.jsonl:17:14", "a comma"]),
    "single quotes": (b"{'text': 'a'}", ["bad_json", "rows.jsonl:17:2", "double quotes"]),
    "no JSON": (b"hello, world", ["bad_json", "rows.jsonl:17:1", "a value is expected"]),
    "two objects": (b'{"text": "a"} {"text": "b"}', ["bad_json", "rows.jsonl:17:15", "a line of its own"]),
    "a NUL": (b'{"text": "a\x00b"}', ["bad_json", "rows.jsonl:17:12", "control character", "␀"]),
    "a tab in a text": (b'{"text": "a\tb"}', ["bad_json", "rows.jsonl:17:12", "→"]),
    "half a pair, escaped": (json.dumps(chat("x \ud800 y")).encode(), ["bad_text", "rows.jsonl:17:96"]),
    "half a pair, raw": (b'{"text": "a\xed\xa0\x80"}', ["bad_utf8", "rows.jsonl:17:12", "surrogate pair"]),
    "Latin-1": ('{"text": "é"}'.encode("latin-1"), ["bad_utf8", "rows.jsonl:17:11", "0xe9", "iconv"]),
    "a key twice": (b'{"text": "a", "text": "b"}', ["bad_json", "rows.jsonl:17:15", "'text' comes twice"]),
    "NaN": (b'{"text": "NaN", "n": NaN}', ["bad_json", "rows.jsonl:17:22", "NaN"]),
    "a huge number": (b'{"text": "a", "n": 1e999}', ["bad_json", "rows.jsonl:17:20", "too large"]),
    "a huge int": (b'{"text": "a", "n": ' + b"9" * 5000 + b"}", ["bad_json", "rows.jsonl:17:20"]),
    "too deep": (b'{"text": ' + b"[" * 5000 + b"]" * 5000 + b"}", ["bad_json", "nested"]),
    "a list": (b"[1, 2]", ["not_an_object", "rows.jsonl:17", "a list"]),
    "a string": (b'"hello"', ["not_an_object", "a text"]),
    "a number": (b"5", ["not_an_object", "a number"]),
    "null": (b"null", ["not_an_object", "null"]),
    "an empty object": (b"{}", ["wrong_format", "a row has messages, or completion and prompt, or text"]),
    "a misspelt key": (b'{"mesages": []}', ["wrong_format", "did you mean messages by 'mesages'?"]),
    "messages are text": (b'{"messages": "hello"}', ["'messages' is to be a list of messages"]),
    "no messages": (b'{"messages": []}', ["no_messages", "rows.jsonl:17:14"]),
    "a message is text": (b'{"messages": ["hi"]}', ["bad_message", "rows.jsonl:17:15"]),
    "an unknown role": (
        b'{"messages": [{"role": "user", "content": "a"}, {"role": "bot", "content": "b"}]}',
        ["unknown_role", "rows.jsonl:17:58", "^^^^^", "did you mean assistant?"],
    ),
    "ShareGPT": (b'{"messages": [{"from": "human", "value": "a"}]}', ["unknown_role", "ShareGPT"]),
    "no content": (b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]}', ["content_not_text"]),
    "content is null": (json.dumps(chat(None)).encode(), ["content_not_text", "missing", "rows.jsonl:17:93"]),
    "content in parts": (json.dumps(chat([{"type": "text"}])).encode(), ["content_not_text", "has no text"]),
    "a picture": (json.dumps(chat([{"type": "image_url"}])).encode(), ["images", "rows.jsonl:17:94"]),
    "no assistant": (b'{"messages": [{"role": "user", "content": "a"}]}', ["no_assistant_turn"]),
    "no target": (json.dumps(chat()).replace('"fine"', '"fine", "weight": 0').encode(), ["no_target"]),
    "a wrong weight": (json.dumps(chat()).replace('"fine"', '"fine", "weight": -1').encode(), ["bad_weight"]),
    "an override of direction": ('{"text": "a‮b" x}'.encode(), ["bad_json", "⟨U+202E⟩"]),
}


# The same rows in other forms than JSON Lines: the bytes.
FORMS: dict[str, bytes] = {
    "an array on one line": _array(),
    "an array, indented": _array(indent=1),
    "a long array": b"\xef\xbb\xbf" + _array(3, indent=1).replace(b"How", b"How " * 300_000),
    "CSV": b'prompt,completion\nhello,0\n"a, ""b""\nc",1\nx,2\n',
    "TSV": b"prompt\tcompletion\r\nhello\t0\r\nc\t1\r\nx\t2\r\n",
    "semicolons": b"prompt;completion\nhello;0\nc;1\nx;2\n",
}


@pytest.mark.parametrize("case", FORMS)
def test_other_forms_of_rows_are_read(here: Path, case: str) -> None:
    (here / "rows.jsonl").write_bytes(FORMS[case])
    found = [json.loads(line) for line in outcome(["inspect", "rows.jsonl", "--json"]).stdout.splitlines()]
    assert [row["row"] for row in found] == [0, 1, 2]
    assert [row["target_text"] for row in found] == [["0"], ["1"], ["2"]]
    assert "kept: 3" in outcome(prepare("rows.jsonl", "data.sequence_length=1000000", "batch.tokens=1000000")).stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (_array()[:-10], ["rows.jsonl:1", "never closed"]),
        (_array(indent=1).replace(b'"role": "user"', b'"role" "user"', 1), ["rows.jsonl:5", "a colon is expected"]),
        (_array() + b" {}", ["more follows after the end of the array"]),
        (_array().replace(b'}, {"messages', b'} {"messages', 1), ["a comma or the closing ]"]),
        (b'prompt,completion\nhello,0\n"a,1\n', ["rows.jsonl:3", "CSV can't be read"]),
        (b"prompt,prompt\nhello,0\n", ["no header"]),
    ],
)
def test_a_break_in_a_file_that_is_one_value(here: Path, content: bytes, said: list[str]) -> None:
    """What follows the break can't be told from what is inside it: the file as a whole is refused, with its place."""
    (here / "rows.jsonl").write_bytes(content)
    message = refused(prepare("rows.jsonl", "data.bad_rows=drop"), *said)
    assert message.count("error: ") == 1


@pytest.mark.parametrize("case", ROWS)
def test_one_bad_row_is_named_by_line_and_column(here: Path, case: str) -> None:
    line, said = ROWS[case]
    (here / "rows.jsonl").write_bytes(b"\n".join([GOOD] * 16 + [line] + [GOOD] * 3) + b"\n")
    message = refused(prepare(), "1 of 20 rows cannot be trained on", "17 |", "data.bad_rows=drop", *said)
    assert message.count("error: ") == 2
    assert "left out" in outcome(prepare("rows.jsonl", "data.bad_rows=drop")).stdout


def test_many_bad_rows_are_counted_and_five_are_shown(here: Path) -> None:
    (here / "rows.jsonl").write_bytes(b"\n".join([b"{", b"[]"] * 50 + [GOOD]))
    message = refused(prepare(), "100 of 101 rows", "bad_json: 50", "not_an_object: 50")
    assert message.count("-->") == 5


def test_a_secret_in_a_row_is_not_repeated(here: Path) -> None:
    (here / "rows.jsonl").write_bytes(b'{"text": "https://me:sesame@host/x", "b" 1}\n' + GOOD)
    message = refused(prepare(), "rows.jsonl:1:")
    assert "sesame" not in message


def test_a_line_without_end_is_not_read_into_memory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE", 2000)
    (here / "rows.jsonl").write_bytes(GOOD + b'\n{"text": "' + b"x" * 5000 + b'"}\n' + GOOD + b"\n")
    message = refused(prepare(), "line_too_long", "rows.jsonl:2", "5,013 bytes", "at most 2,000", "1 of 3 rows")
    assert "jq -c" in message
    done = outcome(prepare("rows.jsonl", "data.bad_rows=drop"))
    assert "kept: 2" in done.stdout


def test_a_gigantic_line_is_passed_over_in_blocks(here: Path) -> None:
    """A gigabyte without a line break, most of which is a hole in the file: never more than a block of it is held."""
    import tracemalloc

    with (here / "rows.jsonl").open("wb") as file:
        file.write(b'{"text": "' + b"x" * 70_000)
        file.truncate(1 << 28)
    tracemalloc.start()
    refused(prepare(), "line_too_long", "268,435,456 bytes")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * rows_module.MAX_LINE


def _dangling(path: Path) -> None:
    path.symlink_to("gone.jsonl")


def _no_permission(path: Path) -> None:
    path.write_bytes(GOOD)


# Paths that are no files: how to make one, and what the message says.
PATHS: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "missing": (lambda path: None, ["there is no such file", "check the path"]),
    "missing, with a neighbour": (
        lambda path: path.with_name("row.jsonl").write_bytes(GOOD),
        ["there is no such file", "did you mean row.jsonl?"],
    ),
    "a folder": (lambda path: path.mkdir(), ["a folder", "only: nothing"]),
    "a dangling link": (_dangling, ["this link points to nothing", "gone.jsonl"]),
    "a pipe": (os.mkfifo, ["no plain file", "a pipe"]),
    "a link to itself": (lambda path: path.symlink_to(path), ["can't be read"]),
}


@pytest.mark.parametrize("case", PATHS)
def test_a_path_that_is_no_file(here: Path, case: str) -> None:
    make, said = PATHS[case]
    make(here / "rows.jsonl")
    message = refused(prepare(), "rows.jsonl", *said)
    assert message.count("error: ") == 1
    assert not (here / "home").exists()


def test_a_file_that_may_not_be_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "rows.jsonl").write_bytes(GOOD)
    original = Path.open

    def denied(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "rows.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
    refused(prepare(), "permission denied", "chmod u+r rows.jsonl")


def test_bom_and_crlf_are_read_and_counted(here: Path) -> None:
    (here / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n" + GOOD + b"\r\n")
    done = outcome(prepare())
    assert "kept: 2" in done.stdout
    assert "lines with CRLF: 2" in done.stdout
    assert "byte order mark: 1" in done.stdout


def test_tool_calls_need_no_content(here: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    row = chat()
    row["messages"][1] = {"role": "assistant", "content": None, "tool_calls": [call]}
    (here / "model" / "chat_template.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    (here / "rows.jsonl").write_text(json.dumps(row) + "\n")
    assert "kept: 1" in outcome(prepare()).stdout


def test_rows_that_are_all_too_long(here: Path) -> None:
    (here / "rows.jsonl").write_bytes(GOOD + b"\n" + GOOD + b"\n")
    refused(
        prepare("rows.jsonl", "data.sequence_length=8"), "no row is left", "overlong: 2", "raise data.sequence_length"
    )


def test_rows_without_any_target(here: Path) -> None:
    row = json.dumps(chat()).replace('"fine"', '"fine", "train": false')
    (here / "rows.jsonl").write_text(f"{row}\n{row}\n")
    refused(prepare(), "2 of 2 rows", "no_target: 2")
    refused(prepare("rows.jsonl", "data.bad_rows=drop"), "no row is left", "no_target: 2")


def test_a_base_model_has_no_chat_template(here: Path) -> None:
    (here / "model" / "chat_template.jinja").unlink()
    (here / "rows.jsonl").write_bytes(GOOD + b"\n")
    refused(prepare(), "no_template", "data.chat_template", "Instruct")


def test_validation_rows_that_are_trained_on(here: Path) -> None:
    (here / "rows.jsonl").write_bytes(b"\n".join([GOOD, json.dumps(chat("a")).encode()]))
    (here / "held.jsonl").write_bytes(b"\n".join([json.dumps(chat("b")).encode(), GOOD]))
    settings = ["prepare", "--model", "model", "--data", "rows.jsonl", "data.validation=[{path: held.jsonl}]"]
    refused(settings, "held.jsonl:1", "in the training data too", "data.validation_overlap=allow")


@pytest.mark.parametrize("verb", ["prepare", "inspect"])
def test_json_asks_for_json_errors(here: Path, verb: str) -> None:
    (here / "rows.jsonl").write_bytes(b"PAR1")
    from typer.testing import CliRunner

    from outlive.cli.main import app

    arguments = prepare() if verb == "prepare" else ["inspect", "rows.jsonl"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert error.keys() >= {"what", "where", "file", "line", "column", "expected", "nearest", "fix", "exit_code"}
    assert (error["exit_code"], "Parquet" in error["what"], error["where"]) == (2, True, "rows.jsonl")
