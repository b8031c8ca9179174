"""Whether a text that is tokenised piece by piece has the tokens that the tokenizer gives to all of it at once.

A server tokenises a whole prompt. For byte-level byte-pair encoding after a splitting pre-tokenizer only what is close
to a bound can matter: text between two added tokens is tokenised by itself, and so is text on either side of a place
where the pre-tokenizer cuts whatever stands around it. From the added token before a bound to such a place after it,
both ways are compared. Where a text or a tokenizer offers no such window, nothing is shown: the whole text has to.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from outlive.text.tokenizer import Tokenizer

Ids = npt.NDArray[np.int32]
_NEAR, _TAIL = 24, 256  # characters: looked back for an added token, at first and at most
_HEAD, _MOST = 1, 256  # characters: looked ahead at least, and at most
_REMEMBERED = 1 << 16  # windows whose ids are kept: answers begin alike
# After a letter, what a pre-tokenizer may begin a new word with whatever stands around it: tried, see `_cuts`.
_STARTS = (" ", "\n", "，。、！？：；")
_PROBES = 400  # texts for each of them
_ATOMS = (
    *("a", "the", "Zebra", "ß", "é", "e\u0301", "д", "漢字", "日本語", "한", "ال", "1", "12", "1234567", "½"),
    *("'", "'s", "’", ".", "...", "!", "/", "-", "_", "(", '"', "。", "，", "🙂", "\u200d", "<", "|>"),
    *(" ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", " \n ", "\xa0"),
)


class Joints:
    """The bounds between pieces of a text, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._windows: dict[str, list[int]] = {}
        self._ids_of = lru_cache(maxsize=4096)(tokenizer.encode)
        self._tail_of = lru_cache(maxsize=4096)(lambda near: _tail(near, self._added) if self._added else None)

    def agree(self, pieces: Sequence[str], ids: Sequence[Ids]) -> bool:
        """Whether it is shown that `ids`, those of each of the pieces, are the ids of the joined text, too."""
        return self.agree_all([pieces], [ids])[0]

    def agree_all(self, texts: Sequence[Sequence[str]], ids: Sequence[Sequence[Ids]]) -> list[bool]:
        """`agree`, for each of many texts, given by its pieces: what has to be tokenised for it is, all at once."""
        added = self._added
        if added is None:
            return [False] * len(texts)
        found = [True] * len(texts)
        windows: list[tuple[int, str, str, Ids]] = []
        for number, (pieces, own) in enumerate(zip(texts, ids, strict=True)):
            for place in range(1, len(pieces)):
                window = self._around(pieces[place - 1], pieces[place], added, place == 1)
                if window is None:
                    found[number] = False
                    break
                if window[0]:
                    windows.append((number, *window, own[place]))
        ids_of = self._ids_of_windows([tail + head for _, tail, head, _ in windows])
        for number, tail, head, after in windows:
            known, joint = self._ids_of(tail), ids_of[tail + head]
            is_alike = joint[: len(known)] == known and joint[len(known) :] == after[: len(joint) - len(known)].tolist()
            found[number] = found[number] and is_alike
        return found

    def _ids_of_windows(self, joined: Sequence[str]) -> dict[str, list[int]]:
        if len(self._windows) > _REMEMBERED:
            self._windows = {}
        if new := [text for text in dict.fromkeys(joined) if text not in self._windows]:
            self._windows.update(zip(new, [ids.tolist() for ids in self._tokenizer.encode_all(new)], strict=True))
        return self._windows

    @cached_property
    def _added(self) -> re.Pattern[str] | None:
        """Where text is cut whatever stands around it; None where a tokenizer looks further than a window."""
        return added_tokens(self._tokenizer.backend)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._tokenizer.added_tokens), default=0)

    @cached_property
    def _cut(self) -> re.Pattern[str] | None:
        """Where the pre-tokenizer cuts whatever stands around it: behind a letter."""
        starts = "".join(start for start in _STARTS if _cuts(self._tokenizer.backend, start))
        return re.compile(rf"(?<=[^\W\d_])[{re.escape(starts)}]") if starts else None

    def _around(self, before: str, after: str, added: re.Pattern[str], is_first: bool) -> tuple[str, str] | None:
        """What hangs together at a bound: the end of the text before it, empty where nothing can, and the beginning of
        the text after it. None where that is not known."""
        if added.match(after):
            return "", ""  # an added token overlaps with no other: none lies across the bound
        tail = self._tail_of(before[-_NEAR:])
        if tail is None:
            tail = _tail(before[-_TAIL:], added)
        if tail is None:
            if not is_first or len(before) > _TAIL:  # what stands further left may matter
                return None
            tail = before
        if not tail:
            return "", ""
        if any(first in tail for first in self._firsts) and self._straddles(tail, after, added):
            return None
        end = self._window(after, added)
        return None if end is None else (tail, after[:end])

    def _straddles(self, tail: str, after: str, added: re.Pattern[str]) -> bool:
        """Whether an added token would lie across the bound."""
        around = tail + after[: self._longest]
        return any(match.start() < len(tail) < match.end() for match in added.finditer(around))

    def _window(self, text: str, added: re.Pattern[str]) -> int | None:
        """How much of the text after a bound can hang together with what is before it; None where that is not known."""
        match = added.search(text, 0, _MOST)
        most = match.start() if match else min(len(text), _MOST)
        cut = self._cut.search(text, _HEAD, most) if self._cut is not None else None
        if cut is not None:
            return cut.start()
        return most if match or len(text) <= _MOST else None

    @cached_property
    def _firsts(self) -> set[str]:
        return {text[0] for text in self._tokenizer.added_tokens if text}


