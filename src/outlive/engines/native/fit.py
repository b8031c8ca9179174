"""Whether the data fits the model: its tokens have embeddings, and its samples have places."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outlive.data.store import Store
from outlive.modeling.causal import CausalModel
from outlive.run.errors import InputError


def check_fit(model: CausalModel, stores: Sequence[Store], name: str) -> list[str]:
    """Notes on what is worth knowing. Raises InputError for tokens or positions that the model has no rows for."""
    embedding = model.model.get_input_embeddings()
    largest, num_rows = max(store.max_token() for store in stores), embedding.weight.shape[0]
    if largest >= num_rows:
        raise InputError(
            f"the data holds token {largest}, and the model has embeddings for {num_rows} tokens only",
            where=f"model: {name}",
            fix="use the tokenizer that the model was made with",
        )
    longest = max(int(store.lengths.max(initial=0)) for store in stores)
    places = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(places, int) or longest <= places:
        return []
    said = f"a sample has {longest} tokens, and the model was made for up to {places} (max_position_embeddings)"
    if _has_position_rows(model, embedding, places):
        raise InputError(said, where=f"model: {name}", fix=f"set data.sequence_length to {places} or less")
    return [said]


def _has_position_rows(model: CausalModel, embedding: torch.nn.Module, places: int) -> bool:
    """Whether positions are rows of a table; some models keep a few rows more (OPT 2)."""
    tables = [m for m in model.model.modules() if isinstance(m, torch.nn.Embedding) and m is not embedding]
    return any(places <= table.num_embeddings <= places + 8 for table in tables)
