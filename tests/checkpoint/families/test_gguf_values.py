"""Promise: what GGUF stores in another order or form is what its readers expect, by their own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from outlive.checkpoint.families import rope
from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError
from tests.checkpoint.families.folders import ODD, saved

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def llama(**changes: Any) -> Any:
    return transformers.LlamaConfig(**{**ODD, **changes}, architectures=["LlamaForCausalLM"])


@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_llamas_queries_and_keys_are_what_transformers_undoes(tmp_path: Path, kind: str) -> None:
    tensors, config = saved(tmp_path, llama(attention_bias=True))
    in_gguf = family_of(config).to_gguf(tensors, config)
    undo = LlamaTensorProcessor(config)
    for short in ("q", "k"):
        name = f"blk.1.attn_{short}.{kind}"
        given = in_gguf[name].array()
        original = tensors[f"model.layers.1.self_attn.{short}_proj.{kind}"].array()
        assert not np.array_equal(given, original)
        assert np.array_equal(undo.process(given, name).weights, original)


def test_llama3s_factors_are_those_of_transformers(tmp_path: Path) -> None:
    config = llama(rope_parameters=LLAMA3, head_dim=64)
    plain = 1.0 / 500000.0 ** (torch.arange(0, 64, 2) / 64)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    tensors, on_disk = saved(tmp_path, config)
    family = family_of(on_disk)
    in_gguf = family.to_gguf(tensors, on_disk)
    factors = in_gguf["rope_freqs.weight"].array()
    assert factors.dtype == np.float32
    assert 1.0 in factors
    assert 8.0 in factors
    np.testing.assert_allclose(factors, (plain / scaled).numpy(), rtol=1e-5)
    assert "rope_freqs.weight" not in family.from_gguf(in_gguf, on_disk)


def test_factors_that_the_config_does_not_give_are_refused() -> None:
    config = llama().to_dict()
    with pytest.raises(InputError, match="rope_freqs"):
        family_of(config).from_gguf({"rope_freqs.weight": Given(np.ones(5, np.float32))}, config)


def test_llama3s_scaling_is_found_again_from_its_factors() -> None:
    config = llama(rope_parameters=LLAMA3, head_dim=64).to_dict()
    factors = rope.factors("llama", config)["rope_freqs.weight"]
    plain = {**config, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    found = rope.llama3_scaling(factors, plain)
    assert found == {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    assert rope.llama3_scaling(Given(factors.array() * np.float32(1.01)), plain) is None
    assert rope.llama3_scaling(Given(factors.array() * np.float32(np.nan)), plain) is None


def test_a_tensor_that_gguf_has_no_place_for_is_named(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, llama())
    tensors["model.layers.0.extra.weight"] = tensors["model.norm.weight"]
    with pytest.raises(InputError, match=r"model\.layers\.0\.extra\.weight"):
        family_of(config).to_gguf(tensors, config)
    with pytest.raises(InputError, match=r"blk\.0\.extra"):
        family_of(config).from_gguf({"blk.0.extra.weight": tensors["model.norm.weight"]}, config)
