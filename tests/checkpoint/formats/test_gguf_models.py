"""Promise: every family with a GGUF header goes there and back as the same model, and a reader that is not ours
computes the same logits from the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("torch")
pytest.importorskip("gguf")

import torch
import transformers
from gguf import MODEL_ARCH_NAMES
from gguf.constants import Keys
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.gguf import open_gguf
from outlive.checkpoint.formats.gguf_config import config_kv, config_of
from outlive.checkpoint.formats.gguf_layouts import LAYOUTS
from outlive.checkpoint.formats.gguf_write import write_gguf
from outlive.checkpoint.spellings import both_spellings
from tests.checkpoint.families.folders import ODD, assert_equal, saved

BASE = {**ODD, "hidden_size": 40, "num_attention_heads": 4, "head_dim": 10, "num_hidden_layers": 4}
MOE = {"num_experts": 3, "moe_intermediate_size": 13, "num_experts_per_tok": 2, "norm_topk_prob": True}
SCALE = {"query_pre_attn_scalar": 10, "sliding_window": 5}
LATENT = {
    "num_key_value_heads": 4, "head_dim": None, "first_k_dense_replace": 1, "kv_lora_rank": 10, "q_lora_rank": 11,
    "n_routed_experts": 6, "n_shared_experts": 2, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 7,
    "moe_intermediate_size": 13, "num_experts_per_tok": 2, "routed_scaling_factor": 1.5,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 5e4, "factor": 4.0, "original_max_position_embeddings": 16}
DEEP_YARN = {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1}
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
        {**SCALE, "rope_parameters": {
            **GEMMA3_ROPE, "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}},
    ),
    "phi3": ("phi3", {}),
    "phi3 long": ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 16}),
    "olmo2": ("olmo2", {}),
    "deepseek v2": ("deepseek_v2", {**LATENT, "rope_parameters": DEEP_YARN}),
    "deepseek v2 lite": ("deepseek_v2", {**LATENT, "q_lora_rank": None, "num_hidden_layers": 26}),
    "deepseek v3": ("deepseek_v3", {**LATENT, "n_group": 3, "topk_group": 2, "norm_topk_prob": False}),
    "deepseek v3, all groups": ("deepseek_v3", {**LATENT, "n_group": 2, "topk_group": 2}),
}  # fmt: skip
# What transformers' own reader of GGUF has a table for, without scaled angles and caps, which it leaves out.
READ = ["llama plain", "mistral", "qwen2", "qwen3 plain", "qwen3_moe 768", "gemma2 256", "gemma3 256", "phi3"]
NOT_THE_MODEL = {  # keys of config.json that change no logits
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "chunk_size_feed_forward",
    "dtype", "embd_pdrop", "eos_token_id", "id2label", "initializer_range", "is_encoder_decoder", "label2id",
    "model_type", "num_mtp_layers", "num_nextn_predict_layers", "output_attentions", "output_hidden_states",
    "output_router_logits", "pad_token_id",
    "pretraining_tp", "problem_type", "resid_pdrop", "return_dict", "router_aux_loss_coef", "router_jitter_noise",
    "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip


def made(path: Path, case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A tiny model of a case in `path`, and as model.gguf there; its tensors and config."""
    model_type, changes = CASES[case]
    values = {key: value for key, value in {**BASE, **changes}.items() if (key, value) != ("head_dim", None)}
    config = transformers.AutoConfig.for_model(model_type, **values, architectures=[LAYOUTS[model_type].name])
    tensors, config = saved(path, config)
    kv = {**config_kv(both_spellings(config), "config.json"), "tokenizer.ggml.padding_token_id": 0}
    with building_checkpoint(path / "gguf", {"made_by": "test"}) as building:
        write_gguf(building, "model.gguf", family_of(config).to_gguf(tensors, config), kv)
    return tensors, config


def logits(model: Any) -> Any:
    model.set_experts_implementation("eager")  # the fused one wants rows of a multiple of 16 bytes
    tokens = torch.arange(1, 25)[None] * 7 % 257
    with torch.no_grad():
        return model.eval()(tokens).logits


