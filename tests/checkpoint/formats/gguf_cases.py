"""Tiny models of every family that is written as GGUF, with odd sizes and each way in which their angles are scaled."""

from __future__ import annotations

from typing import Any

from tests.checkpoint.families.folders import ODD

BASE: dict[str, Any] = {
    **ODD, "hidden_size": 40, "num_attention_heads": 4, "head_dim": 10, "num_hidden_layers": 4, "rms_norm_eps": 1e-6
}  # fmt: skip
MOE = {"num_experts": 3, "moe_intermediate_size": 13, "num_experts_per_tok": 2, "norm_topk_prob": True}
SCALE = {"query_pre_attn_scalar": 10, "sliding_window": 5}
LATENT = {
    "num_key_value_heads": 4, "head_dim": None, "first_k_dense_replace": 1, "kv_lora_rank": 10, "q_lora_rank": 11,
    "n_routed_experts": 6, "n_shared_experts": 2, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 7,
    "moe_intermediate_size": 13, "num_experts_per_tok": 2, "routed_scaling_factor": 1.5,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 5e4, "factor": 4.0, "original_max_position_embeddings": 16}
DEEP_YARN = {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.6, "short_factor": [1.0, 1.5, 2.25],
    "long_factor": [1.0, 4.0, 7.3], "original_max_position_embeddings": 16,
}  # fmt: skip
DELTA = {
    "num_hidden_layers": 5, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 7,
    "linear_value_head_dim": 7, "linear_conv_kernel_dim": 3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.6,
                        "mrope_section": [1, 1, 1], "mrope_interleaved": True},
}  # fmt: skip
GEMMA3_ROPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama plain": ("llama", {"head_dim": 14}),
    "llama": ("llama", {"attention_bias": True, "head_dim": 14}),
    "llama yarn": ("llama", {"rope_parameters": YARN}),
    "llama linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral wide": ("mistral", {"sliding_window": 64, "tie_word_embeddings": True}),
    "mixtral": ("mixtral", {"num_local_experts": 3, "num_experts_per_tok": 2}),
    "qwen2": ("qwen2", {"head_dim": None}),
    "qwen3": ("qwen3", {"rope_parameters": YARN}),
    "qwen3 plain": ("qwen3", {"head_dim": 128}),
    "qwen3_moe": ("qwen3_moe", MOE),
    "qwen3_moe 768": ("qwen3_moe", {**MOE, "moe_intermediate_size": 768}),
    "qwen3.5": ("qwen3_5_text", DELTA),
    "gemma2": ("gemma2", {**SCALE, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}),
    "gemma2 256": ("gemma2", {"head_dim": 256, "sliding_window": 5}),
    "gemma3 256": ("gemma3_text", {"head_dim": 256, "sliding_window": 5}),
    "gemma3": ("gemma3_text", {**SCALE, "num_hidden_layers": 7}),
    "gemma3 linear": (
        "gemma3_text",
        {**SCALE, "num_hidden_layers": 7, "rope_parameters": {
            **GEMMA3_ROPE, "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}},
    ),
    "phi3": ("phi3", {}),
    "phi3 long": ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 16}),
    "olmo2": ("olmo2", {}),
    "deepseek v2": ("deepseek_v2", {**LATENT, "rope_parameters": DEEP_YARN}),
    "deepseek v2 lite": ("deepseek_v2", {**LATENT, "q_lora_rank": None, "num_hidden_layers": 26}),
    "deepseek v3": ("deepseek_v3", {**LATENT, "n_group": 3, "topk_group": 2, "norm_topk_prob": False}),
    "deepseek v3, all groups": ("deepseek_v3", {**LATENT, "n_group": 2, "topk_group": 2}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3": ("llama", {"rope_parameters": LLAMA3}),
    "mistral llama 3": ("mistral", {"sliding_window": None, "rope_parameters": LLAMA3}),
    "mixtral yarn": (
        "mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 14, "rope_parameters": YARN}
    ),
    "qwen2 yarn": ("qwen2", {"head_dim": None, "rope_parameters": YARN}),
    "qwen2 linear, tied": ("qwen2", {"head_dim": None, "rope_parameters": LINEAR, "tie_word_embeddings": True}),
    "qwen3 linear": ("qwen3", {"rope_parameters": LINEAR}),
    "qwen3_moe yarn": ("qwen3_moe", {**MOE, "rope_parameters": YARN, "tie_word_embeddings": True}),
    "qwen3_moe linear": ("qwen3_moe", {**MOE, "rope_parameters": LINEAR}),
    "qwen3.5 every third": ("qwen3_5_text", {**DELTA, "full_attention_interval": 3, "linear_num_value_heads": 2}),
    "gemma2 linear": ("gemma2", {**SCALE, "rope_parameters": LINEAR}),
    "gemma2 46 layers": ("gemma2", {**SCALE, "head_dim": 14, "num_hidden_layers": 46}),
    "gemma3 62 layers": ("gemma3_text", {**SCALE, "head_dim": 14, "num_hidden_layers": 62}),
    "gemma3 untied": ("gemma3_text", {**SCALE, "num_hidden_layers": 7, "tie_word_embeddings": False}),
    "phi3 tied": ("phi3", {"tie_word_embeddings": True}),
    "olmo2 yarn": ("olmo2", {"rope_parameters": YARN, "num_key_value_heads": 1}),
    "olmo2 linear": ("olmo2", {"rope_parameters": LINEAR}),
    "deepseek v2 dense": ("deepseek_v2", {**LATENT, "first_k_dense_replace": 4, "tie_word_embeddings": True}),
    "deepseek v3 yarn": ("deepseek_v3", {**LATENT, "n_group": 2, "topk_group": 1, "rope_parameters": DEEP_YARN}),
    "deepseek v3 lite": (
        "deepseek_v3", {
            **LATENT, "q_lora_rank": None, "num_hidden_layers": 27, "first_k_dense_replace": 0, "n_group": 1,
            "topk_group": 1,
        }
    ),
}  # fmt: skip
