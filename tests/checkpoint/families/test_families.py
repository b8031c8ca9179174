"""Promise: each family's table is what transformers writes to disk, and every layout leads back to it bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from gguf import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES, get_tensor_name_map

from outlive.checkpoint.families.table import FAMILIES, family_of
from outlive.run.errors import InputError
from tests.checkpoint.families.folders import ODD, assert_equal, saved

MOE = {"num_experts": 3, "moe_intermediate_size": 13, "num_experts_per_tok": 2}
DELTA = {
    "num_hidden_layers": 5,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 5,
    "linear_value_head_dim": 7,
    "linear_conv_kernel_dim": 3,
}
QWEN_VISION = {
    "depth": 2,
    "hidden_size": 24,
    "intermediate_size": 31,
    "num_heads": 2,
    "out_hidden_size": 36,
    "patch_size": 7,
    "num_position_embeddings": 16,
}
SIGLIP = {
    "hidden_size": 24,
    "intermediate_size": 31,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
LATENT = {
    "num_key_value_heads": None,
    "head_dim": None,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 9,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "moe_intermediate_size": 13,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "llama tied": ("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama biased": ("LlamaConfig", "LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {}),
    "mistral tied": ("MistralConfig", "MistralForCausalLM", {"tie_word_embeddings": True}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 3}),
    "mixtral tied": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 5, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {"num_key_value_heads": 3}),
    "qwen2 tied": ("Qwen2Config", "Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {}),
    "qwen3 tied": ("Qwen3Config", "Qwen3ForCausalLM", {"tie_word_embeddings": True}),
    "qwen3 biased": ("Qwen3Config", "Qwen3ForCausalLM", {"attention_bias": True}),
    "qwen3-moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**MOE}),
    "qwen3-moe tied": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**MOE, "tie_word_embeddings": True}),
    "qwen3-moe with dense layers": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**MOE, "decoder_sparse_step": 2}),
    "qwen3-moe with a dense layer": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**MOE, "mlp_only_layers": [1]}),
    "qwen3.5 text": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", {**DELTA}),
    "qwen3.5 text tied": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", {**DELTA, "tie_word_embeddings": True}),
    "qwen3.5 text biased": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", {**DELTA, "attention_bias": True}),
    "qwen3.5": ("Qwen3_5Config", "Qwen3_5ForConditionalGeneration", {"vision_config": QWEN_VISION, **DELTA}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {}),
    "gemma2 untied": ("Gemma2Config", "Gemma2ForCausalLM", {"tie_word_embeddings": False}),
    "gemma3 text": ("Gemma3TextConfig", "Gemma3ForCausalLM", {}),
    "gemma3 text untied": ("Gemma3TextConfig", "Gemma3ForCausalLM", {"tie_word_embeddings": False}),
    "gemma3 text biased": ("Gemma3TextConfig", "Gemma3ForCausalLM", {"attention_bias": True}),
    "gemma3": ("Gemma3Config", "Gemma3ForConditionalGeneration", {"vision_config": SIGLIP}),
    "gemma3 no vision head": (
        "Gemma3Config",
        "Gemma3ForConditionalGeneration",
        {"vision_config": {**SIGLIP, "vision_use_head": False}},
    ),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {}),
    "phi3 tied": ("Phi3Config", "Phi3ForCausalLM", {"tie_word_embeddings": True}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", {}),
    "olmo2 tied": ("Olmo2Config", "Olmo2ForCausalLM", {"tie_word_embeddings": True}),
    "olmo2 biased": ("Olmo2Config", "Olmo2ForCausalLM", {"attention_bias": True}),
    "deepseek-v2": ("DeepseekV2Config", "DeepseekV2ForCausalLM", {**LATENT, "q_lora_rank": 11}),
    "deepseek-v2 lite": ("DeepseekV2Config", "DeepseekV2ForCausalLM", {**LATENT, "q_lora_rank": None}),
    "deepseek-v2 biased": (
        "DeepseekV2Config",
        "DeepseekV2ForCausalLM",
        {**LATENT, "q_lora_rank": 11, "mlp_bias": True, "attention_bias": True},
    ),
    "deepseek-v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM", {**LATENT, "q_lora_rank": 11}),
    "deepseek-v3 tied": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {**LATENT, "q_lora_rank": None, "tie_word_embeddings": True},
    ),
}
NOT_IN_GGUF = {
    "qwen3 biased": "bias",
    "qwen3-moe with dense layers": r"layers\.0\.mlp",
    "qwen3-moe with a dense layer": r"layers\.1\.mlp",
    "qwen3.5 text biased": "bias",
    "qwen3.5": "visual",
    "gemma2 untied": "lm_head",
    "gemma3 text biased": "bias",
    "gemma3": "vision_tower|multi_modal",
    "gemma3 no vision head": "vision_tower|multi_modal",
    "olmo2 biased": "bias",
    "deepseek-v2 biased": "bias",
}
RENAMED = {  # as llama.cpp's converter renames them first
    "model.layers.1.linear_attn.dt_bias": "model.layers.1.linear_attn.dt_proj.bias",
    "model.layers.1.mlp.gate.e_score_correction_bias": "model.layers.1.mlp.gate.e_score_correction.bias",
}


def config_of(case: str) -> Any:
    name, architecture, changes = CASES[case]
    values = {key: value for key, value in {**ODD, **changes}.items() if key != "vision_config"}
    if "vision_config" in changes:
        text = getattr(transformers, name.replace("Config", "TextConfig"))(**values)
        values = {"text_config": text.to_dict(), "vision_config": changes["vision_config"]}
    return getattr(transformers, name)(**values, architectures=[architecture])


@pytest.mark.parametrize("case", CASES)
def test_the_table_is_what_is_on_disk(tmp_path: Path, case: str) -> None:
    tensors, config = saved(tmp_path, config_of(case))
    expected = family_of(config).expected(config)
    assert expected == {name: tensor.shape for name, tensor in tensors.items()}


@pytest.mark.parametrize("case", CASES)
def test_what_modules_hold_becomes_canonical(tmp_path: Path, case: str) -> None:
    on_disk, config = saved(tmp_path / "original", config_of(case))
    modules, _ = saved(tmp_path / "modules", config_of(case), original=False)
    family = family_of(config)
    canonical = family.canonical(modules, config)
    assert {name: tensor.shape for name, tensor in canonical.items()} == family.expected(config)
    assert_equal(family.fused(canonical, config), modules)
    assert_equal(family.canonical(family.fused(on_disk, config), config), on_disk)
    assert_equal(family.canonical(on_disk, config), on_disk)


@pytest.mark.parametrize("case", CASES)
def test_gguf_and_back(tmp_path: Path, case: str) -> None:
    tensors, config = saved(tmp_path, config_of(case))
    family = family_of(config)
    if case in NOT_IN_GGUF:
        with pytest.raises(InputError, match=NOT_IN_GGUF[case]):
            family.to_gguf(tensors, config)
        lost = family.not_in_gguf(tensors, config)
        tensors = {name: tensor for name, tensor in tensors.items() if name not in lost}
    back = family.from_gguf(family.to_gguf(tensors, config), config)
    for name in [name for name in tensors if name.endswith(".A_log")]:  # an exponential there
        np.testing.assert_allclose(back.pop(name).array(), tensors.pop(name).array(), atol=1e-6)
    assert_equal(back, tensors)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_gguf_names_are_those_of_its_package(family: Any) -> None:
    if not family.architecture:
        return
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == family.architecture)
    names = get_tensor_name_map(architecture, 3)
    allowed = {TENSOR_NAMES[tensor].format(bid=1) for tensor in MODEL_TENSORS[architecture]}
    for row in family.rows:
        if row.gguf:
            assert row.gguf.replace("{layer}", "1").removesuffix(".weight").removesuffix(".bias") in allowed, row
            plain = row.name.replace("{layer}", "1").replace(".{expert}", "")
            plain = plain.replace("language_model.model", "model").replace("model.language_model", "model")
            plain = plain.removeprefix("language_model.")
            plain = RENAMED.get(plain, plain)
            assert names.get_name(plain, (".weight", ".bias")) == row.gguf.replace("{layer}", "1"), row


def test_an_unknown_type_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="llama") as caught:
        family_of({"model_type": "no_such_model"})
    assert "docs/" in str(caught.value)
    with pytest.raises(InputError):
        family_of({})
