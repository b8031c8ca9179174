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
from tests.checkpoint.families.folders import assert_equal, saved
from tests.checkpoint.formats.gguf_cases import BASE, CASES

# What transformers' own reader of GGUF has a table for, without scaled angles and caps, which it leaves out.
READ = ["llama plain", "mistral", "qwen2", "qwen3 plain", "qwen3_moe 768", "gemma2 256", "gemma3 256", "phi3"]
ONE_WAY = ["llama 3", "mistral llama 3"]  # factors don't tell of which context they are, but for the published 8,192
NOT_THE_MODEL = {  # keys of config.json that change no logits
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "chunk_size_feed_forward",
    "dtype", "embd_pdrop", "eos_token_id", "id2label", "initializer_range", "is_encoder_decoder", "label2id",
    "model_type",
    "num_mtp_layers", "num_nextn_predict_layers", "output_attentions", "output_hidden_states", "output_router_logits",
    "pad_token_id",
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


@pytest.mark.parametrize("case", [case for case in CASES if case not in ONE_WAY])
def test_there_and_back(tmp_path: Path, case: str) -> None:
    tensors, config = made(tmp_path, case)
    model = open_gguf(tmp_path / "gguf")
    found = config_of(model.metadata, model.tensors, "m.gguf")
    back = family_of(found).canonical(family_of(found).from_gguf(model.tensors, found), found)
    if case.startswith("qwen3.5"):  # log(exp(x)) is within a rounding
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
