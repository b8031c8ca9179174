"""Promise: experts are merged alike however base and adapter lay them out: fused or each by itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from peft import LoraConfig
from safetensors.numpy import load_file, save_file

from outlive.checkpoint.adapters import merged, open_adapter
from outlive.checkpoint.formats.huggingface import open_model
from tests.checkpoint.adapters.peft_models import MOE, difference, logits_of, make, merge, tiny

BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def _config(rank: int = 3) -> LoraConfig:
    return LoraConfig(task_type="CAUSAL_LM", r=rank, target_modules=[], target_parameters=BOTH)


def test_a_fused_base(tmp_path: Path) -> None:
    """A base saved in the layout of memory (save_original_format=False) keeps it, and gives the same logits."""
    model = tiny("qwen3_moe", **MOE)
    made = make(tmp_path, model, _config())
    model.save_pretrained(tmp_path / "fused", save_original_format=False)
    base = open_model(tmp_path / "fused")
    assert base.tensors["model.layers.0.mlp.experts.gate_up_proj"].shape == (5, 24, 24)
    result = merged(base.tensors, open_adapter(made.adapter), base.config)
    assert result.tensors.keys() == base.tensors.keys()
    assert difference(logits_of(result, tmp_path / "merged"), made.wanted) < 1e-5


@pytest.mark.parametrize("fused", [True, False])
def test_an_adapter_with_a_part_for_each_expert(fused: bool, tmp_path: Path) -> None:
    """Adapters of transformers 4 have A and B for each expert's gate, up and down: what PEFT turns into parts of fused
    experts as it loads them."""
    model = tiny("qwen3_moe", **MOE)
    made = make(tmp_path, model, _config(), unload=False)
    old = tmp_path / "old"
    old.mkdir()
    tensors, generator = {}, np.random.default_rng(3)
    for layer in range(2):
        for expert in range(5):
            for leaf, (out, width) in {"gate_proj": (12, 24), "up_proj": (12, 24), "down_proj": (24, 12)}.items():
                name = f"base_model.model.model.layers.{layer}.mlp.experts.{expert}.{leaf}"
                tensors[f"{name}.lora_A.weight"] = generator.normal(size=(3, width)).astype(np.float32)
                tensors[f"{name}.lora_B.weight"] = generator.normal(size=(out, 3)).astype(np.float32)
    save_file(tensors, old / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["gate_proj", "up_proj", "down_proj"]}
    (old / "adapter_config.json").write_text(json.dumps(config))
    model.save_pretrained(tmp_path / "in", save_original_format=not fused)
    base = open_model(tmp_path / "in")
    result = merged(base.tensors, open_adapter(old), base.config)
    assert result.tensors.keys() == base.tensors.keys()
    plain = open_model(made.base).tensors
    for name in ("gate_proj", "up_proj", "down_proj"):
        path = f"model.layers.1.mlp.experts.4.{name}"
        a, b = (tensors[f"base_model.model.{path}.lora_{each}.weight"] for each in "AB")
        wanted = plain[f"{path}.weight"].array() + 2 * b @ a
        if fused:
            both = result.tensors["model.layers.1.mlp.experts.gate_up_proj"].array()[4]
            down = result.tensors["model.layers.1.mlp.experts.down_proj"].array()[4]
            found = {"gate_proj": both[:12], "up_proj": both[12:], "down_proj": down}[name]
        else:
            found = result.tensors[f"{path}.weight"].array()
        assert found == pytest.approx(wanted, abs=1e-5)


def test_blocks_of_other_trainers(tmp_path: Path) -> None:
    """B laid out expert by expert is not what PEFT reads: with the option it is, without it the result differs."""
    made = make(tmp_path, tiny("qwen3_moe", **MOE), _config())
    file = made.adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    for name, tensor in tensors.items():
        if name.endswith("lora_B.weight"):
            out = len(tensor)
            tensors[name] = np.ascontiguousarray(tensor.reshape(out, -1, 5).transpose(0, 2, 1).reshape(out, -1))
    save_file(tensors, file)
    assert difference(logits_of(merge(made, blockwise_experts=True), tmp_path / "blocks"), made.wanted) < 1e-5
    assert difference(logits_of(merge(made), tmp_path / "interleaved"), made.wanted) > 1e-3
