"""config.json from the header of a GGUF file, and back, for the architectures whose keys are known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from outlive.checkpoint.families.rope import NAMES, llama3_scaling
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

_FIX = "name a folder with the model's config.json: --like DIR"
# The key behind the architecture's name → that of config.json.
_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_NEEDED = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count")


class Architecture(NamedTuple):
    """What the header does not say. model_type, and the class that transformers loads."""

    model_type: str
    model_class: str
    head_dim: bool = False  # whether config.json names it


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM"),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM"),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", head_dim=True),
}


def config_of(kv: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """config.json of a file. Raises InputError for an architecture that is not known here, and for a header without
    what it takes."""
    name = kv.get("general.architecture")
    known = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if known is None or kv.get(f"{name}.expert_count"):
        what = f"no config.json is made of GGUF files of the architecture {str(name)[:40]!r}"
        what += " with experts" if known is not None else ""
        raise InputError(what, where=where, expected=", ".join(ARCHITECTURES), fix=_FIX)
    config: dict[str, Any] = {"architectures": [known.model_class], "model_type": known.model_type}
    for key, ours in _KEYS.items():
        value = kv.get(f"{name}.{key}")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{name}.{key} is no number", where=where, fix=_FIX)
        if value is not None:
            config[ours] = _shortest(value) if isinstance(value, float) else value
        elif key in _NEEDED:
            raise InputError(f"the header has no {name}.{key}", where=where, fix=_FIX)
    embeddings = tensors.get("token_embd.weight")
    if embeddings is None or len(embeddings.shape) != 2:
        raise InputError("the file has no token_embd.weight", where=where, fix="is it a whole model?")
    config["vocab_size"] = embeddings.shape[0]
    config["tie_word_embeddings"] = "output.weight" not in tensors
    config |= {"hidden_act": "silu", **_heads(kv, config, str(name), known, where), **_biases(str(name), tensors)}
    for key in ("bos", "eos", "padding"):
        if isinstance(number := kv.get(f"tokenizer.ggml.{key}_token_id"), int):
            config[f"{'pad' if key == 'padding' else key}_token_id"] = number
    return config | _scaling(kv, tensors, config, str(name), where)


def _heads(
    kv: Mapping[str, Any], config: Mapping[str, Any], name: str, known: Architecture, where: str
) -> dict[str, Any]:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    if not isinstance(heads, int) or not isinstance(hidden, int) or heads < 1 or hidden < 1:
        raise InputError(f"{name}.attention.head_count is {heads}", where=where, fix=_FIX)
    own = {"num_key_value_heads": config.get("num_key_value_heads", heads)}
    length = kv.get(f"{name}.attention.key_length", hidden // heads)
    return own | ({"head_dim": length} if known.head_dim or length != hidden // heads else {})


def _biases(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    if name == "llama":
        return {"attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors}
    return {"attention_bias": "blk.0.attn_q.bias" in tensors} if name == "qwen3" else {}


def _scaling(
    kv: Mapping[str, Any], tensors: Mapping[str, Tensor], config: Mapping[str, Any], name: str, where: str
) -> dict[str, Any]:
    kind = kv.get(f"{name}.rope.scaling.type")
    if kind not in (None, "none"):
        raise InputError(f"the scaling of positions is {str(kind)[:40]!r}", where=where, fix=_FIX)
    if NAMES[0] not in tensors:
        return {}
    found = llama3_scaling(tensors[NAMES[0]], config)
    if found is None:
        raise InputError(f"{NAMES[0]} holds factors that are none of Llama 3's", where=where, fix=_FIX)
    return {"rope_scaling": found, "rope_parameters": {**found, "rope_theta": config.get("rope_theta", 10000.0)}}


def _shortest(value: float) -> float | int:
    """The number with the fewest digits that is the same float32: 1e-05 went into the file as 9.99999974e-06."""
    found = float(str(np.float32(value)))
    return int(found) if found.is_integer() and abs(found) >= 1e4 else found


def header_of(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The values of `general.*` and of the architecture `name` for a config.json; see `gguf_write` for their types.

    Raises InputError for an architecture whose keys are not known here, and for a scaling of positions that its files
    can't say.
    """
    if name not in ARCHITECTURES:
        what = f"no header is made for GGUF files of the architecture {name!r}"
        raise InputError(what, expected=", ".join(ARCHITECTURES), fix="convert it with llama.cpp's own converter")
    kv: dict[str, Any] = {"general.architecture": name, "general.type": "model"}
    for key, ours in _KEYS.items():
        value = config.get(ours)
        if key == "rope.freq_base" and value is None and isinstance(config.get("rope_parameters"), Mapping):
            value = config["rope_parameters"].get("rope_theta")
        if key in ("rope.freq_base", "attention.layer_norm_rms_epsilon") and value is not None:
            kv[f"{name}.{key}"] = float(value)
        elif value is not None:
            kv[f"{name}.{key}"] = int(value)
    length = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    kv |= {f"{name}.attention.key_length": length, f"{name}.attention.value_length": length}
    kv |= {f"{name}.rope.dimension_count": length, f"{name}.vocab_size": int(config["vocab_size"])}
    return kv
