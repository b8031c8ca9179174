"""Promise: a fine-tuned model becomes the adapter that takes its base to it: PEFT loads it and gives the model's logits
where the rank suffices; what no adapter of linear layers can hold is refused by name."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from outlive.checkpoint.adapters import check_bound, open_adapter
from outlive.checkpoint.adapters.to_peft import convert_to_peft
from outlive.cli.main import app
from outlive.run.errors import InputError
from tests.checkpoint.adapters.peft_models import Made, difference, logits, make, merge, tiny, write

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tuned(made: Made, folder: Path) -> Path:
    """The model that our merge makes of a base and an adapter."""
    found = merge(made)
    return write(folder, found.tensors, found.config)


def logits_with(base: Path, adapter: Path) -> np.ndarray[Any, Any]:
    """What PEFT makes of a base and an adapter, without a word about keys that it lacks or does not know."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")
        return logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval())


def save(folder: Path, model: Any, change: Any) -> Path:
    """A copy of a model with changed weights, saved by transformers."""
    with torch.no_grad():
        change(model)
    model.save_pretrained(folder)
    return folder


KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {}, {"target_modules": ALL}),
    "tied": ("qwen3", {"tie_word_embeddings": True}, {"target_modules": ALL}),
    "some layers": ("llama", {}, {"target_modules": ["model.layers.1.self_attn.q_proj", "lm_head"]}),
    "conv1d": ("gpt2", {}, {"target_modules": ["c_attn", "c_fc", "c_proj"], "fan_in_fan_out": True}),
}


