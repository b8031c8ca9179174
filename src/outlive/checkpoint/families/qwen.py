"""Qwen2 and 2.5, Qwen3, Qwen3-MoE."""

from __future__ import annotations

from outlive.checkpoint.families.common import (
    ATTENTION,
    BLOCK,
    ENDS,
    HEAD_NORMS,
    LAYER,
    MLP,
    NORMS,
    QUERIES,
    biased,
    biases,
    experts,
    experts_of_modules,
    sizes_of,
)
from outlive.checkpoint.families.family import Family, Row, Sizes, always
from outlive.checkpoint.families.operations import Operation
from outlive.checkpoint.families.settings import Settings

QWEN2 = Family(
    "Qwen2",
    ("qwen2",),
    "qwen2",
    (*ENDS, *NORMS, *ATTENTION, *biases(QUERIES, always, gguf=True), *MLP),
    sizes_of,
    {"num_key_value_heads": 32},
)
QWEN3 = Family(
    "Qwen3",
    ("qwen3",),
    "qwen3",
    (*ENDS, *NORMS, *ATTENTION, *biases(ATTENTION, biased, gguf=False), *HEAD_NORMS, *MLP),
    sizes_of,
    {"num_key_value_heads": 32, "head_dim": 128},
)
_PARTS = ("gate_proj", "up_proj", "down_proj")


def _sparse(settings: Settings, layer: int) -> bool:
    step = settings.number("decoder_sparse_step")
    return layer not in settings.numbers("mlp_only_layers") and (layer + 1) % step == 0


def _dense(settings: Settings, layer: int) -> bool:
    return not _sparse(settings, layer)


def _moe_sizes(settings: Settings) -> Sizes:
    inner = settings.number("moe_intermediate_size")
    spelling = "num_local_experts" if settings.has("num_local_experts") else "num_experts"  # the former since 5.x
    return {**sizes_of(settings), "experts": settings.count(spelling, 128), "expert_inner": inner}


def _moe_layouts(sizes: Sizes) -> list[Operation]:
    return experts_of_modules("mlp", _PARTS, sizes)


QWEN3_MOE = Family(
    "Qwen3-MoE",
    ("qwen3_moe",),
    "qwen3moe",
    (
        *ENDS,
        *NORMS,
        *ATTENTION,
        *biases(ATTENTION, biased, gguf=False),
        *HEAD_NORMS,
        Row(LAYER + "mlp.gate.weight", "experts hidden", BLOCK + "ffn_gate_inp.weight", when=_sparse),
        *experts("mlp", _PARTS, _sparse),
        *(Row(row.name, row.shape, when=_dense) for row in MLP),
    ),
    _moe_sizes,
    {
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
    },
    layouts=_moe_layouts,
)
