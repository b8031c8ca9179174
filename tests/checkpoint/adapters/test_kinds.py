"""Promise: the merged model's logits are those of base + adapter, within 1e-5 in float32, for every kind of adapter;
and they are those of PEFT's own merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig

from tests.checkpoint.adapters.peft_models import MOE, difference, logits, logits_of, make, merge, spread, tiny

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
Q: dict[str, Any] = {"r": 3, "target_modules": ["q_proj"]}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "lora": ("llama", {}, {"r": 5, "lora_alpha": 9, "target_modules": ALL}),
    "rslora": ("llama", {}, {"r": 5, "lora_alpha": 3, "target_modules": ALL, "use_rslora": True}),
    "dora": ("llama", {}, {"r": 3, "target_modules": ALL, "use_dora": True}),
    "dora and rslora": ("qwen2", {}, {"r": 3, "target_modules": ALL, "use_dora": True, "use_rslora": True}),
    "patterns": (
        "llama", {},
        {
            "r": 4, "lora_alpha": 7, "target_modules": ALL,
            "rank_pattern": {"q_proj": 2, r"layers\.1\.mlp\..*": 6, "^model.layers.0.self_attn.k_proj": 3},
            "alpha_pattern": {"self_attn.q_proj": 11, r".*\.(up|down)_proj": 5},
        },
    ),
    "fan_in_fan_out": ("gpt2", {}, {"r": 3, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    "fan_in_fan_out dora": (
        "gpt2", {}, {"r": 3, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "use_dora": True},
    ),
    "lora_bias": ("qwen2", {}, {"r": 3, "target_modules": ["q_proj", "k_proj"], "lora_bias": True}),
    "trained biases": ("qwen2", {}, {"r": 3, "target_modules": ["q_proj", "k_proj"], "bias": "lora_only"}),
    "all biases": ("qwen2", {}, {"r": 3, "target_modules": ["q_proj"], "bias": "all"}),
    "modules_to_save": ("llama", {}, {**Q, "modules_to_save": ["lm_head", "embed_tokens"]}),
    "norms saved": ("llama", {}, {**Q, "modules_to_save": ["input_layernorm", "norm"]}),
    "embeddings": ("llama", {}, {"r": 3, "target_modules": ["embed_tokens", "lm_head", "q_proj"]}),
    "embeddings dora": ("llama", {}, {"r": 3, "target_modules": ["embed_tokens"], "use_dora": True}),
    "token indices": ("llama", {}, {"r": 3, "target_modules": ["q_proj"], "trainable_token_indices": [4, 200, 9]}),
    "token indices of two": (
        "llama", {},
        {**Q, "trainable_token_indices": {"embed_tokens": [4, 12], "lm_head": [0, 256]}},
    ),
    "tied, all linear": ("qwen3", {"tie_word_embeddings": True}, {"r": 3, "target_modules": ALL}),
    "tied token indices": (
        "llama", {"tie_word_embeddings": True}, {**Q, "trainable_token_indices": [4, 12]},
    ),
    "tied and kept so": (
        "llama", {"tie_word_embeddings": True},
        {"r": 3, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    ),
    "experts": (
        "qwen3_moe", MOE,
        {**Q, "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
    ),
    "some experts and the router": (
        "qwen3_moe", MOE,
        {"r": 2, "target_modules": [], "target_parameters": ["mlp.experts.down_proj", "mlp.gate.weight"],
         "rank_pattern": {"mlp.experts.down_proj": 4}, "use_rslora": True},
    ),
    "experts by their old names": ("qwen3_moe", MOE, {"r": 3, "target_modules": ["gate_proj", "up_proj", "down_proj"]}),
    "experts of mixtral": (
        "mixtral", {"num_local_experts": 5, "intermediate_size": 12},
        {"r": 3, "target_modules": ["q_proj"],
         "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"]},
    ),
    "experts stored transposed": (
        "gpt_oss", {"num_local_experts": 5, "intermediate_size": 24},
        {**Q, "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
    ),
    "pissa": ("llama", {}, {"r": 5, "lora_alpha": 9, "target_modules": ALL, "init_lora_weights": "pissa"}),
    "olora": ("llama", {}, {"r": 5, "lora_alpha": 9, "target_modules": ALL, "init_lora_weights": "olora"}),
    "pissa, stored transposed": (
        "gpt2", {},
        {"r": 3, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "init_lora_weights": "pissa"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_merged_is_base_and_adapter(kind: str, tmp_path: Path) -> None:
    model_type, changes, options = KINDS[kind]
    options = {"task_type": "CAUSAL_LM", **options}
    model = tiny(model_type, **changes)
    if "pissa" in kind:
        spread(model)  # PEFT takes the singular parts in float32: of close ones it would mix up some
    made = make(tmp_path, model, LoraConfig(**options), sharded=kind == "lora")
    assert difference(logits(model), made.wanted) > 1e-3
    result = merge(made)
    ours = logits_of(result, tmp_path / "merged")
    print(f"{kind}: ours {difference(ours, made.wanted):.1e}, PEFT {difference(made.unloaded_logits, made.wanted):.1e}")
    assert difference(ours, made.wanted) < 1e-5
    assert difference(made.unloaded_logits, made.wanted) < 2e-5  # what PEFT says of itself
