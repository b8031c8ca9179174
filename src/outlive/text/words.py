"""`tokenizers` word by word: each different word of plain text is tokenised once, and its ids are kept.

Byte-level byte-pair encoding looks at one word of its pre-tokenizer at a time, so a text has the ids of its words. The
library spends most of its time on finding them. Here Python's own regular expressions do that, for texts of characters
whose classes no version of Unicode changes: ASCII, Latin letters, common signs. All other texts go to the library, and
so does every tokenizer whose pattern is not made of what means the same to both.

As with fastokens, `tokenizers` is the truth: see `compared`.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from outlive.text.compared import Compared, self_test_texts
from outlive.text.joints import added_tokens, state_of
from outlive.text.tokenizer import Tokenizer

NO_WORDS = "OUTLIVE_NO_WORDS"  # in the environment: the library tokenises whole texts
MAX_KEPT = 1 << 23  # characters of words, an overhead of each included: some 30 MiB
_OVERHEAD = 32
_SHORT = 64  # characters
# Letters, digits, white space and signs; none takes part in a composition or is another when it is normalised.
_PLAIN = re.compile("[\0-\x7f¡-©«-¬®-±´¶-¸»¿-ÿ‐-‧€]*")
_CLASSES = {
    "L": "A-Za-zÀ-ÖØ-öø-ÿ",
    "Lu": "A-ZÀ-ÖØ-Þ",
    "Ll": "a-zß-öø-ÿ",
    "N": "0-9",
    "Nd": "0-9",
    **dict.fromkeys(("Lt", "Lm", "Lo", "M"), ""),  # no plain character is one
}
# What means the same to the library's engine (Oniguruma) and to Python, for plain characters, with re.ASCII.
_CLASS = re.compile(r"\\p\{(\w+)\}")
_ITEM = r"\\[rntsS/]|\\p\{\w+\}|[^\\\[\]&^]"
_SAME = re.compile(
    rf"(?:\(\?(?:i?:|[!=])|\((?!\?)|\)|\||(?:\[\^?(?:{_ITEM})+\]|\\[rntsS/]|\\p\{{\w+\}}|[^\\()\[\]|*+?{{}}.^$])"
    r"(?:[*+?]|\{\d+(?:,\d*)?\})?(?![*+?{])|(?<=\))[?](?![*+?{]))*"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class Unknown(ValueError):
    """A tokenizer whose words can't be told here."""


def word_by_word(tokenizer: Tokenizer) -> Words | None:
    """The words of a tokenizer, tried on texts on which tokenizers differ; None where they are not to be used."""
    if os.environ.get(NO_WORDS):
        return None
    try:
        words = Words(tokenizer.backend)
    except Unknown:
        return None
    return words if words.first_difference(self_test_texts(tokenizer)) is None else None


