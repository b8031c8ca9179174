"""Promise: where a window shows that pieces have the tokens of their joined text, the whole text has them, too."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers as pre

from outlive.text.joints import Joints
from outlive.text.tokenizer import Tokenizer

_LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN = _LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")
_FROM_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)"  # digits in threes, counted from their end
_CORPUS = [
    "the answer is 1234567, it's fine\n\n\n   def f(x):\n\treturn x\n",
    "Hello <|im_start|>user\nHi<|im_end|>\n",
    "aaaa bbbb     \n \n  ....!!!! --- == /// \r\n\r\n777777",
    "été e\u0301 日本語 テスト 👍🏽",
] * 20
_MARKS = ("<|im_start|>", "<|im_end|>")


def _split(*patterns: str) -> pre.PreTokenizer:
    parts = [pre.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre.Sequence([*parts, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


# What splits the text, what is done with it before, the added tokens.
_KINDS: dict[str, tuple[pre.PreTokenizer, normalizers.Normalizer | None, tuple[str, ...]]] = {
    "gpt2": (pre.ByteLevel(add_prefix_space=False), None, _MARKS),
    "llama3": (_split(_LLAMA), None, _MARKS),
    "qwen": (_split(_QWEN), normalizers.NFC(), _MARKS),
    "digits from the right": (_split(_FROM_RIGHT, _QWEN), None, _MARKS),
    "words with their blanks": (_split(r"\n"), None, _MARKS),
    "runs of blanks are tokens": (_split(_LLAMA), None, ("  ", "    ", "\n\n", *_MARKS)),
    "tokens that overlap": (_split(_LLAMA), None, ("<|im", "start|>x", "<x>", "><", *_MARKS)),
    "metaspace": (pre.Metaspace(), None, _MARKS),
    "prefix blank": (pre.ByteLevel(add_prefix_space=True), None, _MARKS),
}
_ATOMS = [*_MARKS, "user", "\n", "\n\n", " ", "  ", "\r\n", "\t", "the", "it's", "'s", "'", "1", "12", "123", "1234567",
          ".", "...", "!", "é", "e", "\u0301", "日本", "。", "👍", "🏽", "<|im", "start|>x", "<x", "><", ">", "\xa0",
          "a" * 40, "=" * 40, "\n" * 31, "7" * 300, "x" * 300, " word" * 12]  # fmt: skip
_PIECES = st.lists(st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=6).map("".join), min_size=2, max_size=4)


@cache
def _tokenizer(kind: str) -> Tokenizer:
    splitter, normalizer, added = _KINDS[kind]
    backend = Backend(models.BPE())
    backend.pre_tokenizer, backend.decoder = splitter, decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    letters = pre.ByteLevel.alphabet()
    backend.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=letters, show_progress=False)
    )
    backend.add_tokens([AddedToken(text, special=True, normalized=False) for text in added])
    return Tokenizer(backend, {})


def _is_joint(tokenizer: Tokenizer, pieces: list[str]) -> bool:
    return tokenizer.encode("".join(pieces)) == [
        index for own in tokenizer.encode_all(pieces) for index in own.tolist()
    ]


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=150, deadline=None)
@given(pieces=_PIECES)
def test_what_a_window_shows_is_so(kind: str, pieces: list[str]) -> None:
    tokenizer = _tokenizer(kind)
    if Joints(tokenizer).agree(pieces, tokenizer.encode_all(pieces)):
        assert _is_joint(tokenizer, pieces)


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("runs of blanks are tokens", ["word  ", "  word"]),  # a longer token lies over the bound
        ("runs of blanks are tokens", ["\n" * 31, "\n<|im_end|>"]),  # which two belong together depends on the first
        ("llama3", ["1", "1", "12 "]),  # a word lies over two bounds
        ("digits from the right", ["a", "1234567", "12 "]),
    ],
)
def test_what_reaches_further_than_a_window_is_not_shown(kind: str, pieces: list[str]) -> None:
    tokenizer = _tokenizer(kind)
    assert not Joints(tokenizer).agree(pieces, tokenizer.encode_all(pieces))


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "qwen", "digits from the right"])
def test_an_ordinary_chat_needs_no_second_look(kind: str) -> None:
    tokenizer = _tokenizer(kind)
    pieces = ["<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "Fine, " + "thank you " * 60, "<|im_end|>\n"]
    assert Joints(tokenizer).agree(pieces, tokenizer.encode_all(pieces))
    assert _is_joint(tokenizer, pieces)
