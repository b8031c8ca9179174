"""Promise: the examples in docs/errors.md are what the command prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.bad import refused
from tests.fixtures import tiny_tokenizer

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
BASE = ["prepare", "--model", "model", "--data", "chats.jsonl", "data.validation=null"]
GOOD = {"messages": [{"role": "user", "content": "How are you?"}, {"role": "assistant", "content": "fine"}]}
TYPO = (
    '{"messages": [{"role": "user", "content": "What is the capital of France?"}, '
    '{"role": "asistant", "content": "Paris"}]}'
)
BROKEN = '{"messages": [{"role": "user" "content": "x"}]}'


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    tiny_tokenizer(tmp_path / "model")
    return tmp_path


def _is_on_the_page(message: str) -> None:
    assert f"```\n{message}```\n" in PAGE, message


def test_a_key(here: Path) -> None:
    comments = "".join(f"# {number}\n" for number in range(9))
    text = f"{comments}model: m\noptimizer:\n  learning_rat: 1e-4\ndata: {{train: [{{path: a}}]}}\n"
    (here / "run.yaml").write_text(text)
    _is_on_the_page(refused(["prepare", "run.yaml"]))


def test_the_command_line() -> None:
    _is_on_the_page(refused([*BASE, "optimizer.lr=abc"]))


def test_two_places(here: Path) -> None:
    (here / "run.yaml").write_text("learning_rate: 1e-4\nmodel: m\noptimizer: {lr: 3e-4}\ndata: {train: [{path: a}]}\n")
    _is_on_the_page(refused(["prepare", "run.yaml"]))


def test_rows(here: Path) -> None:
    rows = [json.dumps(GOOD)] * 16 + [TYPO, BROKEN] + [json.dumps(GOOD)] * 3
    (here / "chats.jsonl").write_text("\n".join(rows) + "\n")
    _is_on_the_page(refused(BASE))


def test_a_broken_array(here: Path) -> None:
    (here / "chats.json").write_text(json.dumps([GOOD, GOOD])[:-30])
    _is_on_the_page(refused([*BASE[:4], "chats.json"]))
