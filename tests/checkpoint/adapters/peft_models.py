"""Tiny models of odd sizes with random adapters, saved by PEFT itself, and the logits that PEFT gives them."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from outlive.checkpoint.adapters import Result, merged, open_adapter
from outlive.checkpoint.formats.huggingface import open_model
from outlive.checkpoint.tensors.tensor import Tensor

SIZES: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 24,
    "intermediate_size": 101,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MOE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "decoder_sparse_step": 1}
GPT2 = {
    "vocab_size": 257,
    "n_embd": 24,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TOKENS = torch.arange(1, 65).reshape(2, 32) * 4 % 257


def tiny(model_type: str, **changes: Any) -> Any:
    """A model in float32 with random weights, its norms and biases too."""
    torch.manual_seed(1)
    sizes = GPT2 if model_type == "gpt2" else SIZES
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **{**sizes, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def spread(model: Any) -> None:
    """Give every matrix singular values that fall by a fifth each."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                left, values, right = torch.linalg.svd(parameter.double(), full_matrices=False)
                values = values[0] * 0.8 ** torch.arange(len(values), dtype=torch.float64)
                parameter.copy_(left @ torch.diag(values) @ right)


def logits(model: Any) -> np.ndarray[Any, Any]:
    """[2, 32, vocabulary]"""
    with torch.no_grad():
        return model(TOKENS).logits.double().numpy()


@dataclass
class Made:
    """A base and an adapter on disk, and what PEFT makes of them."""

    base: Path
    adapter: Path
    wanted: np.ndarray[Any, Any]  # logits of base + adapter
    unloaded: Any  # the model that merge_and_unload returns
    unloaded_logits: np.ndarray[Any, Any] | None


def make(folder: Path, model: Any, config: LoraConfig, *, unload: bool = True, sharded: bool = False) -> Made:
    """Save a base and an adapter with random values everywhere; load both again as a user does."""
    base, adapter = folder / "base", folder / "adapter"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(base, max_shard_size="30KB" if sharded else "5GB")
        trained = get_peft_model(copy.deepcopy(model), config)
        torch.manual_seed(2)
        with torch.no_grad():
            for parameter in trained.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        trained.save_pretrained(adapter)
        loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
        wanted = logits(loaded)
        unloaded = loaded.merge_and_unload() if unload else None
    return Made(base, adapter, wanted, unloaded, logits(unloaded) if unload else None)


def merge(made: Made, **options: Any) -> Result:
    """The merge of what was made."""
    model = open_model(made.base)
    if "initial" in options:
        options["initial"] = open_adapter(options["initial"])
    return merged(model.tensors, open_adapter(made.adapter), model.config, **options)


def write(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Path:
    """A model folder of float32 tensors."""
    folder.mkdir()
    arrays = {name: np.ascontiguousarray(tensor.array()) for name, tensor in tensors.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def logits_of(result: Result, folder: Path) -> np.ndarray[Any, Any]:
    """What transformers makes of a merged model, with nothing missing and nothing left over."""
    write(folder, result.tensors, result.config)
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return logits(model.eval())


def difference(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The largest between two logits."""
    return float(np.abs(one - other).max())
