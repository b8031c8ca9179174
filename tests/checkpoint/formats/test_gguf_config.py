"""Promise: a GGUF header becomes the config that it came from, and what can't be told rightly is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.formats.gguf_config import ARCHITECTURES, config_kv, config_of
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

TENSORS: dict[str, Tensor] = {"token_embd.weight": Given(np.zeros((257, 48), np.float32))}


def config_for(model_type: str) -> dict[str, Any]:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoConfig.for_model(
        model_type,
        vocab_size=257,
        hidden_size=48,
        intermediate_size=101,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=8 if model_type == "qwen2" else 16,  # which has none
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 12345.0},
        tie_word_embeddings=True,
    ).to_dict()


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_there_and_back(model_type: str) -> None:
    config = config_for(model_type)
    kv = config_kv(config, "config.json")
    assert next(iter(kv)) == "general.architecture"
    through_float32 = {
        key: float(np.float32(value)) if isinstance(value, float) else value for key, value in kv.items()
    }
    found = config_of(through_float32, TENSORS, "m.gguf")
    same = set(config) & set(found) - {"architectures", "dtype"}
    assert len(same) >= 13
    assert {key: found[key] for key in same} == {key: config[key] for key in same}
    assert found["rope_theta"] == 12345.0  # which transformers 4 reads
    assert found["architectures"] == [ARCHITECTURES[model_type]]
    untied = config_of(kv, {**TENSORS, "output.weight": TENSORS["token_embd.weight"]}, "m.gguf")
    assert untied["tie_word_embeddings"] is False


BAD_KV: dict[str, dict[str, Any]] = {
    "architecture": {"general.architecture": "gemma"},
    "an array": {"general.architecture": np.arange(3)},
    "scaling": {"llama.rope.scaling.type": "yarn"},
    "experts": {"llama.expert_count": 8},
    "zero": {"llama.attention.head_count": 0},
    "heads of each layer": {"llama.attention.head_count": np.arange(3)},
    "nan": {"llama.rope.freq_base": float("nan")},
    "widths": {"llama.rope.dimension_count": 8},
    "widths of arrays": {"llama.attention.key_length": np.arange(3)},
}


@pytest.mark.parametrize("what", BAD_KV)
def test_headers_that_are_refused(what: str) -> None:
    kv = config_kv(config_for("llama"), "config.json")
    with pytest.raises(InputError):
        config_of(kv | BAD_KV[what], TENSORS, "m.gguf")


def test_tensors_that_say_more_are_refused() -> None:
    kv = config_kv(config_for("llama"), "config.json")
    for tensors in ({}, {**TENSORS, "rope_freqs.weight": TENSORS["token_embd.weight"]}):
        with pytest.raises(InputError):
            config_of(kv, tensors, "m.gguf")


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "gemma"},
        {"rope_parameters": {"rope_type": "yarn"}},
        {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 0}},
        {"rope_parameters": [1]},
        {"hidden_size": "48"},
        {"num_attention_heads": 0},
        {"rms_norm_eps": None},
    ],
)
def test_configs_that_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        config_kv(config_for("llama") | changes, "config.json")


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
GEMMA = {"query_pre_attn_scalar": 16, "sliding_window": 32}
LATENT = {
    "num_key_value_heads": 6, "first_k_dense_replace": 1, "kv_lora_rank": 10, "q_lora_rank": 12,
    "n_routed_experts": 4, "n_shared_experts": 1, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 7,
    "moe_intermediate_size": 13, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "rms_norm_eps": 1e-6,
}  # fmt: skip
PLAIN: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "mixtral": {},
    "qwen2": {"head_dim": None},
    "qwen3": {},
    "qwen3_moe": MOE,
    "gemma2": {**GEMMA, "tie_word_embeddings": True},
    "gemma3_text": {**GEMMA, "rope_theta": 1e6},
    "phi3": {"head_dim": None},
    "olmo2": {"head_dim": None},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "qwen3_5_text": {
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "head_dim": 16, "rms_norm_eps": 1e-6,
        "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
    },
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LOST = [
    ("mistral", "sliding_window", 32),
    ("mixtral", "sliding_window", 32),
    ("phi3", "sliding_window", 32),
    ("qwen2", "head_dim", 16),
    ("qwen2", "layer_types", ["full_attention", "sliding_attention"]),
    ("qwen2", "use_sliding_window", True),
    ("qwen3", "attention_bias", True),
    ("qwen3", "hidden_act", "gelu"),
    ("qwen3_moe", "norm_topk_prob", False),
    ("qwen3_moe", "norm_topk_prob", None),
    ("qwen3_moe", "mlp_only_layers", [1]),
    ("qwen3_moe", "decoder_sparse_step", 2),
    ("gemma2", "query_pre_attn_scalar", 256),
    ("gemma2", "attn_logit_softcapping", None),
    ("gemma2", "sliding_window", None),
    ("gemma2", "layer_types", ["full_attention", "full_attention"]),
    ("gemma2", "use_bidirectional_attention", True),
    ("gemma3_text", "final_logit_softcapping", 30.0),
    ("gemma3_text", "sliding_window_pattern", 2),
    ("gemma3_text", "rope_local_base_freq", 5e4),
    ("gemma3_text", "query_pre_attn_scalar", 168),
    ("olmo2", "tie_word_embeddings", True),
    ("olmo2", "head_dim", 16),
    ("deepseek_v2", "topk_method", "group_limited_greedy"),
    ("deepseek_v2", "norm_topk_prob", True),
    ("deepseek_v3", "scoring_func", "softmax"),
    ("deepseek_v3", "rope_interleave", False),
    ("deepseek_v3", "q_lora_rank", None),
    ("deepseek_v3", "num_key_value_heads", 3),
    ("deepseek_v3", "n_group", 4),
    ("deepseek_v2", "rms_norm_eps", 1e-5),
    ("deepseek_v3", "rms_norm_eps", 1e-5),
    ("qwen3_5_text", "rms_norm_eps", 1e-5),
    ("qwen3_5_text", "linear_value_head_dim", 16),
    ("qwen3_5_text", "layer_types", ["full_attention"] * 3),
    ("qwen3_5_text", "layer_types", ["linear_attention"] * 3),
    ("qwen3_5_text", "layer_types", ["linear_attention", "full_attention", "full_attention"]),
]
LOST_ROPE = [
    ("mistral", "attention_factor", 1.5),
    ("mistral", "beta_fast", 16),
    ("qwen3", "mscale", 0.7),
    ("qwen3", "truncate", False),
    ("qwen2", "factor", None),
    ("qwen2", "original_max_position_embeddings", None),
    ("olmo2", "partial_rotary_factor", 0.5),
    ("deepseek_v3", "mscale", 0.5),
    ("deepseek_v3", "mscale_all_dim", None),
    ("gemma2", "rope_type", "yarn"),
    ("phi3", "rope_type", "linear"),
    ("qwen3", "rope_type", "llama3"),
    ("qwen3", "rope_type", "dynamic"),
]


def plain(model_type: str) -> dict[str, Any]:
    sizes = {
        "model_type": model_type, "vocab_size": 257, "hidden_size": 48, "intermediate_size": 101,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": False,
    }  # fmt: skip
    return {**sizes, **PLAIN[model_type]}


@pytest.mark.parametrize(("model_type", "key", "value"), LOST)
def test_what_would_be_lost_is_refused_by_name(model_type: str, key: str, value: Any) -> None:
    config = plain(model_type)
    config_kv(config, "config.json")
    with pytest.raises(InputError, match=key) as caught:
        config_kv({**config, key: value}, "config.json")
    assert caught.value.fix


@pytest.mark.parametrize(("model_type", "key", "value"), LOST_ROPE)
def test_scaled_angles_that_would_be_lost_are_refused_by_name(model_type: str, key: str, value: Any) -> None:
    config = plain(model_type)
    both = {"mscale": 1.0, "mscale_all_dim": 1.0} if model_type.startswith("deepseek") else {}
    rope = {"rope_theta": 1e4} if model_type in ("gemma2", "phi3", "olmo2") else {**YARN, **both}
    config_kv({**config, "rope_parameters": rope}, "config.json")
    with pytest.raises(InputError, match=key):
        config_kv({**config, "rope_parameters": {**rope, key: value}}, "config.json")


def test_a_window_that_is_not_said_is_that_of_transformers() -> None:
    config = {key: value for key, value in plain("mistral").items() if key != "sliding_window"}
    config_kv(config, "config.json")  # 4096, and the context ends before
    with pytest.raises(InputError, match="sliding_window is 4096"):
        config_kv({**config, "max_position_embeddings": 8192}, "config.json")


BAD_OWN: list[tuple[str, str, Any]] = [
    ("mixtral", "llama.expert_used_count", None),
    ("gemma2", "gemma2.attn_logit_softcapping", None),
    ("gemma3_text", "gemma3.rope.freq_base_swa", 5e4),
    ("qwen3_moe", "qwen3moe.expert_weights_scale", 2.0),
    ("deepseek_v2", "deepseek2.expert_group_count", None),
    ("deepseek_v2", "deepseek2.expert_weights_norm", True),
    ("deepseek_v3", "deepseek2.expert_group_count", None),
    ("deepseek_v3", "deepseek2.attention.key_length", 3),
    ("deepseek_v3", "deepseek2.attention.key_length_mla", 4),
    ("deepseek_v3", "deepseek2.attention.temperature_scale", 0.1),
    ("olmo2", "olmo2.attention.sliding_window", 4096),
    ("qwen3_5_text", "qwen35.ssm.inner_size", 3),
    ("qwen3_5_text", "qwen35.rope.dimension_sections", np.array([1, 1, 1, 1])),
    ("qwen3_5_text", "qwen35.nextn_predict_layers", 1),
]


@pytest.mark.parametrize(("model_type", "key", "value"), BAD_OWN)
def test_values_that_no_config_can_say_are_refused_by_name(model_type: str, key: str, value: Any) -> None:
    kv = config_kv(plain(model_type), "config.json")
    config_of(kv, TENSORS, "m.gguf")
    changed = {name: one for name, one in {**kv, key: value}.items() if one is not None}
    with pytest.raises(InputError, match=key.split(".", 1)[1]):
        config_of(changed, TENSORS, "m.gguf")


def test_an_old_file_of_deepseek() -> None:
    """Before 2025-04: keys and values decompressed, and no keys for what they are with the latent."""
    kv = config_kv(plain("deepseek_v3"), "config.json")
    old = {key: value for key, value in kv.items() if "_mla" not in key}
    old |= {"deepseek2.attention.key_length": 10, "deepseek2.attention.value_length": 7}
    old |= {"deepseek2.attention.head_count_kv": 6}
    assert config_of(old, TENSORS, "m.gguf") == config_of(kv, TENSORS, "m.gguf")
