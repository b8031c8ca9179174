"""Rows that are prepared in many small chunks, for tests of how stores are made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outlive.data import chunks as chunks_module
from outlive.data import preparer as preparer_module
from tests.fixtures import tiny_tokenizer

NUM_ROWS = 240
WORDS = [
    "the",
    "rain",
    "in",
    "spain",
    "falls",
    "mainly",
    "on",
    "a",
    "plain",
    "where",
    "nobody",
    "counts",
    "how",
    "often",
    "it",
    "does",
    "so",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tokenizer's folder. Chunks are of ten rows or so, and each is worth a process of its own."""
    monkeypatch.setattr(chunks_module, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(preparer_module, "SAVE_SECONDS", -1.0)
    return tiny_tokenizer(tmp_path / "tokenizer")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Chats, some of them bad, some that come again, some with real weights late in the file, and blank lines."""
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for number in range(NUM_ROWS):
            topic = number if number < 180 else number - 60  # the last rows were there before
            said = " ".join(WORDS[(topic * place + place * place) % len(WORDS)] for place in range(40))
            answer: dict[str, Any] = {"role": "assistant", "content": said + "!" * (number % 8 == 0)}
            if number > 200 and number % 9 == 0:
                answer["weight"] = 0.5
            row: Any = {"messages": [{"role": "user", "content": f"Say {topic}"}, answer], "source": number}
            file.write(("no JSON" if number % 41 == 40 else json.dumps(row)) + "\n" + "\n" * (number % 50 == 0))
    return path