@pytest.mark.parametrize("alpha", [None, 7.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lora_that_was_merged_is_found_again(kind: str, alpha: float | None, tmp_path: Path) -> None:
    model_type, sizes, options = KINDS[kind]
    made = make(tmp_path, tiny(model_type, **sizes), LoraConfig(r=4, lora_alpha=9, **options), unload=False)
    whole = tuned(made, tmp_path / "tuned")
    found = convert_to_peft(whole, tmp_path / "again", base=made.base, rank=4, alpha=alpha)
    assert difference(logits_with(made.base, tmp_path / "again"), made.wanted) < 1e-5
    assert min(found.kept.values()) > 1 - 1e-9
    assert found.kept.keys() == {path for path, _ in open_adapter(made.adapter).low_rank}
    again = merge(Made(made.base, tmp_path / "again", made.wanted, None, None))
    write(tmp_path / "merged", again.tensors, again.config)
    convert_to_peft(tmp_path / "merged", tmp_path / "third", base=made.base, rank=4, alpha=alpha)
    assert difference(logits_with(made.base, tmp_path / "third"), made.wanted) < 1e-5


def test_less_rank_keeps_the_largest_singular_values(tmp_path: Path) -> None:
    made = make(tmp_path, tiny("llama"), LoraConfig(r=6, target_modules=ALL), unload=False)
    whole = tuned(made, tmp_path / "tuned")
    found = convert_to_peft(whole, tmp_path / "again", base=made.base, rank=2)
    models = [AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (whole, made.base)]
    for path, share in found.kept.items():
        name = f"{path}.weight"
        values = torch.linalg.svdvals(models[0][name].double() - models[1][name].double()) ** 2
        assert share == pytest.approx(float(values[:2].sum() / values.sum()), abs=1e-6)
    worst = min(found.kept, key=lambda path: found.kept[path])
    assert found.left == []
    assert f"in {worst}, the worst of 14 layers" in found.notes[0]


def test_the_same_models_give_the_same_bytes(tmp_path: Path) -> None:
    made = make(tmp_path, tiny("llama"), LoraConfig(r=4, target_modules=ALL), unload=False)
    whole = tuned(made, tmp_path / "tuned")
    for name in ("one", "two"):
        convert_to_peft(whole, tmp_path / name, base=made.base, rank=3)
    one, two = ((tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    check_bound(tmp_path / "one", made.base)
    with pytest.raises(InputError, match="another base"):
        check_bound(tmp_path / "one", whole)


def test_what_is_no_linear_layer_is_refused_or_saved_whole(tmp_path: Path) -> None:
    model = tiny("qwen2")
    model.save_pretrained(tmp_path / "base")

    def change(model: Any) -> None:
        model.model.norm.weight.add_(0.5)
        model.model.embed_tokens.weight.add_(0.1)
        model.model.layers[0].self_attn.q_proj.bias.add_(1.0)
        model.model.layers[0].self_attn.q_proj.weight.add_(0.1)
        model.model.layers[1].mlp.up_proj.weight.add_(0.1)

    whole = save(tmp_path / "tuned", model, change)
    with pytest.raises(InputError, match=r"3 tensors that differ are no weights of linear layers: .*embed_tokens"):
        convert_to_peft(whole, tmp_path / "made", base=tmp_path / "base", rank=1)
    assert not (tmp_path / "made").exists()
    found = convert_to_peft(whole, tmp_path / "made", base=tmp_path / "base", rank=1, save_modules=True)
    assert list(found.kept) == ["model.layers.1.mlp.up_proj"]
    config = json.loads((tmp_path / "made" / "adapter_config.json").read_text())
    assert config["modules_to_save"] == ["model.embed_tokens", "model.layers.0.self_attn.q_proj", "model.norm"]
    assert difference(logits_with(tmp_path / "base", tmp_path / "made"), logits(model)) < 1e-5


@pytest.mark.parametrize("stays_tied", [True, False])
def test_embeddings_that_were_tied(stays_tied: bool, tmp_path: Path) -> None:
    model = tiny("llama", tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "base")

    def change(model: Any) -> None:
        if not stays_tied:
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight + 0.1)
            model.config.tie_word_embeddings = False
        model.model.embed_tokens.weight[3:9].add_(0.2)
        model.model.layers[1].mlp.up_proj.weight.add_(0.1)

    whole = save(tmp_path / "tuned", model, change)
    convert_to_peft(whole, tmp_path / "made", base=tmp_path / "base", rank=1, save_modules=True)
    assert difference(logits_with(tmp_path / "base", tmp_path / "made"), logits(model)) < 1e-5


def test_the_errors(tmp_path: Path) -> None:
    made = make(tmp_path, tiny("llama"), LoraConfig(r=4, target_modules=["q_proj"]), unload=False)
    whole, target = tuned(made, tmp_path / "tuned"), tmp_path / "made"
    tiny("llama", intermediate_size=96).save_pretrained(tmp_path / "other")
    tiny("llama", num_hidden_layers=3).save_pretrained(tmp_path / "deeper")
    tiny("qwen3_moe", num_experts=5, moe_intermediate_size=12).save_pretrained(tmp_path / "moe")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "no tensors of LoRA here"),
        ({"base": made.base}, "add --base BASE and --rank R"),
        ({"base": made.base, "rank": 25}, "has no rank 25"),
        ({"base": made.base, "rank": 0}, "the rank is 0"),
        ({"base": made.base, "rank": 4, "alpha": 0.0}, "alpha is 0"),
        ({"base": tmp_path / "other", "rank": 4}, "not one of this base: .* has the shape"),
        ({"base": tmp_path / "deeper", "rank": 4}, "not one of this base: 9 tensors"),
        ({"base": tmp_path / "moe", "rank": 4}, "the model is a llama and the base a qwen3_moe"),
        ({"base": made.adapter, "rank": 4}, "this is an adapter"),
        ({"base": whole, "rank": 4}, "no linear layer of the model differs"),
    ]
    for options, words in cases:
        with pytest.raises(InputError, match=words):
            convert_to_peft(whole, target, **options)
        assert not target.exists()
    with pytest.raises(InputError, match="exists already"):
        convert_to_peft(whole, made.base, base=made.base, rank=4)


def test_experts_are_refused(tmp_path: Path) -> None:
    model = tiny("qwen3_moe", num_experts=5, moe_intermediate_size=12)
    model.save_pretrained(tmp_path / "base")
    whole = save(tmp_path / "tuned", model, lambda model: model.model.layers[0].mlp.experts.down_proj.add_(0.1))
    with pytest.raises(InputError, match="5 tensors of experts differ"):
        convert_to_peft(whole, tmp_path / "made", base=tmp_path / "base", rank=2, save_modules=True)


def test_numbers_that_are_none(tmp_path: Path) -> None:
    model = tiny("llama")
    model.save_pretrained(tmp_path / "base")
    whole = save(tmp_path / "tuned", model, lambda model: model.lm_head.weight[0].fill_(float("nan")))
    with pytest.raises(InputError, match=r"lm_head\.weight holds NaN"):
        convert_to_peft(whole, tmp_path / "made", base=tmp_path / "base", rank=2)


def test_an_optimizer_beside_the_model_is_counted(tmp_path: Path) -> None:
    made = make(tmp_path, tiny("llama"), LoraConfig(r=2, target_modules=["q_proj"]), unload=False)
    weights = {name: torch.from_numpy(each.array().copy()) for name, each in merge(made).tensors.items()}
    state = {"state": {0: {"exp_avg": torch.ones(5)}}, "param_groups": [{"params": [0]}]}
    torch.save({"model": weights, "optimizer": state}, tmp_path / "state.pt")
    found = convert_to_peft(tmp_path / "state.pt", tmp_path / "again", base=made.base, rank=2)
    assert found.left == ["optimizer.state.0.exp_avg"]
    assert found.notes[0].startswith("1 tensors (20 bytes) are left out: peft has no place for 1 of an optimizer")
    assert difference(logits_with(made.base, tmp_path / "again"), made.wanted) < 1e-5


def test_the_verb(tmp_path: Path) -> None:
    made = make(tmp_path, tiny("llama"), LoraConfig(r=4, target_modules=ALL), unload=False)
    whole = tuned(made, tmp_path / "tuned")
    words = ["convert", str(whole), str(tmp_path / "made"), "--to", "peft", "--base", str(made.base), "--rank", "3"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    about = json.loads(done.stdout)
    assert about["to"] == "peft"
    assert len(about["kept"]) == 14
    assert about["worst"] == min(about["kept"], key=lambda path: about["kept"][path])
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
