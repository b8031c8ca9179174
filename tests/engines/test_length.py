"""Promise: a sequence longer than the model was made for is refused by its config alone, and no other one is."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig

from outlive.engines.native.fit import check_length, num_places
from outlive.run.config import Run
from outlive.run.errors import InputError

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_theta": 5e5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "values", "places"),
    [
        ("llama", {"max_position_embeddings": 8192}, 8192),
        ("gpt2", {}, 1024),  # n_positions
        ("qwen2", {"max_position_embeddings": 32768, "rope_parameters": YARN}, 131072),
        ("llama", {"max_position_embeddings": 131072, "rope_parameters": LLAMA3}, 131072),
        ("llama", {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ("gemma3_text", {"max_position_embeddings": 131072}, 131072),  # a rotary setting for each kind of layer
        ("gemma3", {"text_config": {"max_position_embeddings": 512}}, 512),
        ("bloom", {}, None),
        ("falcon", {"alibi": True, "max_position_embeddings": 2048}, None),
        ("mamba", {}, None),
    ],
)
def test_how_long_a_model_takes(kind: str, values: dict[str, Any], places: int | None) -> None:
    config = AutoConfig.for_model(kind, **values)
    assert num_places(config) == places
    run = Run.model_validate({"model": "org/name", "data": {"train": [{"path": "a"}], "sequence_length": 4096}})
    if places is not None and places < 4096:
        with pytest.raises(InputError, match=f"made for up to {places} tokens") as error:
            check_length(run, config)
        assert f"data.sequence_length={places}" in (error.value.fix or "")
    else:
        check_length(run, config)
