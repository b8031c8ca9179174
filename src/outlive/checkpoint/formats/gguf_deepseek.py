"""What DeepSeek says in a GGUF header beside sizes: latent attention, and experts in groups."""

from __future__ import annotations

from typing import Any

from outlive.checkpoint.formats.gguf_fields import Fields
from outlive.checkpoint.formats.gguf_special import one_epsilon

_MLA = {"kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank"}
LITE = (26, 27)  # layers of the models whose files llama.cpp reads without q_lora_rank (src/models/deepseek2.cpp)


def _write_deepseek(config: Fields) -> dict[str, Any]:
    """Ranks, and widths as they are with keys and values decompressed (mla) and without."""
    heads, layers = config.count("num_attention_heads"), config.count("num_hidden_layers")
    one_epsilon(config)
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
    if groups == config.count("n_routed_experts") > 1:
        raise config.refused("n_group", groups, "llama.cpp stops at groups of one expert: it adds the best two of each")
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
