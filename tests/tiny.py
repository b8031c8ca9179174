"""Tiny models of four architectures, and their gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from outlive.modeling.causal import CausalModel
from outlive.modeling.loading import ModelPlace, isolates, load_config, load_model
from tests.stores import VOCAB

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_COMMON},
    "qwen3": {"model_type": "qwen3", **_COMMON, "tie_word_embeddings": True},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **_COMMON,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "decoder_sparse_step": 1,
        "output_router_logits": True,
        "router_aux_loss_coef": 0.05,
        "experts_implementation": "eager",
    },
    "gemma3": {
        "model_type": "gemma3_text",
        **_COMMON,
        "query_pre_attn_scalar": 8,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def tiny_model(name: str, dtype: torch.dtype = torch.float64, seed: int = 0, **config: Any) -> CausalModel:
    """A tiny model with random weights, every norm and bias moved off its start so that no gradient is trivial."""
    place = ModelPlace(Path(), config={**CONFIGS[name], **config})
    per_document = isolates(load_config(place)) is None
    model = load_model(place, dtype, per_document=per_document, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return CausalModel(model, dtype, per_document, torch.device("cpu"))


class ExactRMSNorm(torch.nn.Module):
    """RMSNorm in the model's own dtype: transformers' rounds through fp32, in the backward too."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def with_exact_norms(model: CausalModel) -> CausalModel:
    """The model with its norms (Llama's and Qwen3's form) replaced by exact ones; others are left as they are."""
    for name, module in list(model.model.named_modules()):
        if hasattr(module, "variance_epsilon"):
            parent, _, child = name.rpartition(".")
            setattr(model.model.get_submodule(parent), child, ExactRMSNorm(module))
    return model


def gradients(model: CausalModel) -> dict[str, torch.Tensor]:
    """Every trained parameter's gradient, by name; 0 where it has none. The model's are cleared."""
    found = {}
    for name, parameter in model.trained().items():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        parameter.grad = None
    return found


def relative_error(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest relative difference (Frobenius norm) over all tensors; names must agree."""
    assert a.keys() == b.keys()
    errors = []
    for name, expected in b.items():
        scale = float(expected.norm())
        errors.append(float((a[name] - expected).norm()) / scale if scale > 0 else float(a[name].norm()))
    return max(errors)