class Words:
    """The ids of texts, from those of their words. Raises Unknown for a tokenizer that it does not know."""

    def __init__(self, truth: Backend) -> None:
        added = added_tokens(truth)
        if added is None or truth.encode_special_tokens or getattr(truth.model, "dropout", None):
            raise Unknown("how this tokenizer sees a word depends on more than the word")
        self._truth, self._added = truth, added
        self._added_texts = {token.content for token in truth.get_added_tokens_decoder().values()}
        self._added_firsts = {text[0] for text in self._added_texts if text}
        self._steps = [re.compile(pattern, re.ASCII).findall for pattern in _patterns(truth)]
        self._compared = Compared(truth, "tokenizers word by word", f"set {NO_WORDS}=1 in the environment")
        self._split_again = lru_cache(1024)(self._split)  # for what stands between added tokens in most texts
        self._ids: dict[str, bytes] = {}  # int32, by word
        self._kept = 0
        self._bound: set[str] = set()  # words that are several where they stand alone

    def __reduce__(self) -> tuple[type[Words], tuple[Backend]]:
        return Words, (self._truth,)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        (found,) = self._encoded([text])
        ids: list[int] = found.tolist()
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """The ids of each text. Raises WorkError where a text that is compared shows a difference."""
        found = self._encoded(texts)
        self._compared.check(texts, found)
        return found

    def first_difference(self, texts: Sequence[str]) -> str | None:
        """The first text that gets other ids than from `tokenizers`; None where all are equal."""
        return self._compared.first_difference(self.encode, texts)

    def _encoded(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        if self._kept > MAX_KEPT:
            self._ids.clear()
            self._bound.clear()
            self._kept = 0
        cut = [self._words(text) for text in texts]
        if unknown := {word for words in cut if words for word in words}.difference(self._ids):
            self._learn(unknown)
        ids_of = self._ids.__getitem__
        return [
            self._whole(text)
            if words is None or not self._bound.isdisjoint(words)
            else np.frombuffer(b"".join(map(ids_of, words)), np.int32)
            for text, words in zip(texts, cut, strict=True)
        ]

    def _words(self, text: str) -> list[str] | None:
        """The words of a text and its added tokens, in order; None where they can't be told."""
        if not text.isascii() and not _PLAIN.fullmatch(text):
            return None
        if not any(first in text for first in self._added_firsts):
            return self._split(text)
        words: list[str] = []
        place = 0
        for token in self._added.finditer(text):
            if (before := self._between(text[place : token.start()])) is None:
                return None
            words += before
            words.append(token[0])
            place = token.end()
        after = self._between(text[place:])
        return None if after is None else words + after

    def _between(self, text: str) -> list[str] | None:
        return self._split_again(text) if len(text) <= _SHORT else self._split(text)

    def _split(self, text: str) -> list[str] | None:
        parts = [text]
        for step in self._steps:
            parts = [word for part in parts for word in step(part)]
        return parts if "".join(parts) == text else None

    def _learn(self, unknown: set[str]) -> None:
        """Take in words, all of them at once."""
        words = sorted(unknown)
        for word, encoding in zip(words, self._truth.encode_batch_fast(words, add_special_tokens=False), strict=True):
            self._ids[word] = array("i", encoding.ids).tobytes()
            self._kept += len(word) + _OVERHEAD
            if word not in self._added_texts and self._split(word) != [word]:
                self._bound.add(word)

    def _whole(self, text: str) -> npt.NDArray[np.int32]:
        try:
            (encoding,) = self._truth.encode_batch_fast([text], add_special_tokens=False)
        except TypeError:
            text.encode()  # raises UnicodeEncodeError
            raise
        return np.array(encoding.ids, np.int32)


def _patterns(backend: Backend) -> list[str]:
    """What cuts a text into words, each pattern what the one before has left, in Python's spelling. Raises Unknown."""
    pre_tokenizer = state_of(backend.pre_tokenizer) or {}
    parts = pre_tokenizer["pretokenizers"] if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    found = []
    for part in parts:
        if part["type"] == "Digits":
            found.append("[0-9]|[^0-9]+" if part["individual_digits"] else "[0-9]+|[^0-9]+")
        elif part["type"] == "ByteLevel":
            found += [_in_python(_GPT2)] if part["use_regex"] else []
        elif part["type"] == "Split" and (part["behavior"], part["invert"]) in (("Isolated", False), ("Removed", True)):
            found.append(_in_python(part["pattern"].get("Regex", "")))
        else:
            raise Unknown(f"the pre-tokenizer has a part that is not known here: {part['type']}")
    return found


def _in_python(pattern: str) -> str:
    """A pattern of the library as Python spells it, for plain characters. Raises Unknown."""
    if not pattern or not _SAME.fullmatch(pattern):
        raise Unknown(f"the pattern may mean something else to Python: {pattern}")
    out, place = [], 0
    for match in re.finditer(r"\[(?:[^\]\\]|\\.)+\]|\\p\{(\w+)\}|\((?!\?)", pattern):
        own = match[0]
        if own == "(":
            own = "(?:"  # a group that findall must not give
        elif own.startswith("["):
            own = _CLASS.sub(lambda name: _class(name[1]), own)
        else:
            own = f"[{_class(match[1]) or _no_class(match[1])}]"
        out += [pattern[place : match.start()], own]
        place = match.end()
    return "".join([*out, pattern[place:]])


def _class(name: str) -> str:
    if name not in _CLASSES:
        raise Unknown(f"the pattern has a class of characters that is not known here: {name}")
    return _CLASSES[name]


def _no_class(name: str) -> str:
    raise Unknown(f"no plain character is of the class {name}, and the pattern asks for one")
