"""Promise: fastokens is used where it gives the ids of tokenizers, and nowhere else; what lies is found out."""

from __future__ import annotations

import json
import pickle
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from outlive.run.errors import InputError, WorkError
from outlive.text import compared
from outlive.text.compared import self_test_texts
from outlive.text.fast_tokenizer import Fast, tokenize_with
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer


class Imitation:
    """fastokens as far as it is used: `tokenizers` itself, which lies about the texts in `lies`."""

    lies: tuple[str, ...] = ()

    def __init__(self, json: str) -> None:
        self.backend = Backend.from_str(json)

    @classmethod
    def from_json_str(cls, json: str) -> Imitation:
        return cls(json)

    def encode(self, text: str, add_special_tokens: bool, split: bool) -> Any:
        text.encode()
        ids = self.backend.encode(text, add_special_tokens=False).ids
        return types.SimpleNamespace(ids=ids[::-1] if text in self.lies else ids)

    def encode_batch_flat(self, texts: Sequence[str], add_special_tokens: bool, split: bool) -> tuple[bytes, bytes]:
        ids = [self.encode(text, False, split).ids for text in texts]
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.uint64)
        return np.array([index for own in ids for index in own], np.uint32).tobytes(), offsets.tobytes()


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    fake: Any = types.ModuleType("fastokens")
    fake.Tokenizer = Imitation
    monkeypatch.setitem(sys.modules, "fastokens", fake)
    monkeypatch.setattr(Imitation, "lies", ())
    return Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))


def test_what_passes_its_test_is_used_and_gives_the_same(tokenizer: Tokenizer) -> None:
    texts = self_test_texts(tokenizer)
    expected = [tokenizer.encode(text) for text in texts]
    tokenize_with(tokenizer, "auto", pytest.fail)
    assert isinstance(tokenizer.encoder, Fast)
    assert [ids.tolist() for ids in tokenizer.encode_all(texts)] == expected
    assert [tokenizer.encode(text) for text in texts[:50]] == expected[:50]
    assert tokenizer.encode_all([]) == []


@pytest.mark.parametrize("how", ["auto", "fastokens"])
def test_what_differs_on_one_text_is_not_used(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    lie = self_test_texts(tokenizer)[40]
    monkeypatch.setattr(Imitation, "lies", (lie,))
    said: list[str] = []
    if how == "fastokens":
        with pytest.raises(InputError, match="other ids than tokenizers") as caught:
            tokenize_with(tokenizer, how, said.append)
        assert caught.value.fix == "set data.tokenize_with=tokenizers"
    else:
        tokenize_with(tokenizer, how, said.append)
        assert repr(lie[:60]) in said[0]
    assert not isinstance(tokenizer.encoder, Fast)


def test_a_difference_on_the_way_stops_the_work(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any place among the texts, however they come: one in so many is compared."""
    monkeypatch.setattr(compared, "COMPARED", 10)
    texts = [f"text number {number}" for number in range(100)]
    for size in (1, 7, 100):
        for wrong in (0, 55):
            monkeypatch.setattr(Imitation, "lies", ())
            tokenizer.encoder = None
            tokenize_with(tokenizer, "fastokens", pytest.fail)
            monkeypatch.setattr(Imitation, "lies", tuple(texts[wrong : wrong + 10]))
            with pytest.raises(WorkError, match=r"text number .* at token \d+ \["):
                _encode(tokenizer, texts, size)


def _encode(tokenizer: Tokenizer, texts: list[str], size: int) -> None:
    for begin in range(0, len(texts), size):
        tokenizer.encode_all(texts[begin : begin + size])


@pytest.mark.parametrize("bad_rows", ["refuse", "drop"])
def test_a_difference_in_a_data_set_is_no_bad_row(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad_rows: Any
) -> None:
    """It stops the preparation, whatever is done with bad rows, and no store is left."""
    from outlive.data.prepare import prepare
    from outlive.run.config import Data, Source

    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"text number {number}"}) + "\n" for number in range(40)))
    tokenize_with(tokenizer, "fastokens", pytest.fail)
    monkeypatch.setattr(Imitation, "lies", ("text number 0",))
    section = Data(train=[Source(path=str(rows))], validation=None, bad_rows=bad_rows, tokenize_with="fastokens")
    with pytest.raises(WorkError, match="text number 0"):
        prepare(section, tokenizer, None)
    assert not [entry for entry in (tmp_path / "home" / "stores").iterdir() if not entry.name.endswith(".lock")]


def test_what_is_missing_or_does_not_take_the_tokenizer(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(json: str) -> None:
        raise ValueError("unknown pre-tokenizer\nat line 3")

    said: list[str] = []
    monkeypatch.setattr(Imitation, "from_json_str", refuse)
    tokenize_with(tokenizer, "auto", said.append)
    assert said == ["fastokens does not take this tokenizer: unknown pre-tokenizer; tokenizers is used"]
    monkeypatch.setitem(sys.modules, "fastokens", None)
    tokenize_with(tokenizer, "auto", pytest.fail)
    with pytest.raises(InputError, match="not installed") as caught:
        tokenize_with(tokenizer, "fastokens", pytest.fail)
    assert "outlive[fast]" in str(caught.value.fix)
    tokenize_with(tokenizer, "tokenizers", pytest.fail)


def test_text_that_no_utf8_holds_is_named(tokenizer: Tokenizer) -> None:
    tokenize_with(tokenizer, "auto", pytest.fail)
    with pytest.raises(InputError, match="surrogate"):
        tokenizer.encode_all(["good", "half \ud83d"])


def test_another_process_uses_it_too_and_the_hash_does_not_know(tokenizer: Tokenizer) -> None:
    before = tokenizer.hash
    tokenize_with(tokenizer, "auto", pytest.fail)
    again: Tokenizer = pickle.loads(pickle.dumps(tokenizer))
    assert isinstance(again.encoder, Fast)
    assert again.hash == before
    assert again.encode("Hello there") == tokenizer.encode("Hello there")


def test_the_real_one_passes_on_a_byte_level_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("fastokens", reason="fastokens is not installed")
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    texts = self_test_texts(tokenizer)
    expected = [tokenizer.encode(text) for text in texts]
    tokenize_with(tokenizer, "fastokens", pytest.fail)
    assert [ids.tolist() for ids in tokenizer.encode_all(texts)] == expected
