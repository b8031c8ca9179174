"""Phi-3 (q, k, v and gate, up as one matrix each) and OLMo 2 (norms behind the layers' parts)."""

from __future__ import annotations

from outlive.checkpoint.families.common import (
    ATTENTION,
    BLOCK,
    ENDS,
    LAYER,
    MLP,
    NORMS,
    OUTPUT,
    biased,
    biases,
    sizes_of,
)
from outlive.checkpoint.families.family import Family, Row, Sizes
from outlive.checkpoint.families.settings import Settings


def _phi_sizes(settings: Settings) -> Sizes:
    sizes = sizes_of(settings)
    return {**sizes, "query_key_value": sizes["query"] + 2 * sizes["key"], "two_inner": 2 * sizes["inner"]}


PHI3 = Family(
    "Phi-3",
    ("phi3",),
    "phi3",
    (
        *ENDS,
        *NORMS,
        Row(LAYER + "self_attn.qkv_proj.weight", "query_key_value hidden", BLOCK + "attn_qkv.weight"),
        OUTPUT,
        Row(LAYER + "mlp.gate_up_proj.weight", "two_inner hidden", BLOCK + "ffn_up.weight"),
        Row(LAYER + "mlp.down_proj.weight", "hidden inner", BLOCK + "ffn_down.weight"),
    ),
    _phi_sizes,
)
OLMO2 = Family(
    "OLMo 2",
    ("olmo2",),
    "olmo2",
    (
        *ENDS,
        *ATTENTION,
        *biases(ATTENTION, biased, gguf=False),
        Row(LAYER + "self_attn.q_norm.weight", "query", BLOCK + "attn_q_norm.weight"),
        Row(LAYER + "self_attn.k_norm.weight", "key", BLOCK + "attn_k_norm.weight"),
        Row(LAYER + "post_attention_layernorm.weight", "hidden", BLOCK + "post_attention_norm.weight"),
        Row(LAYER + "post_feedforward_layernorm.weight", "hidden", BLOCK + "post_ffw_norm.weight"),
        *MLP,
    ),
    sizes_of,
)
