"""config.json out of a GGUF header and back, for plain decoders: what isn't known here is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.checkpoint.families.rope import llama3_scaling
from outlive.checkpoint.remedies import OTHER_FORMAT
from outlive.checkpoint.spellings import both_spellings
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# Keys behind "llama." and so on, and what config.json calls them.
_COUNTS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
_REALS = {"attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta"}
_WIDTHS = ("attention.key_length", "attention.value_length", "rope.dimension_count")  # all of them the head's width
_FIX = "use the model's Hugging Face folder, or name one that has its config.json: --like DIR"
FACTORS = "rope_freqs.weight"


def config_of(kv: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """The content of config.json, in the spellings of transformers 4 and 5.

    Tied embeddings, biases and the vocabulary's size are those of the tensors. Raises InputError, which names it, for
    an architecture or a value that isn't known here, and for a missing or wrong one.
    """
    architecture, own = _own(kv, where)
    config = {name: _count(own, key, where) for key, name in _COUNTS.items()}
    reals = {name: _real(own, key, where) for key, name in _REALS.items()}
    width = config["hidden_size"] // config["num_attention_heads"]
    widths = [_count({key: width} | own, key, where) for key in _WIDTHS]
    if len(set(widths)) != 1:
        raise InputError("keys, values and rotary angles of different widths are not known here", where=where, fix=_FIX)
    if "token_embd.weight" not in tensors or len(tensors["token_embd.weight"].shape) != 2:
        raise InputError("token_embd.weight, the embedding, is missing", where=where, fix=_FIX)
    whole: dict[str, Any] = {"architectures": [ARCHITECTURES[architecture]], "model_type": architecture, **config}
    whole |= {"head_dim": widths[0], "vocab_size": tensors["token_embd.weight"].shape[0], "hidden_act": "silu"}
    whole |= {"rms_norm_eps": reals["rms_norm_eps"], "tie_word_embeddings": "output.weight" not in tensors}
    whole["rope_parameters"] = {"rope_theta": reals["rope_theta"], "rope_type": "default"}
    whole["rope_parameters"] |= _scaling(whole, tensors, where)
    if architecture != "qwen2":  # which always has them on queries, keys and values
        whole["attention_bias"] = "blk.0.attn_q.bias" in tensors
    if architecture == "llama":
        whole["mlp_bias"] = "blk.0.ffn_up.bias" in tensors
    for key, name in (("bos", "bos"), ("eos", "eos"), ("padding", "pad")):
        if isinstance(number := kv.get(f"tokenizer.ggml.{key}_token_id"), int):
            whole[f"{name}_token_id"] = number
    return dict(sorted(both_spellings(whole, "bfloat16").items()))


def _scaling(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """The scaling of rotary angles that the file's factors stand for: that of Llama 3."""
    if FACTORS not in tensors:
        return {}
    found = llama3_scaling(tensors[FACTORS], config) if config["model_type"] == "llama" else None
    if found is None:
        what = f"{FACTORS} scales the rotary angles in a way that is not known here"
        raise InputError(what, where=where, fix=_FIX)
    return found


def _own(kv: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """The architecture, and its own values without its name in front, with those that may be left out."""
    architecture = kv.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        what = f"the architecture {str(architecture)[:40]!r} is not known here (known: {', '.join(ARCHITECTURES)})"
        raise InputError(what, where=where, fix=_FIX)
    own = {key.removeprefix(f"{architecture}."): kv[key] for key in kv if key.startswith(f"{architecture}.")}
    for key in own:
        if key not in _COUNTS and key not in _REALS and key not in _WIDTHS and key != "vocab_size":
            what = f"{architecture}.{key} ({str(own[key])[:40]}) changes the model in a way that is not known here"
            raise InputError(what, where=where, fix=_FIX)
    usual = {"attention.head_count_kv": own.get("attention.head_count"), "rope.freq_base": 10000.0}
    return architecture, usual | own


def config_kv(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of the header for a config.json, general.architecture first.

    Raises InputError for a model that they can't describe: another architecture, scaled rotary angles, windows.
    """
    architecture = config.get("model_type")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        what = f"models of the type {str(architecture)[:40]!r} are not known here (known: {', '.join(ARCHITECTURES)})"
        raise InputError(what, where=where, fix=OTHER_FORMAT)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind == "llama3" and architecture == "llama":
        kind = "default"  # it is said by a tensor: families/rope.py
    if kind != "default" or config.get("use_sliding_window"):
        what = f"the rope type {str(kind)[:40]!r}" if kind != "default" else "a sliding window"
        raise InputError(f"{what} can't be written into a GGUF file here", where=where, fix=OTHER_FORMAT)
    read: dict[str, Any] = {"rope_theta": rope.get("rope_theta", 10000.0), "num_key_value_heads": None} | dict(config)
    if read["num_key_value_heads"] is None:
        read["num_key_value_heads"] = read.get("num_attention_heads")
    kv: dict[str, Any] = {"general.architecture": architecture}
    kv |= {f"{architecture}.{key}": _count(read, name, where) for key, name in _COUNTS.items()}
    kv |= {f"{architecture}.{key}": _real(read, name, where) for key, name in _REALS.items()}
    width = kv[f"{architecture}.embedding_length"] // kv[f"{architecture}.attention.head_count"]
    if read.get("head_dim") is not None:
        width = _count(read, "head_dim", where)
    kv |= {f"{architecture}.{key}": width for key in _WIDTHS}
    kv[f"{architecture}.vocab_size"] = _count(read, "vocab_size", where)
    return kv


def _count(values: Mapping[str, Any], key: str, where: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise InputError(f"{key} is {str(value)[:40]}, and should be a number above 0", where=where, fix=OTHER_FORMAT)
    return value


def _real(values: Mapping[str, Any], key: str, where: str) -> float:
    """The shortest decimal of the same float32: 9.99999974e-06 is 1e-05."""
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e38:
        raise InputError(f"{key} is {str(value)[:40]}, and should be a number above 0", where=where, fix=OTHER_FORMAT)
    return float(str(np.float32(value)))