def loaded(path: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(tmp_path: Path, case: str) -> None:
    tensors, config = made(tmp_path, case)
    model = open_gguf(tmp_path / "gguf")
    found = config_of(model.metadata, model.tensors, "m.gguf")
    back = family_of(found).canonical(family_of(found).from_gguf(model.tensors, found), found)
    if case == "qwen3.5":  # log(exp(x)) is within a rounding
        for name in [name for name in tensors if name.endswith("A_log")]:
            assert np.allclose(tensors.pop(name).array(), back.pop(name).array(), rtol=1e-6, atol=1e-6)
    assert_equal(tensors, back)
    # Equal meaning: transformers builds the same function of either config.
    (tmp_path / "config.json").write_text(json.dumps(config))
    original = loaded(tmp_path)
    again = type(transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**found)))
    theirs = again(transformers.AutoConfig.for_model(**found)).float()
    theirs.load_state_dict(original.state_dict())
    assert torch.equal(logits(theirs), logits(original))
    assert found["max_position_embeddings"] == config["max_position_embeddings"]


@pytest.mark.parametrize("case", READ)
def test_transformers_reads_the_file(tmp_path: Path, case: str) -> None:
    made(tmp_path, case)
    read = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "gguf", gguf_file="model.gguf", dtype=torch.float32
    )
    assert (logits(read) - logits(loaded(tmp_path))).abs().max() < 1e-5


@pytest.mark.parametrize("model_type", LAYOUTS)
def test_names_are_those_of_gguf_and_of_transformers(tmp_path: Path, model_type: str) -> None:
    case = next(case for case in CASES if CASES[case][0] == model_type)
    made(tmp_path, case)
    kv = open_gguf(tmp_path / "gguf").metadata
    architecture = kv["general.architecture"]
    assert architecture in MODEL_ARCH_NAMES.values()
    known = {
        value
        for part in (Keys.LLM, Keys.Attention, Keys.Rope, Keys.SSM)
        for value in vars(part).values()
        if isinstance(value, str)
    }
    own = {key for key in kv if key.startswith(architecture + ".")}
    assert {key.replace(architecture, "{arch}", 1) for key in own} <= known
    table = GGUF_CONFIG_MAPPING.get("qwen3_moe" if model_type == "qwen3_moe" else architecture, {})
    config = json.loads((tmp_path / "config.json").read_text())
    config = both_spellings({**config, "num_experts": config.get("num_local_experts", config.get("num_experts"))})
    for key, name in table.items():
        value = kv.get(f"{architecture}.{key}")
        if name is not None and value is not None and config.get(name) is not None:
            assert config[name] == pytest.approx(value), key


@pytest.mark.parametrize("model_type", LAYOUTS)
def test_every_key_of_the_config_is_looked_at(monkeypatch: pytest.MonkeyPatch, model_type: str) -> None:
    """A key that transformers has for a family, and that is neither said nor refused, would be lost unseen."""
    from outlive.checkpoint.formats import gguf_config

    seen: set[str] = set()

    class Watched(gguf_config.Fields):
        def get(self, key: str, default: Any = None) -> Any:
            seen.add(key)
            return super().get(key, default)

    monkeypatch.setattr(gguf_config, "Fields", Watched)
    case = next(case for case in CASES if CASES[case][0] == model_type)
    config = transformers.AutoConfig.for_model(model_type, **{**BASE, **CASES[case][1]}).to_dict()
    config_kv(both_spellings(config), "config.json")
    said = {"tie_word_embeddings", "attention_bias", "mlp_bias", "qk_head_dim"}  # by tensors, by other keys
    if "use_sliding_window" in seen:  # without it these say nothing
        said |= {"sliding_window", "max_window_layers"}
    if config.get("topk_method") == "greedy":
        said |= {"n_group", "topk_group"}
    assert {key for key in config if not key.startswith("_")} - seen - NOT_THE_MODEL - said == set()
