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
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 12345.0},
        tie_word_embeddings=True,
    ).to_dict()


@pytest.mark.parametrize("model_type", ARCHITECTURES)
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
        {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2}},
        {"rope_parameters": [1]},
        {"use_sliding_window": True},
        {"hidden_size": "48"},
        {"num_attention_heads": 0},
        {"rms_norm_eps": None},
    ],
)
def test_configs_that_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        config_kv(config_for("llama") | changes, "config.json")
