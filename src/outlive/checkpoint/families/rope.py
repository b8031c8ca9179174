"""Factors on rotary frequencies, which Hugging Face computes from config.json, and GGUF files hold as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.checkpoint.families.settings import Settings, shown
from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

NAMES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_MOST = 1 << 16


def factors(architecture: str, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors that a GGUF file of this config holds beside the weights: float32 [head_dim / 2]."""
    kind, rope = _scaling(config)
    if kind == "llama3" and architecture == "llama":
        return {NAMES[0]: Given(_llama3(rope, config))}
    if kind == "longrope" and architecture == "phi3":
        return {NAMES[1]: Given(_listed(rope, "long_factor")), NAMES[2]: Given(_listed(rope, "short_factor"))}
    return {}


def without_factors(tensors: Mapping[str, Tensor], architecture: str, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors without those. InputError where config.json would make others of them."""
    expected = factors(architecture, config)
    for name in NAMES:
        if name in tensors:
            same = name in expected and expected[name].shape == tensors[name].shape
            if not same or not np.allclose(tensors[name].array(), expected[name].array(), rtol=1e-5):
                what = f"the config's rope scaling gives other factors than {name}"
                raise InputError(what, where=name, fix="give the rope_scaling of the original config.json")
    return {name: tensor for name, tensor in tensors.items() if name not in NAMES}


def llama3_scaling(tensor: Tensor, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rope scaling of Llama 3 whose factors are `rope_freqs.weight`; None where it is none that was published."""
    if tensor.size > _MOST or tensor.dtype != "float32":
        return None
    values = tensor.array()
    if not np.isfinite(values).all():
        return None
    scaling = {
        "rope_type": "llama3",
        "factor": float(values.max(initial=1.0)),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    made = _llama3({**_scaling(config)[1], **scaling}, config)
    return scaling if made.shape == values.shape and np.allclose(made, values, rtol=1e-5) else None


def _scaling(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(rope, dict):
        return "default", {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    return ("longrope" if kind == "su" else str(kind)), rope


def _number(rope: Mapping[str, Any], key: str) -> float:
    value = rope.get(key)
    if type(value) not in (int, float) or not 0 < value < 1e12:  # type: ignore[operator]
        raise InputError(
            f"{key} of the rope scaling is {shown(value)} in config.json, where a number is expected", fix=OWN_CONFIG
        )
    return float(value)  # type: ignore[arg-type]


def _listed(rope: Mapping[str, Any], key: str) -> Any:
    values = rope.get(key)
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise InputError(f"{key} of the rope scaling in config.json is no list of numbers", fix=OWN_CONFIG)
    try:
        return np.array(values, np.float32)
    except OverflowError as error:
        raise InputError(
            f"{key} of the rope scaling in config.json holds a number that is too large", fix=OWN_CONFIG
        ) from error


def _llama3(rope: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """Llama 3.1's factors (transformers, modeling_rope_utils.py, _compute_llama3_parameters): 1 for short waves,
    `factor` for long ones, and between them what goes smoothly from one to the other."""
    settings = Settings(config, {})
    heads = settings.number("num_attention_heads")
    size = settings.number("head_dim", max(settings.number("hidden_size") // heads, 1))
    if size > _MOST:
        raise InputError(f"head_dim is {size} in config.json: more than {_MOST} are not supported", fix=OWN_CONFIG)
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    frequencies = 1.0 / _number({"rope_theta": theta}, "rope_theta") ** (np.arange(0, size, 2) / size)
    factor, old = _number(rope, "factor"), _number(rope, "original_max_position_embeddings")
    low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
    if high <= low:
        raise InputError(
            "high_freq_factor of the rope scaling in config.json is not above low_freq_factor", fix=OWN_CONFIG
        )
    waves = 2 * math.pi / frequencies
    smooth = np.clip((old / waves - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
