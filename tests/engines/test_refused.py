"""What can't be trained rightly is refused before the first step, or stops the run, by name; nothing is saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from outlive.checkpoint.write import save
from outlive.engines.native.build import build
from outlive.engines.native.loop import train
from outlive.learn.adapters import add_adapter
from outlive.run.config import Adapter
from outlive.run.errors import InputError, WorkError
from tests.engines.test_loop import ready_for, tiny_folder
from tests.fixtures import tiny_tokenizer
from tests.tiny import tiny_model


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return tiny_folder(tmp_path / "model", "llama")


def _change_weights(model: Path, name: str, change: object) -> None:
    weights = load_file(model / "model.safetensors")
    weights[name] = change(weights[name]) if callable(change) else weights[name]
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


def test_a_loss_that_is_no_number_stops_the_run(model: Path, rows: Path) -> None:
    ready = ready_for(model, rows, "optimizer.lr=1e30", "optimizer.clip=null", "precision=fp32", "stop.steps=9")
    with pytest.raises(WorkError, match=r"step \d: the (loss|gradient) is (nan|inf)"):
        train(build(ready), lambda record: None)


def test_weights_that_are_no_numbers_are_refused(model: Path, rows: Path) -> None:
    _change_weights(model, "model.norm.weight", lambda tensor: tensor * float("nan"))
    with pytest.raises(InputError, match="no numbers"):
        build(ready_for(model, rows))


def test_missing_weights_are_refused(model: Path, rows: Path) -> None:
    weights = load_file(model / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"layers\.1\.mlp\.up_proj"):
        build(ready_for(model, rows))


def test_tokens_that_the_model_lacks_are_refused(model: Path, rows: Path) -> None:
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        _change_weights(model, name, lambda tensor: tensor[:100].clone())
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    with pytest.raises(InputError, match="embeddings for 100 tokens only"):
        build(ready_for(model, rows))


def test_a_weight_that_overflows_its_export_is_not_saved(tmp_path: Path) -> None:
    model, tokenizer = tiny_model("llama", torch.float32), tiny_tokenizer(tmp_path / "tokenizer")
    with torch.no_grad():
        model.model.lm_head.weight[0, 0] = 1e6  # more than fp16 holds
    with pytest.raises(WorkError, match=r"lm_head\.weight holds NaN or infinity as float16"):
        save(model, tmp_path / "out", tokenizer=tokenizer, dtype="fp16")
    assert not (tmp_path / "out").exists()
    save(model, tmp_path / "out", tokenizer=tokenizer, dtype="fp32")


def test_dropout_on_fused_experts_is_refused(tmp_path: Path) -> None:
    """PEFT puts none there; what it says of that names none of our keys."""
    model = AutoModelForCausalLM.from_pretrained(tiny_folder(tmp_path / "moe", "qwen3_moe"))
    with pytest.raises(InputError, match="no dropout") as error:
        add_adapter(model, Adapter(rank=4, dropout=0.1), 0)
    assert "adapter.targets" in str(error.value.fix)
