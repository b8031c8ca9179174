"""Rows that another tool has tokenised: TRL's, Axolotl's and LLaMA-Factory's caches, and stores of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.data.conversation import Tokens
from outlive.data.format import Format, Row
from outlive.data.naming import Naming
from outlive.data.weights import number
from outlive.text.refusal import Refusal

IGNORED = -100
_MASKS = ("completion_mask", "assistant_masks", "assistant_mask", "loss_mask")
_IDS = ("input_ids", "labels", "attention_mask", "position_ids", "seq_lengths", "seq_idx", *_MASKS)
_MAX_ID = 2**31 - 1


def _fits(row: Row) -> frozenset[str] | None:
    return frozenset({"input_ids"}) if isinstance(row.get("input_ids"), list) else None


def _read(row: Row, naming: Naming | None) -> Tokens:
    ids = _ints(row, "input_ids", None)
    if not ids:
        raise Refusal("no_tokens", "input_ids is empty", ("input_ids",))
    weights = _weights(row, ids)
    kept = _kept(row, len(ids))
    documents = []
    for start, end in _bounds(row, len(ids)):
        places = [place for place in range(start, end) if kept[place]]
        if places:
            documents.append((tuple(ids[place] for place in places), tuple(weights[place] for place in places)))
    if not documents:
        raise Refusal("no_tokens", "attention_mask leaves no token", ("attention_mask",))
    return Tokens(tuple(documents), any(row.get(name) is not None for name in ("labels", "weight", *_MASKS)))


def _weights(row: Row, ids: Sequence[int]) -> list[float]:
    """1 where a token is a target by all that the row says of it; `weight`, a store's column, gives other numbers."""
    labels, weights = _ints(row, "labels", len(ids)), [1.0] * len(ids)
    if labels is not None:
        _check_labels(labels, ids)
        weights = [0.0 if label == IGNORED else 1.0 for label in labels]
    for name in _MASKS:
        mask = _ints(row, name, len(ids))
        if mask is not None:
            weights = [weight if there else 0.0 for weight, there in zip(weights, mask, strict=True)]
    own = row.get("weight")
    if isinstance(own, list):
        _same_length(own, "weight", len(ids))
        weights = [number(weight, "a token's weight", ("weight",)) for weight in own]
    return weights


def _check_labels(labels: Sequence[int], ids: Sequence[int]) -> None:
    wrong = [place for place, label in enumerate(labels) if label not in (IGNORED, ids[place])]
    if not wrong:
        return
    shifted = all(label in (IGNORED, token) for label, token in zip(labels, ids[1:], strict=False))
    why = (
        "labels[t] is input_ids[t + 1]: they are shifted already"
        if shifted and len(ids) > 1
        else f"labels[{wrong[0]}] is {labels[wrong[0]]}, input_ids[{wrong[0]}] is {ids[wrong[0]]}"
    )
    raise Refusal("bad_tokens", f"{why}; a label is the token itself, or {IGNORED}", ("labels", wrong[0]))


def _kept(row: Row, length: int) -> list[bool]:
    """Whether each token is more than padding. Masks with 1, 2, 3 … number the documents of a pack (LLaMA-Factory)."""
    mask = _ints(row, "attention_mask", length)
    return [True] * length if mask is None else [bool(value) for value in mask]


def _bounds(row: Row, length: int) -> list[tuple[int, int]]:
    """Where each document of a packed row begins and ends, by whichever column tells it."""
    lengths = row.get("seq_lengths")
    if isinstance(lengths, list) and lengths:
        if not all(isinstance(value, int) and value > 0 for value in lengths) or sum(lengths) != length:
            raise Refusal("bad_tokens", f"seq_lengths add up to another number than {length} tokens", ("seq_lengths",))
        ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
        return list(zip([0, *ends[:-1]], ends, strict=True))
    for name in ("position_ids", "seq_idx", "attention_mask"):
        values = _ints(row, name, length)
        if values is None:
            continue
        if name == "position_ids":
            starts = [place for place, value in enumerate(values) if place and value == 0]
        else:
            starts = [place for place in range(1, length) if values[place] not in (values[place - 1], 0)]
        if starts:
            return list(zip([0, *starts], [*starts, length], strict=True))
    return [(0, length)]


def _ints(row: Row, name: str, length: int | None) -> Any:
    values = row.get(name)
    if values is None:
        return None
    if not isinstance(values, list):
        raise Refusal("bad_tokens", f"'{name}' is no list", (name,))
    low = IGNORED if name == "labels" else 0
    for place, value in enumerate(values):
        if not isinstance(value, int) or not low <= value <= _MAX_ID or (name != "labels" and value < 0):
            raise Refusal("bad_tokens", f"{name}[{place}] is {value!r}, no token id", (name, place))
    if length is not None:
        _same_length(values, name, length)
    return values


def _same_length(values: Sequence[Any], name: str, length: int) -> None:
    if len(values) != length:
        raise Refusal("bad_tokens", f"'{name}' has {len(values)} values, input_ids {length}", (name,))


FORMATS = {
    "tokens": Format(
        frozenset({*_IDS, "weight", "token_type_ids", "length", "lengths"}),
        _fits,
        _read,
        "input_ids; labels (unshifted, -100), attention_mask, completion_mask, assistant_masks, seq_lengths",
    ),
}
