"""Tiny models of every family, with odd sizes, as transformers writes and names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given

ODD: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 36,
    "intermediate_size": 101,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def saved(folder: Path, config: Any, original: bool = True, seed: int = 0) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A model of a config with no trivial weight, saved by transformers: the tensors on disk, and config.json."""
    import torch
    import transformers

    model = getattr(transformers, config.architectures[0])(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.state_dict().values():  # 12 bits: sums with 1 are exact
            tensor.copy_(torch.randint(-2048, 2048, tensor.shape, generator=generator) / 2048)
    model.save_pretrained(folder, save_original_format=original)
    return opened(folder), json.loads((folder / "config.json").read_text())


def opened(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            found.update({name: Given(file.get_tensor(name)) for name in file.keys()})  # noqa: SIM118
    return found


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Same names, dtypes, shapes and bits."""
    assert sorted(one) == sorted(other)
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype, name
        assert tensor.shape == other[name].shape, name
        assert np.array_equal(tensor.array(), other[name].array()), name
