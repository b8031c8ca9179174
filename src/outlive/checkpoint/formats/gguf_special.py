"""What single families say in a GGUF header beside sizes: experts, windows, caps, delta nets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlive.checkpoint.formats.gguf_fields import Fields

_HERE = "readers of GGUF files do something else"
_CAN = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}


def nothing(config: Fields) -> dict[str, Any]:
    """No other keys."""
    return {}


def nothing_read(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """No other keys."""
    return {}


def _layers(config: Fields, of: Callable[[int], str]) -> None:
    """Whether the layers are of the types that readers take them to be."""
    expected = [of(layer) for layer in range(config.count("num_hidden_layers"))]
    if config.get("layer_types", expected) != expected:
        what = f"not the pattern that {_HERE} with; it is {', '.join(expected[:6])} …"
        raise config.refused("layer_types", config.get("layer_types"), what.replace(f"{_HERE} with", "readers expect"))


def _every(step: int, one: str, other: str) -> Callable[[int], str]:
    return lambda layer: other if (layer + 1) % step == 0 else one


def _no_window(config: Fields) -> None:
    """A window as wide as the context is none; a smaller one is unknown to readers of these architectures."""
    window = config.get("sliding_window")
    if window is not None and config.count("sliding_window") < config.count("max_position_embeddings"):
        why = "llama.cpp computes no window here: text longer than it would give other logits. Where that is wanted, "
        why += "set it to null, or max_position_embeddings to the window, in a copy's config.json"
        raise config.refused("sliding_window", window, why)


def write_full(config: Fields) -> dict[str, Any]:
    """Qwen2 and Qwen3: every layer attends to everything."""
    _layers(config, lambda layer: "full_attention")
    return {}


def write_mistral(config: Fields) -> dict[str, Any]:
    """Mistral, whose window GGUF's architecture llama has not."""
    _no_window(config)
    return {}


def write_mixtral(config: Fields) -> dict[str, Any]:
    """Experts, whose weights are always divided by their sum."""
    _no_window(config)
    return {
        "expert_count": config.count("num_local_experts", 8),
        "expert_used_count": config.count("num_experts_per_tok", 2),
    }


