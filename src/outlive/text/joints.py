"""Whether a text that is tokenised piece by piece has the tokens that the tokenizer gives to all of it at once.

A server tokenises a whole prompt. For most tokenizers only a few characters around a bound can matter: byte-pair
encoding never merges across what the pre-tokenizer splits, its regular expressions read from left to right and look one
character ahead, and text between two added tokens is tokenised by itself. So a short window around each bound shows
that nothing differs; what it does not show, the whole text has to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from outlive.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int32]

_NEAR, _TAIL = 24, 256  # characters: looked back for an added token, at first and at most
_HEAD, _MOST = 24, 256  # characters: looked ahead at least, and at most
_SPLITTING = ("Split", "ByteLevel", "Whitespace", "WhitespaceSplit")
_WHITE = re.compile(r"\s")


class Joints:
    """The bounds between pieces of a text, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids_of = lru_cache(maxsize=4096)(tokenizer.encode)
        self._tail_of = lru_cache(maxsize=4096)(lambda near: _tail(near, self._added) if self._added else None)

    def agree(self, pieces: Sequence[str], ids: Sequence[Ids]) -> bool:
        """Whether it is shown that `ids`, those of each of the pieces, are the ids of the joined text, too."""
        added = self._added
        return added is not None and all(
            self._agrees(pieces[place - 1], pieces[place], ids[place], added) for place in range(1, len(pieces))
        )

    @cached_property
    def _added(self) -> re.Pattern[str] | None:
        """Where text is cut whatever stands around it; None where a tokenizer looks further than a window."""
        return added_tokens(self._tokenizer.backend)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._tokenizer.added_tokens), default=0)

    def _agrees(self, before: str, after: str, after_ids: Ids, added: re.Pattern[str]) -> bool:
        tail = self._tail_of(before[-_NEAR:])
        if tail is None:
            tail = _tail(before[-_TAIL:], added)
            if tail is None and len(before) > _TAIL:
                return False
            tail = before if tail is None else tail
        if not tail:
            return True
        if any(first in tail for first in self._firsts) and self._straddles(tail, after, added):
            return False
        cut = _cut(after, added)
        if cut == 0:
            return True
        known = self._ids_of(tail)
        joint = self._tokenizer.encode(tail + after[:cut])
        return joint[: len(known)] == known and (joint[len(known) :] == after_ids[: len(joint) - len(known)].tolist())

    def _straddles(self, tail: str, after: str, added: re.Pattern[str]) -> bool:
        """Whether an added token would lie across the bound. It begins after those that end before it: the first that
        begins is found."""
        around = tail + after[: self._longest]
        return any(match.start() < len(tail) < match.end() for match in added.finditer(around))

    @cached_property
    def _firsts(self) -> set[str]:
        return {text[0] for text in self._tokenizer.added_tokens if text}


def _tail(text: str, added: re.Pattern[str]) -> str | None:
    """What follows the last added token; None where there is none."""
    end = None
    for match in added.finditer(text):
        end = match.end()
    return None if end is None else text[end:]


def _cut(text: str, added: re.Pattern[str]) -> int:
    """How much of a text the window takes: to an added token, or to white space, since words end there."""
    match = added.search(text, 0, _MOST)
    most = match.start() if match else min(len(text), _MOST)
    white = _WHITE.search(text, _HEAD, most)
    return white.start() if white else most


def added_tokens(backend: Backend) -> re.Pattern[str] | None:
    """A pattern of the added tokens, where only characters close to a bound decide how a text is tokenised there.

    That is: byte-pair encoding after a splitting pre-tokenizer, no normalizer but NFC, and added tokens that take no
    white space with them and are found before the text is normalised.
    """
    tokens: dict[int, AddedToken] = backend.get_added_tokens_decoder()
    plain = all(not (token.lstrip or token.rstrip or token.single_word) for token in tokens.values())
    normalizer = _state(backend.normalizer)
    normal = normalizer is None or (
        normalizer["type"] == "NFC" and not any(token.normalized for token in tokens.values())
    )
    if not tokens or not plain or not normal or type(backend.model).__name__ != "BPE" or not _splits(backend):
        return None
    texts = sorted((token.content for token in tokens.values() if token.content), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)))


def _splits(backend: Backend) -> bool:
    pre_tokenizer = _state(backend.pre_tokenizer)
    if pre_tokenizer is None or getattr(backend.model, "continuing_subword_prefix", None):
        return False
    parts = pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    if any(part["type"] == "Metaspace" or part.get("add_prefix_space") for part in parts):
        return False
    return any(part["type"] in _SPLITTING and part.get("use_regex", True) for part in parts)


def _state(component: Any) -> dict[str, Any] | None:
    return None if component is None else dict(json.loads(component.__getstate__()))
