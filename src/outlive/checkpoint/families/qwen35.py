"""Qwen3.5: every fourth layer attends with a gate on its output, the others are gated delta nets (linear attention:
https://arxiv.org/abs/2412.06464)."""

from __future__ import annotations

from dataclasses import replace

from outlive.checkpoint.families.arithmetic import Add, NegativeExponential
from outlive.checkpoint.families.common import BLOCK, EMBEDDING, FINAL_NORM, HEAD, HEAD_NORMS, LAYER, MLP, sizes_of
from outlive.checkpoint.families.family import Family, Row, Sizes
from outlive.checkpoint.families.operations import Operation, Permute, Reprefix, Squeeze
from outlive.checkpoint.families.settings import Settings
from outlive.checkpoint.families.values import Tiled
from outlive.checkpoint.families.vision import QWEN_VISION, qwen_sizes
from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.run.errors import InputError

_DEFAULTS = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}


def _attends(settings: Settings, layer: int) -> bool:
    if settings.has("layer_types"):
        return settings.each("layer_types", settings.layers())[layer] == "full_attention"
    return (layer + 1) % settings.number("full_attention_interval") == 0


def _attends_biased(settings: Settings, layer: int) -> bool:
    return settings.flag("attention_bias") and _attends(settings, layer)


def _is_linear(settings: Settings, layer: int) -> bool:
    return not _attends(settings, layer)


def _sizes(settings: Settings) -> Sizes:
    sizes = sizes_of(settings)
    keys, values = settings.count("linear_num_key_heads"), settings.count("linear_num_value_heads")
    if values % keys:
        raise InputError(
            f"config.json has {values} linear value heads, which {keys} key heads do not divide", fix=OWN_CONFIG
        )
    key, value = settings.number("linear_key_head_dim"), settings.number("linear_value_head_dim")
    return {
        **sizes,
        "query_gate": 2 * sizes["query"],
        "linear_key_heads": keys,
        "linear_heads": values,
        "linear_head": value,
        "linear_keys": 2 * keys * key,
        "linear_values": values * value,
        "linear_all": 2 * keys * key + values * value,
        "kernel": settings.number("linear_conv_kernel_dim"),
        "one": 1,
    }


def _sizes_with_vision(settings: Settings) -> Sizes:
    return {**_sizes(settings), **qwen_sizes(settings)}


def _tiled(sizes: Sizes, start: str | None, head: int) -> Tiled:
    return Tiled(sizes[start] if start else 0, sizes["linear_key_heads"], sizes["linear_heads"], head)


def _plus_one(sizes: Sizes, pattern: str) -> Operation:
    return Add(pattern, 1.0)


def _behind_keys(sizes: Sizes, pattern: str) -> Operation:
    return Permute(pattern, _tiled(sizes, "linear_keys", sizes["linear_head"]))


def _rows_of_heads(sizes: Sizes, pattern: str) -> Operation:
    return Permute(pattern, _tiled(sizes, None, sizes["linear_head"]))


def _columns_of_heads(sizes: Sizes, pattern: str) -> Operation:
    return Permute(pattern, _tiled(sizes, None, sizes["linear_head"]), 1)


def _by_head(sizes: Sizes, pattern: str) -> Operation:
    return Permute(pattern, _tiled(sizes, None, 1))


_LINEAR, _SELF = LAYER + "linear_attn.", LAYER + "self_attn."
_NORMS = (
    FINAL_NORM,
    Row(LAYER + "input_layernorm.weight", "hidden", BLOCK + "attn_norm.weight"),
    Row(LAYER + "post_attention_layernorm.weight", "hidden", BLOCK + "post_attention_norm.weight"),
    *(replace(row, when=_attends) for row in HEAD_NORMS),
)
_MIXERS = (
    Row(_SELF + "q_proj.weight", "query_gate hidden", BLOCK + "attn_q.weight", when=_attends),
    Row(_SELF + "k_proj.weight", "key hidden", BLOCK + "attn_k.weight", when=_attends),
    Row(_SELF + "v_proj.weight", "key hidden", BLOCK + "attn_v.weight", when=_attends),
    Row(_SELF + "o_proj.weight", "hidden query", BLOCK + "attn_output.weight", when=_attends),
    Row(_SELF + "q_proj.bias", "query_gate", when=_attends_biased),
    Row(_SELF + "k_proj.bias", "key", when=_attends_biased),
    Row(_SELF + "v_proj.bias", "key", when=_attends_biased),
    Row(_SELF + "o_proj.bias", "hidden", when=_attends_biased),
    Row(_LINEAR + "in_proj_qkv.weight", "linear_all hidden", BLOCK + "attn_qkv.weight", _behind_keys, _is_linear),
    Row(_LINEAR + "in_proj_z.weight", "linear_values hidden", BLOCK + "attn_gate.weight", _rows_of_heads, _is_linear),
    Row(_LINEAR + "in_proj_b.weight", "linear_heads hidden", BLOCK + "ssm_beta.weight", _by_head, _is_linear),
    Row(_LINEAR + "in_proj_a.weight", "linear_heads hidden", BLOCK + "ssm_alpha.weight", _by_head, _is_linear),
    Row(_LINEAR + "conv1d.weight", "linear_all one kernel", BLOCK + "ssm_conv1d.weight", _behind_keys, _is_linear),
    Row(_LINEAR + "A_log", "linear_heads", BLOCK + "ssm_a", _by_head, _is_linear),
    Row(_LINEAR + "dt_bias", "linear_heads", BLOCK + "ssm_dt.bias", _by_head, _is_linear),
    Row(_LINEAR + "norm.weight", "linear_head", BLOCK + "ssm_norm.weight", when=_is_linear),
    Row(_LINEAR + "out_proj.weight", "hidden linear_values", BLOCK + "ssm_out.weight", _columns_of_heads, _is_linear),
)
_ROWS = (EMBEDDING, HEAD, *MLP, *_MIXERS, *(replace(row, change=_plus_one) for row in _NORMS))


def _text_gguf(sizes: Sizes) -> list[Operation]:
    return [NegativeExponential(_LINEAR + "A_log"), Squeeze(_LINEAR + "conv1d.weight", 1)]


def _nested(name: str) -> str:
    return name.replace("model.", "model.language_model.", 1)


def _nested_gguf(sizes: Sizes) -> list[Operation]:
    return [NegativeExponential(_nested(_LINEAR + "A_log")), Squeeze(_nested(_LINEAR + "conv1d.weight"), 1)]


def _out_of_nest(sizes: Sizes) -> list[Operation]:
    return [Reprefix("model.language_model.", "model.")]


QWEN35_TEXT = Family(
    "Qwen3.5 (text)",
    ("qwen3_5_text",),
    "qwen35",
    _ROWS,
    _sizes,
    _DEFAULTS,
    to_canonical=_out_of_nest,
    before_gguf=_text_gguf,
    ignored_prefixes=("mtp.", "model.visual."),
)
QWEN35 = Family(
    "Qwen3.5",
    ("qwen3_5",),
    "qwen35",
    (*(row.under("model.", "model.language_model.") for row in _ROWS), *QWEN_VISION),
    _sizes_with_vision,
    _DEFAULTS,
    before_gguf=_nested_gguf,
    ignored_prefixes=("mtp.",),
)