def read_mixtral(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """Back."""
    return {
        "num_local_experts": own.count("expert_count"),
        "num_experts_per_tok": own.count("expert_used_count"),
        "sliding_window": None,
    }


def write_qwen3_moe(config: Fields) -> dict[str, Any]:
    """Experts; their number has two spellings."""
    write_full(config)
    number = "num_local_experts" if config.get("num_local_experts") is not None else "num_experts"
    return {
        "expert_count": config.count(number, 128),
        "expert_used_count": config.count("num_experts_per_tok", 8),
        "expert_feed_forward_length": config.count("moe_intermediate_size"),
    }


def read_qwen3_moe(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """Back."""
    found = {name: own.count(key) for key, name in _CAN.items()}
    return {**found, "moe_intermediate_size": own.count("expert_feed_forward_length")}


def _query_scale(config: Fields, big: int) -> int:
    """What llama.cpp divides queries by the root of: the width of heads, but for the models of `big` layers."""
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    return hidden // heads if config.count("num_hidden_layers") == big else config.count("head_dim")


def _scaled(config: Fields, big: int) -> None:
    usual = _query_scale(config, big)
    config.must("query_pre_attn_scalar", 256, (usual,), f"llama.cpp takes {usual} for this model: it has no key for it")


def write_gemma2(config: Fields) -> dict[str, Any]:
    """Windows in every second layer, caps on the logits of attention and of the output."""
    _layers(config, _every(2, "sliding_attention", "full_attention"))
    _scaled(config, 46)
    return {
        "attention.sliding_window": config.count("sliding_window"),
        "attn_logit_softcapping": config.real("attn_logit_softcapping"),
        "final_logit_softcapping": config.real("final_logit_softcapping"),
    }


def read_gemma2(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """Back."""
    kinds = _every(2, "sliding_attention", "full_attention")
    return {
        "sliding_window": own.count("attention.sliding_window"),
        "attn_logit_softcapping": own.real("attn_logit_softcapping"),
        "final_logit_softcapping": own.real("final_logit_softcapping"),
        "query_pre_attn_scalar": _query_scale(Fields(config, own.where, own.fix), 46),
        "layer_types": [kinds(layer) for layer in range(config["num_hidden_layers"])],
    }


def write_gemma3(config: Fields) -> dict[str, Any]:
    """Windows in five of six layers."""
    pattern = "sliding_window_pattern" if config.get("sliding_window_pattern") else "_sliding_window_pattern"
    config.must(pattern, 6, (6,), "llama.cpp takes 6 for this architecture")
    _layers(config, _every(6, "sliding_attention", "full_attention"))
    _scaled(config, 62)
    return {"attention.sliding_window": config.count("sliding_window")}


def read_gemma3(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """Back."""
    kinds = _every(6, "sliding_attention", "full_attention")
    return {
        "sliding_window": own.count("attention.sliding_window"),
        "query_pre_attn_scalar": _query_scale(Fields(config, own.where, own.fix), 62),
        "layer_types": [kinds(layer) for layer in range(config["num_hidden_layers"])],
    }


def write_phi3(config: Fields) -> dict[str, Any]:
    """0 says that there is no window; llama.cpp computes none in any case."""
    _no_window(config)
    return {"attention.sliding_window": 0}


def read_phi3(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """A window in the file is what the model was trained with, though llama.cpp leaves it out."""
    window = own.count("attention.sliding_window", 0, least=0)
    old = own.get("rope.scaling.original_context_length")
    return {
        "sliding_window": window or None,
        "original_max_position_embeddings": config["max_position_embeddings"] if old is None else old,
    }


def one_epsilon(config: Fields) -> None:
    """rms_norm_eps where llama.cpp takes it for norms too that have 1e-6 in transformers, whatever the config says."""
    config.must("rms_norm_eps", 1e-6, (1e-6,), "llama.cpp takes it for norms within attention too, which have 1e-06")


def _interval(config: Fields) -> int:
    """Each how manyth layer attends to everything, by the types of layers where they are named, as in transformers."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and "full_attention" in kinds:
        return kinds.index("full_attention") + 1
    return config.count("full_attention_interval", 4)


def write_qwen35(config: Fields) -> dict[str, Any]:
    """Delta nets between layers of attention. Angles of text: its three positions are one, so sections don't matter,
    but a fourth, which is 0 there, has to be empty."""
    step = _interval(config)
    _layers(config, _every(step, "linear_attention", "full_attention"))
    if not 1 < step <= config.count("num_hidden_layers"):
        both = "llama.cpp stops at a model without a layer of either type"
        raise config.refused("layer_types", config.get("layer_types"), both)
    one_epsilon(config)
    key = config.count("linear_key_head_dim", 128)
    value = config.must("linear_value_head_dim", 128, (key,), f"llama.cpp takes linear_key_head_dim ({key}) for it")
    heads = config.count("linear_num_value_heads", 32)
    return {
        "ssm.conv_kernel": config.count("linear_conv_kernel_dim", 4),
        "ssm.state_size": key,
        "ssm.group_count": config.count("linear_num_key_heads", 16),
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * value,
        "full_attention_interval": step,
    }


def read_qwen35(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """Back. Layers that predict later tokens are refused as tensors that are not known."""
    own.must("nextn_predict_layers", 0, (0,), "layers that predict later tokens are not known here")
    size, heads = own.count("ssm.state_size"), own.count("ssm.time_step_rank")
    own.must("ssm.inner_size", None, (size * heads,), f"should be {size} · {heads}")
    step = own.count("full_attention_interval", 4)
    kinds = _every(step, "linear_attention", "full_attention")
    return {
        "linear_conv_kernel_dim": own.count("ssm.conv_kernel"),
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
        "linear_num_key_heads": own.count("ssm.group_count"),
        "linear_num_value_heads": heads,
        "full_attention_interval": step,
        "layer_types": [kinds(layer) for layer in range(config["num_hidden_layers"])],
    }
