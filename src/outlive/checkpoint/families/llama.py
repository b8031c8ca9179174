"""Llama 2 and 3 (and SmolLM, which is one), Mistral, Mixtral."""

from __future__ import annotations

from outlive.checkpoint.families.common import (
    ATTENTION,
    BLOCK,
    ENDS,
    LAYER,
    MLP,
    NORMS,
    biased,
    biases,
    experts,
    experts_of_modules,
    rotated,
    sizes_of,
)
from outlive.checkpoint.families.family import Family, Row, Sizes
from outlive.checkpoint.families.operations import Operation, Rename
from outlive.checkpoint.families.parts import Stack
from outlive.checkpoint.families.settings import Settings


def _mlp_biased(settings: Settings, layer: int) -> bool:
    return settings.flag("mlp_bias")


LLAMA = Family(
    "Llama",
    ("llama",),
    "llama",
    (
        *ENDS,
        *NORMS,
        *rotated((*ATTENTION, *biases(ATTENTION, biased, gguf=True))),
        *MLP,
        *biases(MLP, _mlp_biased, gguf=True),
    ),
    sizes_of,
)
MISTRAL = Family(
    "Mistral", ("mistral",), "llama", (*ENDS, *NORMS, *rotated(ATTENTION), *MLP), sizes_of, {"num_key_value_heads": 8}
)
_MIXTRAL_PARTS = ("w1", "w3", "w2")


def _mixtral_sizes(settings: Settings) -> Sizes:
    sizes = sizes_of(settings)
    return {**sizes, "experts": settings.count("num_local_experts"), "expert_inner": sizes["inner"]}


def _mixtral_layouts(sizes: Sizes) -> list[Operation]:
    return [
        Rename(LAYER + "mlp.gate.weight", LAYER + "block_sparse_moe.gate.weight"),
        *experts_of_modules("block_sparse_moe", _MIXTRAL_PARTS, sizes),
    ]


def _mixtral_old_gguf(sizes: Sizes) -> list[Operation]:
    """The files of 2023, with a tensor for each expert."""
    return [
        Stack(f"{BLOCK}ffn_{part}.{{expert}}.weight", f"{BLOCK}ffn_{part}_exps.weight", sizes["experts"])
        for part in ("gate", "up", "down")
    ]


MIXTRAL = Family(
    "Mixtral",
    ("mixtral",),
    "llama",
    (
        *ENDS,
        *NORMS,
        *rotated(ATTENTION),
        Row(LAYER + "block_sparse_moe.gate.weight", "experts hidden", BLOCK + "ffn_gate_inp.weight"),
        *experts("block_sparse_moe", _MIXTRAL_PARTS),
    ),
    _mixtral_sizes,
    {"num_key_value_heads": 8, "num_local_experts": 8},
    layouts=_mixtral_layouts,
    old_gguf=_mixtral_old_gguf,
)
