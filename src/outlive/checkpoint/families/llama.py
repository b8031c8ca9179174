"""Llama 2 and 3 (and SmolLM, which is one), Mistral, Mixtral."""

from __future__ import annotations

from outlive.checkpoint.families.common import (
    ATTENTION,
    ENDS,
    MLP,
    NORMS,
    biased,
    biases,
    rotated,
    sizes_of,
)
from outlive.checkpoint.families.family import Family
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
