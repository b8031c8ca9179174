"""DeepSeek-V2 and V3: latent attention (https://arxiv.org/abs/2405.04434), shared and routed experts behind some
dense layers."""

from __future__ import annotations

from outlive.checkpoint.families.arithmetic import SplitHeads
from outlive.checkpoint.families.common import BLOCK, ENDS, LAYER, MLP, NORMS, biases, experts, experts_of_modules
from outlive.checkpoint.families.family import Family, Row, Sizes
from outlive.checkpoint.families.operations import Operation, Rename
from outlive.checkpoint.families.settings import Settings

_PARTS = ("gate_proj", "up_proj", "down_proj")
_SELF, _SHARED = LAYER + "self_attn.", LAYER + "mlp.shared_experts."
_KV, _KV_GGUF = _SELF + "kv_b_proj.weight", (BLOCK + "attn_k_b.weight", BLOCK + "attn_v_b.weight")


def _sparse(settings: Settings, layer: int) -> bool:
    return layer >= settings.number("first_k_dense_replace", 0, least=0)


def _dense(settings: Settings, layer: int) -> bool:
    return not _sparse(settings, layer)


def _biased(settings: Settings, layer: int) -> bool:
    return settings.flag("attention_bias")


def _low_rank(settings: Settings, layer: int) -> bool:
    return settings.has("q_lora_rank")


def _full_rank(settings: Settings, layer: int) -> bool:
    return not settings.has("q_lora_rank")


def _low_rank_biased(settings: Settings, layer: int) -> bool:
    return _low_rank(settings, layer) and _biased(settings, layer)


def _dense_biased(settings: Settings, layer: int) -> bool:
    return settings.flag("mlp_bias") and _dense(settings, layer)


def _shared_biased(settings: Settings, layer: int) -> bool:
    return settings.flag("mlp_bias") and _sparse(settings, layer)


def _sizes(settings: Settings) -> Sizes:
    heads, inner = settings.count("num_attention_heads"), settings.number("moe_intermediate_size")
    rotary, plain = settings.number("qk_rope_head_dim"), settings.number("qk_nope_head_dim")
    latent, value = settings.number("kv_lora_rank"), settings.number("v_head_dim")
    return {
        "vocabulary": settings.number("vocab_size"),
        "hidden": settings.number("hidden_size"),
        "inner": settings.number("intermediate_size"),
        "layers": settings.layers(),
        "heads": heads,
        "plain": plain,
        "value": value,
        "query": heads * (plain + rotary),
        "query_latent": settings.number("q_lora_rank", 1),
        "latent": latent,
        "latent_rotary": latent + rotary,
        "key_value": heads * (plain + value),
        "values": heads * value,
        "experts": settings.count("n_routed_experts"),
        "expert_inner": inner,
        "shared_inner": inner * settings.number("n_shared_experts"),
    }


_ATTENTION = (
    Row(_SELF + "q_proj.weight", "query hidden", BLOCK + "attn_q.weight", when=_full_rank),
    Row(_SELF + "q_a_proj.weight", "query_latent hidden", BLOCK + "attn_q_a.weight", when=_low_rank),
    Row(_SELF + "q_a_proj.bias", "query_latent", when=_low_rank_biased),
    Row(_SELF + "q_a_layernorm.weight", "query_latent", BLOCK + "attn_q_a_norm.weight", when=_low_rank),
    Row(_SELF + "q_b_proj.weight", "query query_latent", BLOCK + "attn_q_b.weight", when=_low_rank),
    Row(_SELF + "kv_a_proj_with_mqa.weight", "latent_rotary hidden", BLOCK + "attn_kv_a_mqa.weight"),
    Row(_SELF + "kv_a_proj_with_mqa.bias", "latent_rotary", when=_biased),
    Row(_SELF + "kv_a_layernorm.weight", "latent", BLOCK + "attn_kv_a_norm.weight"),
    Row(_KV, "key_value latent"),
    Row(_SELF + "o_proj.weight", "hidden values", BLOCK + "attn_output.weight"),
    Row(_SELF + "o_proj.bias", "hidden", when=_biased),
)
_SHARED_MLP = (
    Row(_SHARED + "gate_proj.weight", "shared_inner hidden", BLOCK + "ffn_gate_shexp.weight", when=_sparse),
    Row(_SHARED + "up_proj.weight", "shared_inner hidden", BLOCK + "ffn_up_shexp.weight", when=_sparse),
    Row(_SHARED + "down_proj.weight", "hidden shared_inner", BLOCK + "ffn_down_shexp.weight", when=_sparse),
)
_ROUTER = Row(LAYER + "mlp.gate.weight", "experts hidden", BLOCK + "ffn_gate_inp.weight", when=_sparse)
_ROWS = (
    *ENDS,
    *NORMS,
    *_ATTENTION,
    *(Row(row.name, row.shape, row.gguf, when=_dense) for row in MLP),
    _ROUTER,
    *_SHARED_MLP,
    *experts("mlp", _PARTS, _sparse),
)
_CORRECTION = Row(LAYER + "mlp.gate.e_score_correction_bias", "experts", BLOCK + "exp_probs_b.bias", when=_sparse)


def _layouts(sizes: Sizes) -> list[Operation]:
    return experts_of_modules("mlp", _PARTS, sizes)


def _latent_gguf(sizes: Sizes) -> list[Operation]:
    return [SplitHeads(_KV, _KV_GGUF, sizes["heads"], sizes["plain"], sizes["value"])]


def _old_gguf(sizes: Sizes) -> list[Operation]:
    """Before 2025-04 files held the matrix as it is."""
    return [Rename(BLOCK + "attn_kv_b.weight", _KV), *_latent_gguf(sizes)]


_V2 = {
    "first_k_dense_replace": 0,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 1407,
}
_V3 = {**_V2, "first_k_dense_replace": 3, "n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048}
DEEPSEEK_V2 = Family(
    "DeepSeek-V2",
    ("deepseek_v2",),
    "deepseek2",
    (
        *_ROWS,
        *biases(tuple(Row(row.name, row.shape) for row in MLP), _dense_biased, gguf=False),
        *biases(_SHARED_MLP, _shared_biased, gguf=False),
    ),
    _sizes,
    _V2,
    layouts=_layouts,
    before_gguf=_latent_gguf,
    old_gguf=_old_gguf,
)
DEEPSEEK_V3 = Family(
    "DeepSeek-V3",
    ("deepseek_v3",),
    "deepseek2",
    (*_ROWS, _CORRECTION),
    _sizes,
    _V3,
    layouts=_layouts,
    before_gguf=_latent_gguf,
    old_gguf=_old_gguf,
)
