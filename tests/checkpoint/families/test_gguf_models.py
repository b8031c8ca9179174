"""Promise: a GGUF file with the tensors of `to_gguf` is the same model for a reader that is not ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers

from outlive.checkpoint.families.table import family_of
from tests.checkpoint.families.folders import saved
from tests.checkpoint.families.test_families import config_of

CASES = ["llama", "llama tied", "qwen2", "qwen3", "qwen3-moe", "gemma2", "gemma3 text", "phi3"]


def keys_of(config: dict[str, Any], architecture: str) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": 64,
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config.get("head_dim", config["hidden_size"] // heads),
        "attention.value_length": config.get("head_dim", config["hidden_size"] // heads),
        "rope.dimension_count": config.get("head_dim", config["hidden_size"] // heads),
        "vocab_size": config["vocab_size"],
        "expert_count": config.get("num_local_experts"),
        "expert_used_count": config.get("num_experts_per_tok"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "attention.sliding_window": config.get("sliding_window"),
    }
    return {f"{architecture}.{key}": value for key, value in keys.items() if value is not None}


def written(path: Path, tensors: dict[str, Any], config: dict[str, Any]) -> None:
    architecture = family_of(config).architecture
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys_of(config, architecture).items():
        writer.add_uint32(key, value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor.array()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("case", CASES)
def test_transformers_reads_the_same_weights(tmp_path: Path, case: str) -> None:
    tensors, config = saved(tmp_path, config_of(case))
    written(tmp_path / "model.gguf", family_of(config).to_gguf(tensors, config), config)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", config=transformers.AutoConfig.from_pretrained(tmp_path), dtype=torch.float32
    )
    original = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    for name, tensor in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
