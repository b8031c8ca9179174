"""How much a message counts in the loss, as the keys of several tools say it: for all of it, a part, or characters."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from outlive.data.conversation import CharacterWeight, MessageWeight
from outlive.data.parts import Parts
from outlive.text.refusal import Refusal

# Weights other than 0: sums of them in float32 neither vanish nor overflow.
WEIGHTS = (1e-6, 1e6)
WHOLE_KEYS = ("weight", "train", "trainable", "train_on_turn", "training", "loss", "loss_weight", "loss_scale")
DETAIL_KEYS = ("train_detail", "training_detail")
# Keys that say how much a message counts: they steer the loss and are never shown to a template.
LOSS_KEYS = frozenset({*WHOLE_KEYS, *DETAIL_KEYS})
_PART_KEYS = ("weight", "train")
Path = tuple[str | int, ...]


def message_weight(message: Mapping[str, Any], parts: Parts, where: str, path: Path) -> MessageWeight:
    """The weight that a message gives itself, its parts or its characters; None where it gives none. Raises Refusal."""
    whole = _one(message, WHOLE_KEYS, where, path)
    detail = next((message[key] for key in DETAIL_KEYS if message.get(key) is not None), None)
    of_parts = [_one(flags, _PART_KEYS, f"a part of {where}", path) for flags in parts.flags]
    if detail is None and all(weight is None for weight in of_parts):
        return whole
    if whole is not None:
        raise Refusal("bad_weight", f"{where} has a weight, and so have parts or characters of it", path)
    if detail is not None and len(parts.texts or ()) != 1:
        raise Refusal("bad_weight", f"{where} has weights of characters, and no single text", path)
    if detail is not None:
        return _characters(detail, parts.texts[0]["text"] if parts.texts else "", where, path)
    lengths = [len(part["text"]) for part in parts.texts or ()]
    one = len(lengths) == 1  # a single part is read as the text itself
    found = zip(range(len(lengths)), lengths, of_parts, strict=True)
    return tuple(
        CharacterWeight(("content",) if one else ("content", place, "text"), 0, length, 1.0 if own is None else own)
        for place, length, own in found
    )


def _one(said: Mapping[str, Any], keys: tuple[str, ...], where: str, path: Path) -> float | None:
    found = {key: said[key] for key in keys if said.get(key) is not None}
    if not found:
        return None
    if len(found) > 1:
        raise Refusal("bad_weight", f"{where} has both {' and '.join(map(repr, found))}", path)
    ((key, weight),) = found.items()
    return number(weight, f"the {key} of {where}", (*path, key))


def number(weight: Any, what: str, path: Path) -> float:
    """A weight: true, false, 0, or a number of WEIGHTS. Raises Refusal(bad_weight)."""
    least, most = WEIGHTS
    if not isinstance(weight, int | float) or not (weight == 0 or least <= weight <= most):
        known = f"0, or a number from {least:g} to {most:g}"
        raise Refusal("bad_weight", f"{what} is {weight!r}; it is to be {known}", path)
    return float(weight)


def _characters(detail: Any, text: str, where: str, path: Path) -> tuple[CharacterWeight, ...]:
    """Axolotl's ranges, whose ends are inclusive: [{begin_offset, end_offset, train or weight}]. What lies in none of
    them has weight 0."""
    if not isinstance(detail, list):
        raise Refusal("bad_weight", f"the weights of characters of {where} are no list", path)
    found = []
    for item in detail:
        begin, end = (item.get(key) if isinstance(item, Mapping) else None for key in ("begin_offset", "end_offset"))
        if not isinstance(begin, int) or not isinstance(end, int) or not 0 <= begin <= end < len(text):
            raise Refusal("bad_weight", f"a range of {where} is {item!r}; its text has {len(text)} characters", path)
        weight = _one(item, _PART_KEYS, f"a range of {where}", path)
        if weight is None:
            raise Refusal("bad_weight", f"a range of {where} has neither train nor weight", path)
        found.append(CharacterWeight(("content",), begin, end + 1, weight))
    found.sort()
    for before, after in pairwise(found):
        if after.start < before.end:
            raise Refusal("bad_weight", f"ranges of {where} overlap at character {after.start}", path)
    return tuple(found)
