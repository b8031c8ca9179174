"""Promise: `outlive inspect --certify` says what a template does, and shows its spans; with --json, one object."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outlive.cli.main import app
from tests.fixtures import CHATML, tiny_tokenizer

HEADERS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<e>{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["inspect", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_with_special_tokens_alone(tmp_path: Path) -> None:
    file = tmp_path / "theirs.jinja"
    file.write_text(HEADERS + PROMPT, encoding="utf-8")
    text = run("--certify", str(file), "--special", "<e>", "--special", "<|assistant|>")
    assert "theirs.jinja: append_only: " in text
    assert "⟦Argon.<e>⟧" in text
    assert "reasoning: refused: content_not_rendered: messages[1].reasoning_content" in text


def test_with_a_tokenizer_whose_end_of_turn_is_another(tmp_path: Path) -> None:
    tokenizer, file = tiny_tokenizer(tmp_path / "tokenizer"), tmp_path / "theirs.jinja"
    file.write_text(HEADERS + PROMPT, encoding="utf-8")
    text = run("--certify", str(file), "--tokenizer", str(tokenizer), "--special", "<e>")
    assert "note: a server stops at " in text
    assert "this template ends turns with <e>: name its id" in text
    file.write_text(CHATML, encoding="utf-8")
    assert "note:" not in run("--certify", str(file), "--tokenizer", str(tokenizer))


def test_as_json_there_is_one_object(tmp_path: Path) -> None:
    file = tmp_path / "theirs.jinja"
    file.write_text(HEADERS + PROMPT, encoding="utf-8")
    found = json.loads(run("--certify", str(file), "--special", "<x>", "--json"))
    assert (found["kind"], found["ends"]) == ("no_end_of_turn", [])
    assert found["shapes"]["plain"] == "no_end_of_turn"


def test_alone_a_template_is_judged_by_the_tokens_in_its_text(tmp_path: Path) -> None:
    file = tmp_path / "theirs.jinja"
    file.write_text(CHATML, encoding="utf-8")
    result = CliRunner().invoke(app, ["inspect", "--certify", str(file)])
    assert "theirs.jinja: append_only: " in result.stdout
    assert "by their form: <|im_end|> <|im_start|>;" in result.stderr
    assert "taken for special tokens, by their form: <|im_end|> <|im_start|>" in result.stderr
    assert "--tokenizer DIR or --special TOKEN" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "TARGET is missing"),
        (["rows.jsonl", "--certify", "a.jinja"], "exclude each other"),
        (["--certify", "missing.jinja"], "the template can't be read"),
        (["rows.jsonl", "--special", "<e>"], "--special"),
    ],
)
def test_wrong_uses_are_named(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"messages": []}\n')
    result = CliRunner().invoke(app, ["inspect", *arguments])
    assert result.exit_code == 2 or result.exception is not None
    assert words in result.output + str(result.exception)


def test_rows_may_be_tried_with_a_template_of_another_model(tmp_path: Path) -> None:
    tokenizer, file, rows = tiny_tokenizer(tmp_path / "tokenizer"), tmp_path / "theirs.jinja", tmp_path / "rows.jsonl"
    file.write_text(HEADERS + PROMPT, encoding="utf-8")
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    rows.write_text(json.dumps({"messages": chat}) + "\n")
    options = [str(rows), "--tokenizer", str(tokenizer), "--chat-template", str(file), "--json"]
    assert json.loads(run(*options))["refused"]["reason"] == "no_end_of_turn"
    assert json.loads(run(*options, "--special", "<e>"))["target_text"] == ["Hello!<e>"]


def test_the_tokens_of_a_template_are_those_that_it_writes(tmp_path: Path) -> None:
    """`<s>` and `</s>` stand for bos_token and eos_token: where a template writes neither, they are none of its own."""
    file, loop = tmp_path / "theirs.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    file.write_text(loop + "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")
    result = CliRunner().invoke(app, ["inspect", "--certify", str(file)])
    assert "by their form: </s>;" in result.stderr
    assert "append_only" in result.stdout
    assert "ends of turn: </s>" in result.stdout
    file.write_text(loop + "{% endfor %}")
    assert "by their form: none;" in CliRunner().invoke(app, ["inspect", "--certify", str(file)]).stderr
