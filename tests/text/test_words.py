"""Promise: a text has the ids of its words where that is used, and what can't be told is left to the library."""

from __future__ import annotations

import pickle
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers as pre

from outlive.run.errors import InputError, WorkError
from outlive.text import compared, words
from outlive.text.compared import self_test_texts
from outlive.text.fast_tokenizer import tokenize_with
from outlive.text.tokenizer import Tokenizer
from outlive.text.words import NO_WORDS, Unknown, Words
from tests.fixtures import tiny_tokenizer

_LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES = pre.ByteLevel(add_prefix_space=False, use_regex=False)
_GPT2 = pre.ByteLevel(add_prefix_space=False)
_KNOWN: dict[str, pre.PreTokenizer] = {
    "gpt2": _GPT2,
    "digits, gpt2": pre.Sequence([pre.Digits(individual_digits=True), _GPT2]),
    "digits together": pre.Sequence([pre.Digits(individual_digits=False), _GPT2]),
    "llama3": pre.Sequence([pre.Split(Regex(_LLAMA), "isolated"), _BYTES]),
    "gpt-4o": pre.Sequence([pre.Split(Regex(_CASED), "removed", invert=True), _BYTES]),
    "gaps": pre.Sequence([pre.Split(Regex(r"\p{L}+"), "isolated"), _BYTES]),
    "no words": _BYTES,
}
_UNKNOWN: dict[str, pre.PreTokenizer] = {
    "from the right": pre.Sequence([pre.Split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated"), _BYTES]),
    "punctuation": pre.Sequence([pre.Split(Regex(r"\p{P}+|[^\p{P}]+"), "isolated"), _BYTES]),
    "possessive": pre.Sequence([pre.Split(Regex(r"\p{L}++|[^\p{L}]+"), "isolated"), _BYTES]),
    "joined": pre.Sequence([pre.Split(Regex(r"\s"), "merged_with_next"), _BYTES]),
    "a string": pre.Sequence([pre.Split(" ", "isolated"), _BYTES]),
    "other": pre.Sequence([pre.Punctuation(), _BYTES]),
    "prefix": pre.ByteLevel(add_prefix_space=True),
}
_MARKS = ["<|im_start|>", "<|im_end|>"]
_CORPUS = [
    "the answer is 1234567, it's fine\n\n\n   def f(x):\n\treturn x\n",
    "Hello <|im_start|>user\nHi<|im_end|> aaaa bbbb     \n \n  ....!!!! --- == /// \r\n\r\n777777",
    "été e\u0301 “quotes” – 日本語 テスト 👍🏽",
] * 20
_ATOMS = [*_MARKS, "<|im", "|>", "<", "the", "The", "THE", "it's", "'S", "'", "1", "12", "1234567", ".", "...", "!",
          "/", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\x0b", "\x1c", "\x00", "\x85", "\xa0", "é", "É", "e", "\u0301",
          "ß", "µ", "²", "½", "ſ", "’", "—", "“", "…", "€", "日本", "。", "👍🏽", "\u2028", "a" * 40]  # fmt: skip
_TEXTS = st.lists(st.sampled_from(_ATOMS) | st.characters(max_codepoint=0x2FF), max_size=14).map("".join)


@cache
def _tokenizer(kind: str) -> Tokenizer:
    backend = Backend(models.BPE())
    backend.pre_tokenizer, backend.decoder = {**_KNOWN, **_UNKNOWN}[kind], decoders.ByteLevel()
    if kind == "gpt-4o":
        backend.normalizer = normalizers.NFC()
    alphabet = pre.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=_MARKS, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(_CORPUS, trainer)
    return Tokenizer(backend, {})


@pytest.mark.parametrize("kind", _KNOWN)
def test_the_ids_of_its_words_are_those_of_the_text(kind: str) -> None:
    tokenizer = _tokenizer(kind)
    own = Words(tokenizer.backend)

    @settings(max_examples=300, deadline=None)
    @given(st.lists(_TEXTS, max_size=4))
    def equal(texts: list[str]) -> None:
        assert [ids.tolist() for ids in own.encode_all(texts)] == tokenizer.encode_batch(texts)

    equal()
    assert own.first_difference(self_test_texts(tokenizer)) is None


@pytest.mark.parametrize("kind", _UNKNOWN)
def test_a_pattern_that_may_mean_something_else_is_not_taken(kind: str) -> None:
    with pytest.raises(Unknown):
        Words(_tokenizer(kind).backend)


def test_of_every_plain_character_all_classes_are_known() -> None:
    """The library's classes are those that Python is told, and no plain character is changed by its neighbour."""
    plain = [chr(code) for code in range(0x3000) if words._PLAIN.fullmatch(chr(code))]
    assert len(plain) > 220
    for name, own in words._CLASSES.items():
        split = pre.Split(Regex(rf"\p{{{name}}}"), "removed", invert=True).pre_tokenize_str
        ours = re.compile(f"[{own}]").match if own else None
        for character in plain:
            assert bool(split(character)) == bool(ours and ours(character)), (name, character)
    blank = pre.Split(Regex(r"\s"), "removed", invert=True).pre_tokenize_str
    assert all(bool(blank(character)) == bool(re.match(r"\s", character, re.ASCII)) for character in plain)
    pairs = "".join(one + other for one in plain for other in plain)
    assert normalizers.NFC().normalize_str(pairs) == pairs


def test_plain_text_is_not_given_to_the_library_again(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Words(_tokenizer("llama3").backend)
    expected = own.encode("the answer, <|im_start|>user\n“quoted” 12")
    monkeypatch.setattr(own, "_learn", pytest.fail)
    monkeypatch.setattr(own, "_whole", pytest.fail)
    assert own.encode("the answer, <|im_start|>user\n“quoted” 12") == expected
    monkeypatch.undo()
    monkeypatch.setattr(own, "_split", pytest.fail)
    own.encode("日本語")


def test_words_that_are_several_alone_are_left_to_the_library() -> None:
    backend = Backend.from_str(_tokenizer("gpt2").backend.to_str())
    backend.pre_tokenizer = pre.Sequence([pre.Split(Regex(r"\p{L}+(?=!)|\p{L}|[^\p{L}]+"), "isolated"), _BYTES])
    own, texts = Words(backend), ["the answer!", "the", "user! the!"]
    assert [ids.tolist() for ids in own.encode_all(texts)] == [backend.encode(text).ids for text in texts]
    assert own._bound == {"the", "answer", "user"}


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_KEPT", 400)
    backend = _tokenizer("gpt2").backend
    own = Words(backend)
    for number in range(100):
        assert own.encode(f"the answer {number}") == backend.encode(f"the answer {number}").ids
        assert own._kept < 800


def test_a_difference_on_the_way_stops_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "COMPARED", 10)
    own = Words(_tokenizer("gpt2").backend)
    texts = [f"text number {number}" for number in range(30)]
    own.encode_all(texts)
    own._ids[" number"] = own._ids["text"]
    with pytest.raises(WorkError, match=r"word by word gives other ids .* at token") as caught:
        own.encode_all(texts)
    assert NO_WORDS in str(caught.value.fix)


def test_it_is_used_without_being_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    before, expected = tokenizer.hash, tokenizer.encode("Hello there")
    monkeypatch.setenv(NO_WORDS, "1")
    tokenize_with(tokenizer, "tokenizers", pytest.fail)
    assert tokenizer.encoder is None
    monkeypatch.delenv(NO_WORDS)
    tokenize_with(tokenizer, "tokenizers", pytest.fail)
    again: Tokenizer = pickle.loads(pickle.dumps(tokenizer))
    assert isinstance(again.encoder, Words)
    assert again.hash == before
    assert again.encode("Hello there") == expected
    with pytest.raises(InputError, match="surrogate"):
        again.encode_all(["good", "half \ud83d"])
