"""config.json out of a GGUF header and back (`gguf_layouts`): what one side can't say is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.gguf_fields import Fields
from outlive.checkpoint.formats.gguf_layouts import ARCHITECTURES, COUNTS, EPSILON, LAYOUTS, Layout, layout_of
from outlive.checkpoint.formats.gguf_rope import local_rope_of, longrope_kv, read_rope, rope_kv, rope_of
from outlive.checkpoint.remedies import OTHER_FORMAT
from outlive.checkpoint.spellings import both_spellings
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

__all__ = ["ARCHITECTURES", "config_kv", "config_of"]
_FIX = "use the model's Hugging Face folder, or name one that has its config.json: --like DIR"
_LENGTHS, _ROTARY, _SECTIONS = ("attention.key_length", "attention.value_length"), "rope.dimension_count", (11, 11, 10)


def config_of(kv: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """The content of config.json, in the spellings of transformers 4 and 5.

    Tied embeddings, biases and the vocabulary's size are those of the tensors. Raises InputError, which names it, for
    an architecture or a value that isn't known here, and for a missing or wrong one.
    """
    layout, own = _own(kv, where)
    if "token_embd.weight" not in tensors or len(tensors["token_embd.weight"].shape) != 2:
        raise InputError("token_embd.weight, the embedding, is missing", where=where, fix=_FIX)
    whole: dict[str, Any] = {"architectures": [layout.name], "model_type": layout.model_type}
    whole |= {key: allowed[0] for key, (_, allowed) in layout.fixed.items()}
    for key, name in COUNTS.items():
        if not (layout.latent and key == "attention.head_count_kv"):
            whole[name] = own.count(key, own.get("attention.head_count") if key.endswith("_kv") else None)
    whole |= {EPSILON[1]: own.real(EPSILON[0]), "vocab_size": tensors["token_embd.weight"].shape[0]}
    own.get("vocab_size")  # that of the tensors counts
    own.must("attention.causal", True, (True,), "only models that look back are known here")
    whole["tie_word_embeddings"] = "output.weight" not in tensors
    partial = {} if layout.latent else _widths(own, whole, layout)
    whole |= layout.read(own, whole)
    rope = read_rope(own, whole, tensors, interleaved=layout.architecture == "llama", latent=layout.latent) | partial
    whole |= _local(own, rope) if layout.local_rope else {"rope_parameters": rope}
    whole |= _biases(layout.model_type, tensors)
    for key, name in (("bos", "bos"), ("eos", "eos"), ("padding", "pad")):
        if isinstance(number := kv.get(f"tokenizer.ggml.{key}_token_id"), int):
            whole[f"{name}_token_id"] = number
    if left := own.left():
        raise own.refused(left[0], own.values[left[0]], "changes the model in a way that is not known here")
    return dict(sorted(both_spellings(whole, "bfloat16").items()))


def _own(kv: Mapping[str, Any], where: str) -> tuple[Layout, Fields]:
    """The layout of the architecture, and its own values without its name in front."""
    architecture = kv.get("general.architecture")
    name = architecture if isinstance(architecture, str) else ""
    own = {key.removeprefix(f"{name}."): kv[key] for key in kv if key.startswith(f"{name}.")}
    fields = Fields(own, where, _FIX, f"{name}.")
    layout = layout_of(name, fields)
    if layout is None:
        known = ", ".join(sorted({one.architecture for one in LAYOUTS.values()}))
        what = f"the architecture {str(architecture)[:40]!r} is not known here (known: {known})"
        raise InputError(what, where=where, fix=_FIX)
    return layout, fields


def _widths(own: Fields, config: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Takes the width of heads into the config; what rotates a part of them is returned, for its rope."""
    width = own.count(_LENGTHS[0], config["hidden_size"] // config["num_attention_heads"])
    if own.count(_LENGTHS[1], width) != width:
        raise own.refused(_LENGTHS[1], own.get(_LENGTHS[1]), "other widths than those of keys are not known here")
    config["head_dim"] = width
    rotary = own.count(_ROTARY, width)
    if not layout.partial and rotary != width:
        raise own.refused(_ROTARY, rotary, f"should be the width of heads here, {width}")
    if layout.model_type == "phi3":
        del config["head_dim"]  # phi3 has none: it is hidden_size / num_attention_heads
    if not layout.partial:
        return {}
    found: dict[str, Any] = {"partial_rotary_factor": rotary / width}
    if (sections := own.get("rope.dimension_sections")) is not None:
        numbers = [int(one) for one in sections]
        if len(numbers) != 4 or sum(numbers[:3]) * 2 != rotary or numbers[3]:
            raise own.refused("rope.dimension_sections", numbers, f"should have three parts, {rotary // 2} together")
        found |= {"mrope_section": numbers[:3], "mrope_interleaved": True}
    return found


def _local(own: Fields, rope: dict[str, Any]) -> dict[str, Any]:
    """A rope for each type of layer, as Gemma 3 has it, and its old spelling."""
    own.must("rope.freq_base_swa", 10000.0, (10000.0,), "llama.cpp takes 10000 for layers with windows")
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    return {
        "rope_parameters": {
            "full_attention": rope,
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "rope_theta": rope["rope_theta"],
        "rope_local_base_freq": 10000.0,
        "rope_scaling": None if rope["rope_type"] == "default" else scaling,
    }


def _biases(model_type: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    if model_type != "llama":
        return {}
    return {"attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors}


def config_kv(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of the header for a config.json, general.architecture first.

    Raises InputError for a model that they can't describe: another architecture, and every key of config.json that
    changes the model and that llama.cpp has no key for.
    """
    layout = _layout(config, where)
    read = Fields({**layout.defaults, **family_of(config).defaults, **config}, where, OTHER_FORMAT)
    for key, (default, allowed) in layout.fixed.items():
        read.must(key, default, allowed, f"GGUF's architecture {layout.architecture} always has {allowed[0]}")
    if read.get("num_key_value_heads") is None:
        read.values["num_key_value_heads"] = read.get("num_attention_heads")
    kv: dict[str, Any] = {key: read.count(name) for key, name in COUNTS.items()}
    kv |= {EPSILON[0]: read.real(EPSILON[1]), "vocab_size": read.count("vocab_size")}
    width = read.count("head_dim", max(kv["embedding_length"] // kv["attention.head_count"], 1))
    if layout.latent:
        kv["attention.head_count_kv"] = 1  # all heads share the latent
    else:
        if layout.plain_heads and width * kv["attention.head_count"] != kv["embedding_length"]:
            raise read.refused("head_dim", width, "llama.cpp takes hidden_size / num_attention_heads")
        read.values["head_dim"] = width
    rope = local_rope_of(read) if layout.local_rope else rope_of(read, layout.theta)
    if not layout.latent:
        kv |= dict.fromkeys(_LENGTHS, width) | _rotary(rope, width, layout)
    kv |= rope_kv(rope, layout.kinds, latent=layout.latent)
    kv |= longrope_kv(rope, read) if layout.model_type == "phi3" else {}
    kv |= {"rope.freq_base_swa": 10000.0} if layout.local_rope else {}
    kv |= layout.write(read)
    named = {f"{layout.architecture}.{key}": value for key, value in kv.items()}
    return {"general.architecture": layout.architecture, **named}


def _layout(config: Mapping[str, Any], where: str) -> Layout:
    name = config.get("model_type")
    if isinstance(name, str) and name in LAYOUTS:
        return LAYOUTS[name]
    what = f"models of the type {str(name)[:40]!r} can't be written into a GGUF file here"
    if name in ("gemma3", "qwen3_5"):
        what += ": it has a vision tower"
    raise InputError(f"{what} (known: {', '.join(LAYOUTS)})", where=where, fix=OTHER_FORMAT)


def _rotary(rope: Fields, width: int, layout: Layout) -> dict[str, Any]:
    """How much of a head is turned."""
    if not layout.partial:
        rope.must("partial_rotary_factor", 1.0, (1, 1.0), "readers turn whole heads here")
        return {_ROTARY: width}
    rotary = int(width * rope.real("partial_rotary_factor", 1.0))
    found: dict[str, Any] = {_ROTARY: rotary}
    if layout.model_type == "qwen3_5_text":
        sections = rope.get("mrope_section", list(_SECTIONS))
        if not isinstance(sections, list | tuple) or len(sections) != 3 or sum(sections) * 2 != rotary:
            raise rope.refused("mrope_section", sections, f"should have three parts, {rotary // 2} together")
        found["rope.dimension_sections"] = [*sections, 0]
    return found
