"""Models whose head is their embedding: an adapter that changes one of them unties the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.checkpoint.adapters.places import embedding_of, head_of
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

HEAD = "lm_head.weight"


def settle(tensors: dict[str, Tensor], config: Mapping[str, Any], was_tied: bool) -> tuple[dict[str, Any], str | None]:
    """Drop a head that equals the embedding in a model that was tied; else say in the config that they differ.

    Returns the config, and what was changed in it, for the user. `tensors` is changed. All values are compared.
    """
    head, embedding = head_of(tensors), embedding_of(tensors)
    if head is None or embedding is None:
        return dict(config), None
    says_tied = config.get("tie_word_embeddings", was_tied) is not False
    if not says_tied:
        return dict(config), None
    if equal(tensors[head], tensors[embedding]):
        if was_tied:
            del tensors[head]
        return dict(config), None
    note = f"{embedding} and {head} differ now: the config says tie_word_embeddings false"
    return _everywhere(config, "tie_word_embeddings", False), note


def resized(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], rows_before: int | None, where: str
) -> tuple[dict[str, Any], str | None]:
    """The config with the vocabulary of an embedding that the adapter brought in another size.

    Raises InputError where the head does not have the same.
    """
    head, embedding = head_of(tensors), embedding_of(tensors)
    if embedding is None or rows_before is None:
        return dict(config), None
    rows = tensors[embedding].shape[0]
    if head is not None and tensors[head].shape[0] != rows:
        raise InputError(
            f"{embedding} has {rows} rows after the merge, and {head} {tensors[head].shape[0]}",
            where=where,
            fix="train with both in modules_to_save, or with ensure_weight_tying",
        )
    if rows == rows_before:
        return dict(config), None
    changed = _everywhere(config, "vocab_size", rows)
    return changed, f"the vocabulary has {rows} entries now, {rows_before} before"


def _everywhere(config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The config with a value at its top and in its text config; of two such places where the key is already."""
    changed = dict(config)
    text = changed.get("text_config")
    if isinstance(text, dict) and key in text:
        changed["text_config"] = {**text, key: value}
        if key not in changed and key != "tie_word_embeddings":
            return changed
    changed[key] = value
    return changed


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and values; all are compared, block by block."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return all(np.array_equal(one.read(box), other.read(box)) for box in one.blocks())
