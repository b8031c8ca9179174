"""Whether the run fits the model: sequences have places (seen from its config alone), and tokens have embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig

from outlive.data.store import Store
from outlive.modeling.causal import CausalModel
from outlive.run.config import Run
from outlive.run.errors import InputError

# Rotary scalings by whose factor a model takes longer sequences than max_position_embeddings says. With the others
# (llama3, longrope) that number is the extended one already.
_FACTOR_ON_TOP = ("linear", "dynamic", "yarn")


def check_length(run: Run, config: PretrainedConfig) -> None:
    """Raise InputError where data.sequence_length is more than the model was made for; its weights are not needed."""
    length, limit = run.data.sequence_length, num_places(config)
    if limit is not None and length > limit:
        where = "model.init.config" if not isinstance(run.model, str) else f"model: {run.model}"
        raise InputError(
            f"data.sequence_length is {length}, and the model was made for up to {limit} tokens "
            f"(max_position_embeddings in its config)",
            where=where,
            expected=f"{limit} or less",
            fix=f"set data.sequence_length={limit} or less; to train beyond it, extend the model's config "
            "(max_position_embeddings, or a rotary scaling such as yarn)",
        )


def num_places(config: PretrainedConfig) -> int | None:
    """How many positions a model was made for, by its config; None where that sets no limit (ALiBi, recurrence)."""
    text: Any = config.get_text_config()
    places = getattr(text, "max_position_embeddings", None)
    if not isinstance(places, int) or isinstance(places, bool) or places < 1 or getattr(text, "alibi", False):
        return None
    rope = getattr(text, "rope_parameters", None)
    if not isinstance(rope, dict) or rope.get("rope_type") not in _FACTOR_ON_TOP:
        return places
    factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
    base = original if isinstance(original, int) and rope["rope_type"] == "yarn" else places
    return max(places, int(base * factor)) if isinstance(factor, int | float) else places


def check_fit(model: CausalModel, stores: Sequence[Store], name: str) -> None:
    """Raise InputError for tokens that the model has no embeddings for."""
    embedding = model.model.get_input_embeddings()
    largest, num_rows = max(store.max_token() for store in stores), embedding.weight.shape[0]
    if largest >= num_rows:
        raise InputError(
            f"the data holds token {largest}, and the model has embeddings for {num_rows} tokens only",
            where=f"model: {name}",
            fix="use the tokenizer that the model was made with",
        )
