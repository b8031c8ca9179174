"""Invariant 1 for other architectures: each is trained rightly, packed or not, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from outlive.data.batch import make_batch
from outlive.modeling.causal import CausalModel
from outlive.modeling.loading import ModelPlace, isolates, load_config, load_model
from outlive.modeling.proof import prove_isolation
from outlive.run.errors import InputError
from tests.stores import VOCAB, planned, random_samples, write_store

_SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
PACKED: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gemma2": {**_SMALL, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "sliding_window": 8},
    "phi": {**_SMALL, "num_key_value_heads": 4},
    "cohere": {**_SMALL, "logit_scale": 0.25},
    "granite": {**_SMALL, "logits_scaling": 4.0, "attention_multiplier": 0.1, "embedding_multiplier": 3.0},
    "mixtral": {**_SMALL, "num_local_experts": 4},
    "gpt_oss": {**_SMALL, "num_local_experts": 4, "sliding_window": 8},
}
ALONE: dict[str, dict[str, Any]] = {
    "bloom": {"vocab_size": VOCAB, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "falcon": {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "stablelm": dict(_SMALL),
    "xglm": {"vocab_size": VOCAB, "d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4},
    "mamba": {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "recurrent_gemma": {**_SMALL, "logits_soft_cap": 2.0},
}


def fresh(name: str, config: dict[str, Any], per_document: bool | None = None) -> CausalModel:
    """A model as it begins: its attention says next to nothing, so that a leak is small."""
    place = ModelPlace(Path(), config={"model_type": name, **config})
    packed = isolates(load_config(place)) is None if per_document is None else per_document
    return CausalModel(
        load_model(place, torch.float32, per_document=packed), torch.float32, packed, torch.device("cpu")
    )


@pytest.fixture
def batch(tmp_path: Path) -> Any:
    store = write_store(tmp_path / "store", [[sample] for sample in random_samples((17, 30, 24, 12))])
    plan, mixture = planned(store, 96)
    return make_batch(plan, mixture, [0])


@pytest.mark.parametrize("name", PACKED)
def test_packed_and_proved(name: str, batch: Any) -> None:
    model = fresh(name, PACKED[name])
    assert model.per_document
    proof = prove_isolation(model, batch)
    assert proof.holds, proof


@pytest.mark.parametrize("name", ALONE)
def test_not_packed_and_proved(name: str, batch: Any) -> None:
    """Models whose attention is not behind transformers' interface, and recurrent ones, each document by itself."""
    model = fresh(name, ALONE[name])
    assert not model.per_document
    proof = prove_isolation(model, batch)
    assert proof.holds, proof


@pytest.mark.parametrize("name", ["bloom", "xglm"])
def test_a_fresh_model_hides_no_leak(name: str, batch: Any) -> None:
    """Packed, these see all documents and what comes later, by 1e-4 at first, which is far below a fixed tolerance."""
    proof = prove_isolation(fresh(name, ALONE[name], per_document=True), batch)
    assert proof.difference < 1e-3
    assert not proof.holds


def test_a_model_that_sees_what_comes_later_is_refused(batch: Any) -> None:
    config = {"vocab_size": VOCAB, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}
    assert not prove_isolation(fresh("xlnet", config), batch).holds


def test_one_document_is_proved_as_two_halves(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [[sample] for sample in random_samples((40,))])
    plan, mixture = planned(store, 64)
    proof = prove_isolation(fresh("gpt2", PACKED["gpt2"]), make_batch(plan, mixture, [0]))
    assert proof.num_documents == 2
    assert proof.holds


def test_bf16_is_proved_in_fp32_too_where_the_weights_have_it(batch: Any) -> None:
    """In bf16 rounding hides a fresh model's leak."""
    broken = fresh("bloom", ALONE["bloom"], per_document=True)
    broken = CausalModel(broken.model, torch.bfloat16, True, broken.device)
    assert not prove_isolation(broken, batch).holds


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "nothing"},
        {"model_type": "llama", "hidden_size": "x"},
        {"model_type": "llama", "hidden_act": "nothing"},
        {"model_type": "llama", "num_attention_heads": 3, "hidden_size": 32},
        {"model_type": "t5"},
    ],
)
def test_a_config_that_makes_no_model_is_refused(config: dict[str, Any]) -> None:
    small = {**_SMALL, **config} if config["model_type"] == "llama" else config
    with pytest.raises(InputError, match=r"model\.init\.config"):
        load_model(ModelPlace(Path(), config=small), torch.float32, per_document=True)
