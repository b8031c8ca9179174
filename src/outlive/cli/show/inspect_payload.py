"""The samples of `inspect --json` in the compact form that its page carries, safe inside a script element."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from outlive.cli.show.json_lines import to_object
from outlive.cli.show.visible import cells

if TYPE_CHECKING:
    from outlive.cli.open_target import Item
    from outlive.text.tokenizer import Tokenizer

# What could end the script element, or turn the text of the page around, or can't be seen: written as JSON's escapes.
_UNSAFE = re.compile(
    r"[<>&\x7f-\xa0\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e01ef]"
)


class Shown(NamedTuple):
    """A sample on the page: its item, its source's place and what `inspect --json` says beside it (source, side …)."""

    item: Item
    source: int
    extra: dict[str, Any]


def payload(shown: Sequence[Shown], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """`vocab`: [id, text, whether special] of each id that occurs, the commonest first; `samples`: see `_Compact`.

    A sample has `object`, what `inspect --json` says of it without what its other keys hold, and `source`, a place.
    `length` is in tokens, or in characters where there is no tokenizer.
    """
    if tokenizer is None:
        return {"vocab": [], "samples": [_text(one) for one in shown]}
    compact = _Compact(tokenizer, shown)
    return {"vocab": compact.vocab, "samples": [compact.sample(one) for one in shown]}


def as_script(value: Any) -> str:
    """JSON that is the same value in any HTML script element and hides nothing in the page's source."""
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSAFE.sub(lambda match: _escaped(match[0]), raw)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def length_of(item: Item) -> int | None:
    """Tokens of a sample; characters of a conversation where there is no tokenizer; None for a row that is left out."""
    from outlive.data.texts import turns

    if item.tokens is not None:
        return len(item.tokens)
    return sum(len(turn.text) for turn in turns(item.conversation)) if item.conversation is not None else None


class _Compact:
    """Samples of tokens: `tokens` are places in `vocab`, `weights` [weight, how often], one after the other.

    `joins`: [place, size, text] where several tokens make a character only together. `targets`: each target text by
    [start, length] in `text`, in code points, or as it is where it does not stand there.
    """

    def __init__(self, tokenizer: Tokenizer, shown: Iterable[Shown]) -> None:
        counts: Counter[int] = Counter()
        for one in shown:
            if one.item.tokens is not None:
                counts.update(one.item.tokens.tolist())
        ids = [index for index, _ in counts.most_common()]
        special = set(tokenizer.added_tokens.values())
        texts = tokenizer.tokens(ids)
        self.vocab = [[index, text, int(index in special)] for index, text in zip(ids, texts, strict=True)]
        self._place = {index: place for place, index in enumerate(ids)}
        self._broken = {index for index, text in zip(ids, texts, strict=True) if "\\x" in text}
        self._tokenizer = tokenizer

    def sample(self, one: Shown) -> dict[str, Any]:
        value = to_object(one.item, self._tokenizer, one.extra)
        if "input_ids" not in value:
            return _refused(one, value)
        ids, weights = value.pop("input_ids"), value.pop("weights")
        joins = []
        if not self._broken.isdisjoint(ids):
            found = cells(self._tokenizer, ids, weights)
            joins = [[cell.position, len(cell.ids), cell.text] for cell in found if len(cell.ids) > 1]
        text = value.pop("text")
        return {
            "object": value,
            "source": one.source,
            "length": len(ids),
            "tokens": [self._place[index] for index in ids],
            "weights": [[weight, len(list(run))] for weight, run in groupby(weights)],
            "joins": joins,
            "targets": list(_places(text, value.pop("target_text"))),
            "text": text,
        }


def _places(text: str, targets: Sequence[str]) -> Iterable[list[int] | str]:
    after = 0
    for target in targets:
        start = text.find(target, after)
        yield [start, len(target)] if start >= 0 else target
        after = start + len(target) if start >= 0 else after


def _text(one: Shown) -> dict[str, Any]:
    from outlive.data.texts import turns

    value = to_object(one.item, None, one.extra)
    if one.item.conversation is None:
        return _refused(one, value)
    spoken = turns(one.item.conversation)
    shown = [[turn.role, turn.text, int(place in one.item.trained)] for place, turn in enumerate(spoken)]
    return {"object": value, "source": one.source, "length": length_of(one.item), "turns": shown}


def _refused(one: Shown, value: dict[str, Any]) -> dict[str, Any]:
    return {"object": value, "source": one.source, "length": 0}
