"""What single families say in a GGUF header beside sizes: experts, windows, caps, latent attention, delta nets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlive.checkpoint.formats.gguf_fields import Fields

_HERE = "readers of GGUF files do something else"
_CAN = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
_MLA = {"kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank"}
LITE = (26, 27)  # layers of the models whose files llama.cpp reads without q_lora_rank (src/models/deepseek2.cpp)


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


def write_qwen35(config: Fields) -> dict[str, Any]:
    """Delta nets between layers of attention. Angles of text: its three positions are one, so sections don't matter,
    but a fourth, which is 0 there, has to be empty."""
    step = config.count("full_attention_interval", 4)
    _layers(config, _every(step, "linear_attention", "full_attention"))
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


def _write_deepseek(config: Fields) -> dict[str, Any]:
    """Ranks, and widths as they are with keys and values decompressed (mla) and without."""
    heads, layers = config.count("num_attention_heads"), config.count("num_hidden_layers")
    config.must("num_key_value_heads", heads, (heads,), "latent attention has keys and values for each head")
    latent, rotary = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
    if (config.get("q_lora_rank") is None) != (layers in LITE):
        raise config.refused("q_lora_rank", config.get("q_lora_rank"), f"llama.cpp has it unless layers are {LITE}")
    kv = {key: config.count(name) for name, key in _MLA.items() if config.get(name) is not None}
    return kv | {
        "attention.key_length": latent + rotary,
        "attention.value_length": latent,
        "attention.key_length_mla": config.count("qk_nope_head_dim") + rotary,
        "attention.value_length_mla": config.count("v_head_dim"),
        "rope.dimension_count": rotary,
        "leading_dense_block_count": config.count("first_k_dense_replace", least=0),
        "expert_count": config.count("n_routed_experts"),
        "expert_used_count": config.count("num_experts_per_tok"),
        "expert_shared_count": config.count("n_shared_experts"),
        "expert_feed_forward_length": config.count("moe_intermediate_size"),
        "expert_weights_scale": config.real("routed_scaling_factor"),
    }


def write_deepseek_v2(config: Fields) -> dict[str, Any]:
    """Softmax, and the best of all experts: groups by their best expert are unknown to llama.cpp."""
    kv = _write_deepseek(config) | {"expert_group_count": 1, "expert_group_used_count": 1}
    return kv | {"expert_gating_func": 1, "expert_weights_norm": False}


def write_deepseek_v3(config: Fields) -> dict[str, Any]:
    """Sigmoid, and groups by the sum of their two best experts; all groups used are as good as one."""
    groups, used = config.count("n_group"), config.count("topk_group")
    if groups <= used:
        groups = used = 1
    kv = _write_deepseek(config) | {"expert_group_count": groups, "expert_group_used_count": used}
    return kv | {"expert_gating_func": 2, "expert_weights_norm": config.flag("norm_topk_prob", True)}


def _read_deepseek(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    rotary, latent = own.count("rope.dimension_count"), own.count("attention.kv_lora_rank")
    old = own.get("attention.key_length_mla") is None and own.get("attention.value_length_mla") is None
    if old:  # the files before 2025-04, which say the widths of heads
        whole, value = own.count("attention.key_length"), own.count("attention.value_length")
    else:
        whole, value = own.count("attention.key_length_mla"), own.count("attention.value_length_mla")
        own.must("attention.key_length", None, (latent + rotary,), f"should be {latent} + {rotary}")
        own.must("attention.value_length", None, (latent,), f"should be {latent}")
    heads = config["num_attention_heads"]
    own.must("attention.head_count_kv", 1, (1, heads), f"should be 1, or {heads} in an old file")
    if whole <= rotary:
        raise own.refused(
            "attention.key_length" + "_mla" * (not old), whole, f"should be above rope.dimension_count, {rotary}"
        )
    return {
        "kv_lora_rank": latent,
        "q_lora_rank": own.get("attention.q_lora_rank"),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": whole - rotary,
        "v_head_dim": value,
        "num_key_value_heads": heads,
        "first_k_dense_replace": own.count("leading_dense_block_count", 0, least=0),
        "n_routed_experts": own.count("expert_count"),
        "num_experts_per_tok": own.count("expert_used_count"),
        "n_shared_experts": own.count("expert_shared_count"),
        "moe_intermediate_size": own.count("expert_feed_forward_length"),
        "routed_scaling_factor": own.real("expert_weights_scale", 1.0),
    }


def read_deepseek_v2(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """A file that says nothing of groups was written before they had a key, and may have lost them."""
    own.must("expert_gating_func", 1, (1,), "should be 1 (softmax) or 2 (sigmoid)")
    own.must("expert_group_count", None, (1,), "which experts the model chooses among can't be told")
    own.must("expert_group_used_count", 1, (1,), "should be 1")
    own.must("expert_weights_norm", False, (False,), "DeepSeek-V2 does not divide by the sum in transformers")
    return {**_read_deepseek(own, config), "n_group": 1, "topk_group": 1}


def read_deepseek_v3(own: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """Back."""
    found = {**_read_deepseek(own, config), "norm_topk_prob": own.flag("expert_weights_norm", False)}
    return {**found, "n_group": own.count("expert_group_count"), "topk_group": own.count("expert_group_used_count")}
