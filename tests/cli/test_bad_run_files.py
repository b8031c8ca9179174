"""Promise: whatever a run file or an override says wrongly is shown with its line, its column and what to write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outlive.cli.main import VERBS, app
from tests.cli.bad import refused

BASE = b"model: nosuch/folder/at-all\ndata:\n  train: [{path: rows.jsonl}]\n"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    return "\n".join(lines).encode()


# What follows BASE, or stands alone where it begins with "!": the text, and what the message says.
TEXTS: dict[str, tuple[bytes, list[str]]] = {
    "a key at the top": (b"optimiser: {lr: 1}\n", ["has no key `optimiser`", "run.yaml:4:1", "mean optimizer?"]),
    "a key of a section": (
        b"optimizer:\n  learning_rat: 1e-4\n",
        ["optimizer has no key `learning_rat`", "run.yaml:5:3", "  learning_rat: 1e-4\n   |   ^^^^^^^^^^^^\n",
         "expected: one of name, lr", "did you mean optimizer.learning_rate?", "taken as optimizer.lr"],
    ),
    "a key of a list's entry": (
        b"!model: m\ndata:\n  train:\n    - path: a\n    - pth: b\n",
        ["data.train.1 has no key `pth`", "run.yaml:5:7", "did you mean data.train.1.path?"],
    ),
    "a key of a fresh model": (
        b"!model:\n  init:\n    confg: c.json\n    tokenizer: t\ndata: {train: [{path: a}]}\n",
        ["model.init has no key `confg`", "run.yaml:3:5", "did you mean model.init.config?"],
    ),
    "a key in the wrong place": (b"turn_end: content\n", ["its place is data.turn_end", "run.yaml:4:1"]),
    "a key that nothing is like": (b"zzzzzz: 1\n", ["has no key `zzzzzz`", "expected: one of schema_version"]),
    "text for a number": (b"optimizer:\n  lr: fast\n", ["expected a number", "run.yaml:5:7", "^^^^"]),
    "a quoted number": (b'optimizer:\n  lr: "1e-4"\n', ["take the quotes off", "run.yaml:5:7"]),
    "a number for text": (b"name: 7\n", ['put it in quotes: "7"', "run.yaml:4:7"]),
    "a list for a number": (b"seed: [1]\n", ["seed: [1], expected a whole number", "run.yaml:4:7"]),
    "a number for a list": (b"optimizer: {betas: 0.9}\n", ["write it as a list: [0.9]", "run.yaml:4:20"]),
    "a number for a section": (b"stop: 5\n", ["keys and values", "run.yaml:4:7"]),
    "a number for true or false": (b"trust_remote_code: 1\n", ["true or false", "run.yaml:4:20"]),
    "an unknown choice": (b"precision: bf61\n", ["did you mean bf16?", "run.yaml:4:12"]),
    "a number out of range": (b"optimizer: {lr: -1}\n", ["expected", "run.yaml:4:17"]),
    "infinity": (b"optimizer: {lr: .inf}\n", ["a finite number", "run.yaml:4:17"]),
    "no value": (b"seed:\n", ["seed: null", "run.yaml:4", "leave the key out"]),
    "a missing key": (b"!model: m\ndata:\n  sequence_length: 64\n", ["data.train is missing", "set data.train"]),
    "a URL with a token": (b"name: https://me:sesame@host/x\n", ["run.yaml:4", "credentials"]),
    "two names of one key": (
        b"learning_rate: 1e-4\noptimizer: {lr: 1e-5}\n", ["both set optimizer.lr", "run.yaml:4 and run.yaml:5"],
    ),
    "a key twice": (b"seed: 1\nname: a\nseed: 2\n", ["seed stands twice", "run.yaml:4 and run.yaml:6", "keep one"]),
    "a tab": (b"optimizer:\n\tlr: 1\n", ["a tab is used to indent", "run.yaml:5:1", "→   lr: 1"]),
    "a quote that is open": (b'name: "abc\nseed: 1\n', ['no closing "', "run.yaml:4:7"]),
    "a bracket that is open": (b"stop: {steps: 3\nseed: 1\n", ["no closing }", "run.yaml:4:7"]),
    "a colon too many": (b"name: a: b\n", ["not YAML", "run.yaml:4:8"]),
    "no colon": (b"name\n", ["not YAML", "run.yaml:"]),
    "no space after the colon": (b"seed:1\nname: a\n", ["not YAML", "with a space"]),
    "an alias of nobody": (b"name: *x\n", ["not YAML", "run.yaml:4:7"]),
    "Python objects": (b"name: !!python/object/apply:os.getcwd []\n", ["knows no", "run.yaml:4"]),
    "a list at the top": (b"!- model: a\n- data: b\n", ["holds a list", "run.yaml:1:1", "outlive init"]),
    "a text at the top": (b"!# comment\nhello\n", ["only hello", "run.yaml:2:1"]),
    "JSON Lines": (b'!{"messages": []}\n{"messages": []}\n', ["run.yaml:2"]),
    "two documents": (b"---\nseed: 1\n", ["one YAML document"]),
    "an alias bomb": (b"!" + _bomb(), ["too large or too deep", "run.yaml:"]),
    "an alias of itself": (b"!a: &x [*x]\n", ["too large or too deep", "run.yaml:1"]),
    "brackets without end": (b"!a: " + b"[" * 5000, ["run.yaml"]),
    "a control character": (b"name: a\x07b\n", ["a control character", "run.yaml:4:8", "a␇b"]),
    "an escape for the terminal": (b"name: \x1b[31mred\n", ["a control character", "␛[31mred"]),
    "an override of direction": ("naem: \u202ea\n".encode(), ["⟨U+202E⟩a", "did you mean name?"]),
    "Latin-1": (b"name: \xe9\n", ["not UTF-8", "run.yaml:4", "0xe9"]),
    "UTF-16": (b"!" + "seed: 1".encode("utf-16"), ["not UTF-8", "UTF-16"]),
    "random bytes": (b"!" + bytes(range(128, 256)), ["not UTF-8", "run.yaml:1"]),
    "a NUL": (b"name: a\x00\n", ["a control character", "run.yaml:4:8"]),
    "ten megabytes": (b"!" + b"# a comment\n" * 900_000, ["10,800,000 bytes", "at most 1,048,576"]),
    "a very long line": (b"name: " + b"x" * 500_000 + b"\n", ["run.yaml:4:7", "…"]),
    "a huge int": (b"seed: " + b"9" * 5000 + b"\n", ["run.yaml:4:7"]),
    "a schema of tomorrow": (b"schema_version: 99\n", ["schema_version 99", "run.yaml:4:1", "update outlive"]),
    "an unknown engine": (b"engine: torchtune\n", ["run.yaml:4:9"]),
    "a name that is no folder": (b"name: a/b\n", ["can't be a folder's name", "run.yaml:4:7"]),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_what_is_wrong_in_a_run_file(here: Path, case: str) -> None:
    text, said = TEXTS[case]
    (here / "run.yaml").write_bytes(text[1:] if text.startswith(b"!") else BASE + text)
    message = refused(["prepare", "run.yaml"], *said)
    assert message.count("error: ") == 1
    assert "sesame" not in message


def test_all_mistakes_come_at_once_each_with_its_line(here: Path) -> None:
    (here / "run.yaml").write_bytes(BASE + b"sed: 1\noptimizer: {lrr: 2}\nstop: {steps: -1}\n")
    message = refused(["prepare", "run.yaml"], "run.yaml:4:1", "run.yaml:5:13", "run.yaml:6:15", "3 mistakes")
    assert message.count("error: ") == 4
    (here / "run.yaml").write_bytes(BASE + b"".join(b"wrong%d: 1\n" % number for number in range(50)))
    message = refused(["prepare", "run.yaml"], "50 mistakes", "and 42 more are not")
    assert message.count("-->") == 8


# What is typed after `outlive prepare --model m --data d`, and what the message says.
OVERRIDES: dict[str, tuple[str, list[str]]] = {
    "a wrong type": ("optimizer.lr=abc", ["command line", "optimizer.lr=abc\n   |              ^^^\n"]),
    "a wrong key": ("optimizer.lrr=1", ["did you mean optimizer.lr?", "^^^^^^^^^^^^^"]),
    "a wrong key inside": ("optimizer={lr: 1, lrr: 2}", ["|                   ^^^\n"]),
    "no equals sign": ("seed", ["there is no such run file", "key=value"]),
    "no equals sign in a later one": ("seed=1 seed", ["not an override", "expected: key=value"]),
    "no key": ("=5", ["not an override"]),
    "two dots": ("data..path=a", ["not an override"]),
    "two equals signs": ("seed==5", ["seed: =5, expected a whole number"]),
    "spaces": ("seed = x", ["seed: x, expected a whole number"]),
    "an open bracket": ("stop=[1", ["no closing ]", "stop=[1\n   |      ^\n"]),
    "an entry that is not there": ("data.train.3.path=a", ["has no entry 3", "command line"]),
    "a key below a value": ("seed.x=1", ["seed", "command line"]),
    "no value": ("seed=", ["seed: null"]),
    "a secret": ("data.train.0.pth=https://me:sesame@host/x", ["override data.train.0.pth", "credentials"]),
    "a control character": ("name=\x1b[2J", ["␛[2J"]),
    "many lines": ("name=a\nb: c", ["not YAML"]),
    "an option": ("--sed=1", ["No such option", "prepare --help"]),
    "half a pair": ("name=\udcff", ["⟨U+DCFF⟩"]),
}


@pytest.mark.parametrize("case", OVERRIDES)
def test_what_is_wrong_on_the_command_line(case: str) -> None:
    text, said = OVERRIDES[case]
    typed = text.split(" ") if case.endswith("one") else [text]
    message = refused(["prepare", "--model", "m", "--data", "d", *typed], *said)
    assert "sesame" not in message


PATHS: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "missing": (lambda path: None, ["there is no such run file", "outlive init"]),
    "a folder": (lambda path: path.mkdir(), ["there is no such run file", "a folder"]),
    "a pipe": (os.mkfifo, ["a pipe or a device"]),
    "a dangling link": (lambda path: path.symlink_to("gone.yaml"), ["there is no such run file"]),
    "empty": (lambda path: path.write_bytes(b""), ["model is missing", "data is missing"]),
    "only white space": (lambda path: path.write_bytes(b" \n\n"), ["model is missing"]),
}


@pytest.mark.parametrize("case", PATHS)
def test_a_path_that_is_no_run_file(here: Path, case: str) -> None:
    make, said = PATHS[case]
    make(here / "run.yaml")
    refused(["prepare", "run.yaml"], "run.yaml", *said)


def test_a_run_file_that_may_not_be_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "run.yaml").write_bytes(BASE)

    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    refused(["prepare", "run.yaml"], "may not be read", "chmod u+r run.yaml")


def test_a_verb_that_is_none() -> None:
    message = refused(["trian", "run.yaml"], "trian", "outlive trian run.yaml", "nearest: train", *VERBS)
    assert "        ^^^^^" in message


def test_json_errors_name_every_mistake(here: Path) -> None:
    (here / "run.yaml").write_bytes(BASE + b"sed: 1\noptimizer: {lrr: 2}\n")
    done = CliRunner().invoke(app, ["prepare", "run.yaml", "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert error["what"] == "the run has 2 mistakes"
    found = [(item["file"], item["line"], item["column"], item["nearest"]) for item in error["mistakes"]]
    assert found == [("run.yaml", 4, 1, "seed"), ("run.yaml", 5, 13, "optimizer.lr")]


@pytest.mark.parametrize(
    "arguments", [["trian", "--json"], ["prepare", "--nosuch", "--json"], ["prepare", "x=[", "--json"]]
)
def test_json_errors_of_the_command_line(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert json.loads(done.stderr)["error"]["file"] == "command line"


@pytest.mark.parametrize(
    ("terminal", "environment", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], colours: bool
) -> None:
    import sys
    from types import SimpleNamespace

    from outlive.cli.main import _colors

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: terminal))
    assert _colors() is colours
