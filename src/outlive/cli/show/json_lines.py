"""Samples as JSON Lines: the form of `inspect --json` that tools and tests read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from outlive.data.conversation import Chat

if TYPE_CHECKING:
    from outlive.cli.open_target import Item
    from outlive.text.tokenizer import Tokenizer


def to_line(item: Item, tokenizer: Tokenizer | None, extra: dict[str, Any]) -> bytes:
    """One line of JSON in UTF-8, with its line break. `extra` comes after `row` and `part`."""
    value = to_object(item, tokenizer, extra)
    try:
        return json.dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which no UTF-8 can hold
        return json.dumps(value).encode() + b"\n"


def to_object(item: Item, tokenizer: Tokenizer | None, extra: dict[str, Any]) -> dict[str, Any]:
    """The object of a sample, of a conversation (without a tokenizer), or of a refusal."""
    head: dict[str, Any] = {"row": item.row}
    if item.refusal is not None:
        refused = {"reason": item.refusal.reason, "detail": item.refusal.detail}
        return head | item.about | extra | {"refused": refused}
    head |= {"part": item.part, **extra}
    if tokenizer is None:
        return head | _conversation(item)
    ids = [] if item.tokens is None else item.tokens.tolist()
    weights = [] if item.weights is None else [_weight(weight) for weight in item.weights.tolist()]
    turns = item.turns()
    return (
        head
        | item.about
        | {
            "input_ids": ids,
            "weights": weights,
            "text": tokenizer.decode(ids),
            "target_text": target_texts(tokenizer, ids, weights),
            **({"turns": [list(turn) for turn in turns]} if turns else {}),
            **({"lints": item.lints} if item.lints else {}),
        }
    )


def target_texts(tokenizer: Tokenizer, ids: Sequence[int], weights: Sequence[float]) -> list[str]:
    """One text for each maximal run of targets."""
    runs = groupby(zip(ids, weights, strict=True), key=lambda pair: pair[1] > 0)
    return [tokenizer.decode([index for index, _ in run]) for is_target, run in runs if is_target]


def _conversation(item: Item) -> dict[str, Any]:
    from outlive.data.texts import turns

    assert item.conversation is not None
    chat = item.conversation
    said: dict[str, Any] = {"messages": chat.messages} if isinstance(chat, Chat) else dict(vars(chat))
    if isinstance(chat, Chat):
        said |= {"tools": chat.tools} if chat.tools else {}
        said |= {"weights": chat.weights} if chat.weights else {}
    spoken = turns(chat)
    return {**said, "target_text": [spoken[place].text for place in item.trained], "lints": item.lints}


def _weight(weight: float) -> int | float:
    if weight in (0.0, 1.0):
        return int(weight)
    import numpy as np

    return float(str(np.float32(weight)))  # the shortest number that is the same in float32