def _tail(text: str, added: re.Pattern[str]) -> str | None:
    """What follows the last added token; None where there is none."""
    end = None
    for match in added.finditer(text):
        end = match.end()
    return None if end is None else text[end:]


def added_tokens(backend: Backend) -> re.Pattern[str] | None:
    """A pattern of the added tokens, where only characters close to a bound decide how a text is tokenised there.

    That is: byte-level byte-pair encoding after a splitting pre-tokenizer, no normalizer but NFC, and added tokens that
    take no white space with them, are found before the text is normalised, and never overlap, so that each is one
    wherever it stands.
    """
    tokens: dict[int, AddedToken] = backend.get_added_tokens_decoder()
    plain = all(not (token.lstrip or token.rstrip or token.single_word) for token in tokens.values())
    normalizer = state_of(backend.normalizer)
    normal = normalizer is None or (
        normalizer["type"] == "NFC" and not any(token.normalized for token in tokens.values())
    )
    if not tokens or not plain or not normal or type(backend.model).__name__ != "BPE" or not _splits(backend):
        return None
    texts = {token.content for token in tokens.values() if token.content}
    return None if _overlap(texts) else re.compile("|".join(map(re.escape, sorted(texts))))


def _overlap(texts: Iterable[str]) -> bool:
    """Whether one of the texts holds another, or ends with what one of them begins with."""
    known = set(texts)
    begins = {text[:end] for text in known for end in range(1, len(text))}
    lengths = sorted(set(map(len, known)))
    for text in known:
        for start in range(len(text)):
            if start and text[start:] in begins:
                return True
            if any(text[start : start + size] in known for size in lengths if size < len(text)):
                return True
    return False


def _splits(backend: Backend) -> bool:
    """Whether every byte has a token of its own, and text is split before it is looked up."""
    pre_tokenizer = state_of(backend.pre_tokenizer)
    if pre_tokenizer is None or getattr(backend.model, "continuing_subword_prefix", None):
        return False
    parts = pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    if any(part["type"] == "Metaspace" or part.get("add_prefix_space") for part in parts):
        return False
    return any(part["type"] == "ByteLevel" for part in parts)


def _cuts(backend: Backend, starts: str) -> bool:
    """Whether the pre-tokenizer gives the same words for a text and for the parts before and from each of `starts`,
    where that follows a letter: tried on texts of every kind of characters around it."""
    split = backend.pre_tokenizer.pre_tokenize_str
    source = random.Random(0)
    for number, (letter, start) in zip(range(_PROBES), _forever("aZßд漢本한ا½", starts), strict=False):
        before = "".join(source.choices(_ATOMS, k=number % 6)) + letter
        after = start + "".join(source.choices(_ATOMS, k=source.randrange(6)))
        whole = [word for word, _ in split(before + after)]
        if whole != [word for part in (before, after) for word, _ in split(part)]:
            return False
    return True


def _forever(letters: str, starts: str) -> Iterable[tuple[str, str]]:
    while True:
        yield from product(letters, starts)


def state_of(component: Any) -> dict[str, Any] | None:
    """What a component of a tokenizer is made of, as JSON."""
    return None if component is None else dict(json.loads(component.__getstate__()))
