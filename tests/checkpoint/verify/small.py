"""One small model in every format that `verify` knows, each whole and with a manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.convert import convert
from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.huggingface import open_model
from outlive.checkpoint.manifest import write_manifest
from outlive.checkpoint.state import write_state
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FILES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
RANKS = [f"shard-{rank:05d}-model-00001-of-00001.safetensors" for rank in (1, 2)]
BINS = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
BIN_INDEX = "pytorch_model.bin.index.json"
SIZES = {
    "model_type": "llama", "hidden_size": 48, "intermediate_size": 101, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": False, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "hidden_act": "silu",
}  # fmt: skip
ADAPTER: dict[str, Any] = {
    "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"],
    "base_model_name_or_path": None, "task_type": "CAUSAL_LM", "modules_to_save": ["lm_head"],
}  # fmt: skip


def huggingface(folder: Path) -> Path:
    """One file."""
    tiny_tokenizer(folder)
    tokenizer = Tokenizer.load(folder)
    config = {
        **SIZES, "architectures": ["LlamaForCausalLM"], "vocab_size": tokenizer.vocab_size,
        "tie_word_embeddings": False, "dtype": "float32", "torch_dtype": "float32", "rope_theta": 5e5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "eos_token_id": tokenizer.eos_id,
    }  # fmt: skip
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.normal(size=shape).astype(np.float32) for name, shape in family_of(config).expected(config).items()
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_id}))
    save_file(tensors, folder / SINGLE, {"format": "pt"})
    write_manifest(folder)
    return folder


def sharded(folder: Path) -> Path:
    """Two files and an index."""
    tensors = load_file(huggingface(folder) / SINGLE)
    places = {name: FILES[number >= 3] for number, name in enumerate(sorted(tensors))}
    for file in FILES:
        save_file({name: one for name, one in tensors.items() if places[name] == file}, folder / file, {"format": "pt"})
    total = sum(tensor.nbytes for tensor in tensors.values())
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}))
    (folder / SINGLE).unlink()
    write_manifest(folder)
    return folder


def dcp(folder: Path) -> Path:
    """torch.distributed.checkpoint, by our writer."""
    convert(open_model(huggingface(folder.with_name("of"))), folder, "dcp")
    return folder


def gguf(folder: Path) -> Path:
    """A folder with model.gguf."""
    convert(open_model(huggingface(folder.with_name("of"))), folder, "gguf")
    return folder


def checkpoint(folder: Path) -> Path:
    """What outlive saves while it trains: model/ and state/."""
    tensors = load_file(huggingface(folder.with_name("of")) / SINGLE)
    moments = {f"optim.state.{name}.exp_avg": tensor * 0 for name, tensor in tensors.items()}
    with building_checkpoint(folder, {}) as building:
        write_state(building, tensors | moments, {"step": 3})
        for path in folder.with_name("of").iterdir():
            if path.name != "manifest.json":
                building.copy(f"model/{path.name}", path)
    return folder


def ranks(folder: Path) -> Path:
    """The safetensors variant of torch.distributed.checkpoint: the rows of each tensor on two ranks."""
    tensors = load_file(huggingface(folder) / SINGLE)
    for rank, name in enumerate(RANKS):
        begins, rows = {}, {}
        for tensor, whole in tensors.items():
            half = -(-len(whole) // 2)
            begins[tensor] = {"saved_offsets": [rank * half] + [0] * (whole.ndim - 1)}
            rows[tensor] = np.ascontiguousarray(whole[rank * half : (rank + 1) * half])
        about = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(begins)}
        save_file(rows, folder / name, about)
    (folder / SINGLE).unlink()
    write_manifest(folder)
    return folder


def adapter(folder: Path) -> Path:
    """LoRA of two modules and a head that was trained as a whole."""
    tiny_tokenizer(folder)
    rng = np.random.default_rng(1)
    shapes = {
        "model.layers.0.self_attn.q_proj.lora_A.weight": (4, 48),
        "model.layers.0.self_attn.q_proj.lora_B.weight": (48, 4),
        "model.layers.0.mlp.down_proj.lora_A.weight": (4, 101),
        "model.layers.0.mlp.down_proj.lora_B.weight": (48, 4),
        "lm_head.weight": (Tokenizer.load(folder).vocab_size, 48),
    }
    tensors = {f"base_model.model.{name}": rng.normal(size=size).astype(np.float32) for name, size in shapes.items()}
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    write_manifest(folder)
    return folder


def bins(folder: Path) -> Path:
    """pytorch_model.bin in two files, by torch."""
    import torch

    tensors = load_file(sharded(folder) / FILES[0]) | load_file(folder / FILES[1])
    places = {name: BINS[number >= 3] for number, name in enumerate(sorted(tensors))}
    for file in BINS:
        torch.save(
            {name: torch.from_numpy(one) for name, one in tensors.items() if places[name] == file}, folder / file
        )
    for name in (*FILES, INDEX, "manifest.json"):
        (folder / name).unlink()
    (folder / BIN_INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    write_manifest(folder)
    return folder


FORMATS: dict[str, Callable[[Path], Path]] = {
    "huggingface": huggingface, "sharded": sharded, "dcp": dcp, "dcp safetensors": ranks, "gguf": gguf,
    "checkpoint": checkpoint, "adapter": adapter, "bins": bins,
}  # fmt: skip
