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
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from outlive.text.tokenizer import Tokenizer

_TAIL, _HEAD, _MOST = 256, 32, 256  # characters: looked back for an added token; ahead at least, and at most
_SPLITTING = ("Split", "ByteLevel", "Whitespace", "WhitespaceSplit")
_WHITE = re.compile(r"\s")


class Joints:
    """The bounds between pieces of a text, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids_of = lru_cache(maxsize=4096)(lambda text: tuple(tokenizer.encode(text)))

    def agree(self, pieces: Sequence[str], ids: Sequence[Sequence[int]]) -> bool:
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

    def _agrees(self, before: str, after: str, after_ids: Sequence[int], added: re.Pattern[str]) -> bool:
        if self._straddles(before, after, added):
            return False
        start = 0
        near = before[-_TAIL:]
        for match in added.finditer(near):
            start = match.end()
        if start == len(near):
            return True
        cut = _cut(after, added)
        if cut == 0:
            return True
        if start == 0 and len(before) > len(near):
            return False
        tail = near[start:]
        known = self._ids_of(tail)
        joint = self._tokenizer.encode(tail + after[:cut])
        return tuple(joint[: len(known)]) == known and list(after_ids[: len(joint) - len(known)]) == joint[len(known) :]

    def _straddles(self, before: str, after: str, added: re.Pattern[str]) -> bool:
        """Whether an added token would lie across the bound."""
        reach = self._longest - 1
        left = before[-reach:] if reach > 0 else ""
        around = left + after[:reach]
        return any(match.start() < len(left) < match.end() for match in added.finditer(around))


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
