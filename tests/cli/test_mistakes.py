"""Promise: what a user does wrong is no Python traceback: it is a message and an exit code, on every terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outlive.cli.main import app
from tests.fixtures import tiny_tokenizer

LONG = "x" * 5000
ROW = {"messages": [{"role": "user", "content": "世界"}, {"role": "assistant", "content": "🎉"}]}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    tiny_tokenizer(tmp_path / "model")


def outlive(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", LONG],
        ["inspect", "rows.jsonl", "--tokenizer", LONG],
        ["report", LONG],
        ["prepare", "--model", LONG, "--data", "rows.jsonl"],
        ["prepare", "--model", "model", "--data", LONG],
    ],
)
def test_a_name_that_is_too_long_for_a_file(arguments: list[str]) -> None:
    done = outlive(*arguments)
    assert (done.exit_code, "too long for a file's name" in done.stderr) == (2, True), done.stderr


def test_an_error_of_the_disk_has_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device", "some/file")

    monkeypatch.setattr("outlive.cli.open_target.open_target", refused)
    done = outlive("inspect", "rows.jsonl")
    assert done.exit_code == 1
    assert "No space left" in done.stderr
    assert "some/file" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_every_terminal_can_show_every_text(encoding: str) -> None:
    command = [sys.executable, "-m", "outlive.cli.main", "inspect", "rows.jsonl", "--tokenizer", "model"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=False)
    assert done.returncode == 0, done.stderr
    assert b"\\u4e16" in done.stdout


def test_json_to_a_closed_output_is_no_fault() -> None:
    command = f"{sys.executable} -m outlive.cli.main inspect rows.jsonl --json >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": 1}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": [1]}'),
        ("tokenizer_config.json", '{"eos_token": 5}'),
        ("tokenizer_config.json", '{"chat_template": 3}'),
        ("tokenizer_config.json", '{"chat_template": [{"a": 1}]}'),
        ("generation_config.json", '{"eos_token_id": [[1]]}'),
        ("generation_config.json", '{"eos_token_id": "x"}'),
    ],
)
def test_a_malformed_tokenizer_is_named(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / "model" / "chat_template.jinja").unlink()
    (tmp_path / "model" / file).write_text(text)
    done = outlive("inspect", "rows.jsonl", "--tokenizer", "model")
    assert (done.exit_code, "malformed" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"kind": "train", "step": 1, "loss": "x"}\n', 2),
        ('{"kind": "train", "step": 1, "loss": [1]}\n', 2),
        ('{"kind": "train", "step": true, "loss": 1}\n', 2),
        ('{"kind": "train", "step": 1, "nonfinite": {"loss": "foo"}}\n', 2),
        ("[" * 100_000 + "\n", 2),
        ('{"kind": "train", "step": 1, "loss": 1}\n', 0),
    ],
)
def test_broken_records_are_named(tmp_path: Path, text: str, code: int) -> None:
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(text)
    for data in ("", '{"plan": []}', '{"ledger": 3}', '{"train": [1]}'):
        (run / "data.json").write_text(data)
        done = outlive("report", str(run))
        assert done.exit_code == code, done.stderr
        assert code == 0 or "metrics.jsonl:1" in done.stderr
