"""config.json in both spellings, of transformers 4 and 5, so that every server reads the same model."""

from __future__ import annotations

from typing import Any


def both_spellings(config: dict[str, Any], dtype: str | None = None) -> dict[str, Any]:
    """`config` with dtype and torch_dtype, and rope_parameters beside rope_theta and rope_scaling.

    `dtype` ("bfloat16" …) names the saved weights' format. Nested text configs are treated alike. A rope per layer
    type (Gemma 3) has no old spelling and is left as it is.
    """
    config = dict(config)
    name = dtype or config.get("dtype") or config.get("torch_dtype")
    if name is not None:
        config["dtype"] = config["torch_dtype"] = name
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        config["rope_theta"] = rope["rope_theta"]
        scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
        plain = scaling.get("rope_type", "default") == "default"
        config["rope_scaling"] = None if plain else {**scaling, "type": scaling["rope_type"]}
    if isinstance(config.get("text_config"), dict):
        config["text_config"] = both_spellings(config["text_config"], dtype)
    return config
