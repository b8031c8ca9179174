"""Gemma 2 and Gemma 3, whose norms multiply by 1 + weight; Gemma 3 with its vision tower too."""

from __future__ import annotations

from dataclasses import replace

from outlive.checkpoint.families.arithmetic import Add
from outlive.checkpoint.families.common import (
    ATTENTION,
    BLOCK,
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    HEAD_NORMS,
    LAYER,
    MLP,
    biased,
    biases,
    sizes_of,
)
from outlive.checkpoint.families.family import Family, Row, Sizes
from outlive.checkpoint.families.operations import Operation, Rename, Reprefix
from outlive.checkpoint.families.settings import Settings
from outlive.checkpoint.families.vision import SIGLIP, siglip_sizes


def _plus_one(sizes: Sizes, pattern: str) -> Operation:
    return Add(pattern, 1.0)


_DEFAULTS = {"num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True}
_NORMS = (
    FINAL_NORM,
    Row(LAYER + "input_layernorm.weight", "hidden", BLOCK + "attn_norm.weight"),
    Row(LAYER + "post_attention_layernorm.weight", "hidden", BLOCK + "post_attention_norm.weight"),
    Row(LAYER + "pre_feedforward_layernorm.weight", "hidden", BLOCK + "ffn_norm.weight"),
    Row(LAYER + "post_feedforward_layernorm.weight", "hidden", BLOCK + "post_ffw_norm.weight"),
)
_BODY = (
    EMBEDDING,
    *ATTENTION,
    *biases(ATTENTION, biased, gguf=False),
    *MLP,
    *(replace(row, change=_plus_one) for row in _NORMS),
)
_TEXT = (*_BODY, HEAD, *(replace(row, change=_plus_one) for row in HEAD_NORMS))


def _with_vision(settings: Settings) -> Sizes:
    return {**sizes_of(settings), **siglip_sizes(settings)}


def _modules(sizes: Sizes) -> list[Operation]:
    return [
        Reprefix("model.language_model.", "language_model.model."),
        Reprefix("model.vision_tower.", "vision_tower."),
        Reprefix("model.multi_modal_projector.", "multi_modal_projector."),
        Rename("lm_head.weight", "language_model.lm_head.weight"),
    ]


def _old_folders(sizes: Sizes) -> list[Operation]:
    return [Reprefix("vision_tower.vision_model.", "vision_tower.")]


GEMMA2 = Family("Gemma 2", ("gemma2",), "gemma2", (*_BODY, replace(HEAD, gguf="")), sizes_of, _DEFAULTS)
GEMMA3_TEXT = Family("Gemma 3 (text)", ("gemma3_text",), "gemma3", _TEXT, sizes_of, _DEFAULTS)
GEMMA3 = Family(
    "Gemma 3",
    ("gemma3",),
    "gemma3",
    (
        *(row.under("model.", "language_model.model.").under("lm_head.", "language_model.lm_head.") for row in _TEXT),
        Row("multi_modal_projector.mm_input_projection_weight", "vision_hidden hidden"),
        Row("multi_modal_projector.mm_soft_emb_norm.weight", "vision_hidden"),
        *SIGLIP,
    ),
    _with_vision,
    _DEFAULTS,
    layouts=_modules,
    to_canonical=_old_folders,
)
