"""Promise: an adapter's tensors, wherever a training left them, become the folder that PEFT would have written, bit for
bit; what nothing says is asked for, and never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch.distributed.checkpoint import save as save_dcp
from transformers import AutoModelForCausalLM

from outlive.checkpoint.adapters.to_peft import convert_to_peft
from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.state import write_state
from outlive.modeling.names import canonical
from outlive.run.errors import InputError
from tests.checkpoint.adapters.peft_models import Made, logits, make, tiny

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("llama", {"r": 4, "lora_alpha": 9, "target_modules": ["q_proj", "up_proj"]}),
    "dora": ("llama", {"r": 3, "target_modules": ["q_proj"], "use_dora": True}),
    "patterns": ("llama", {"r": 4, "target_modules": ["q_proj", "up_proj"], "rank_pattern": {"up_proj": 2}}),
    "head saved": ("llama", {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "biases": ("qwen2", {"r": 3, "target_modules": ["q_proj"], "bias": "lora_only"}),
    "lora_bias": ("qwen2", {"r": 3, "target_modules": ["q_proj"], "lora_bias": True}),
    "tokens": ("llama", {"r": 3, "target_modules": ["q_proj"], "trainable_token_indices": [4, 9]}),
}


def trained(made: Made) -> Any:
    """The model with its adapter, as a training has it in memory."""
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(made.base), made.adapter, is_trainable=True)


def same(folder: Path, made: Made) -> None:
    """The folder's tensors are those that PEFT saved, and PEFT makes the same of them."""
    one, two = (load_file(each / "adapter_model.safetensors") for each in (folder, made.adapter))
    assert one.keys() == two.keys()
    for name, tensor in two.items():
        assert one[name].dtype == tensor.dtype
        assert torch.equal(one[name], tensor), name
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(made.base), folder).eval()
    assert np.array_equal(logits(loaded), made.wanted)


def make_kind(tmp_path: Path, kind: str) -> Made:
    model_type, options = KINDS[kind]
    return make(tmp_path, tiny(model_type), LoraConfig(task_type="CAUSAL_LM", **options), unload=False)


@pytest.mark.filterwarnings("ignore:torch.distributed is")
@pytest.mark.parametrize("form", ["whole.pt", "trained.pt", "module.pt", "dcp", "adapter_model.bin", "ours", "peft"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_from_anywhere_is_the_same(kind: str, form: str, tmp_path: Path) -> None:
    made = make_kind(tmp_path, kind)
    model = trained(made)
    parameters = {name: tensor.detach() for name, tensor in model.named_parameters() if tensor.requires_grad}
    source = tmp_path / "source" / form
    source.parent.mkdir()
    if form == "whole.pt":
        torch.save({"model": model.state_dict(), "step": 3}, source)
    elif form == "trained.pt":
        torch.save({"model": parameters, "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}}, source)
    elif form == "module.pt":
        torch.save({f"module.{name}": tensor for name, tensor in parameters.items()}, source)
    elif form == "dcp":
        state = {"optim": {"state": {"x": {"exp_avg": torch.ones(2, 2)}}}}
        save_dcp({"model": parameters, **state}, checkpoint_id=source, no_dist=True)
    elif form == "adapter_model.bin":
        torch.save(load_file(made.adapter / "adapter_model.safetensors"), source)
    elif form == "ours":
        moments = {"optimizer.state.lora_A.exp_avg": torch.ones(3)}
        with building_checkpoint(source, {}) as building:
            write_state(building, {canonical(name): tensor for name, tensor in parameters.items()} | moments, {})
    else:
        source = made.adapter
    if kind == "lora" and form in ("trained.pt", "dcp", "ours"):
        found = convert_to_peft(source, tmp_path / "made", like=made.adapter)
        assert [name.split(".")[0] in ("optim", "optimizer") for name in found.left] == [True]
        assert f"1 tensors ({found.left_bytes:,} bytes)" in found.notes[0]
        assert found.left_bytes in (8, 12, 16)
    else:
        convert_to_peft(source, tmp_path / "made", like=made.adapter)
    same(tmp_path / "made", made)


@pytest.mark.parametrize("kind", ["lora", "dora", "patterns", "head saved", "lora_bias"])
def test_shapes_and_names_say_all_but_alpha(kind: str, tmp_path: Path) -> None:
    made = make_kind(tmp_path, kind)
    parameters = {name: tensor for name, tensor in trained(made).named_parameters() if tensor.requires_grad}
    (tmp_path / "alone").mkdir()
    source = tmp_path / "alone" / "adapter.pt"
    torch.save(parameters, source)
    with pytest.raises(InputError, match="nothing says the adapter's alpha"):
        convert_to_peft(source, tmp_path / "made")
    with pytest.raises(InputError, match="and --rank is 7"):
        convert_to_peft(source, tmp_path / "made", alpha=9, rank=7)
    assert not (tmp_path / "made").exists()
    alpha = json.loads((made.adapter / "adapter_config.json").read_text())["lora_alpha"]
    convert_to_peft(source, tmp_path / "made", alpha=alpha)
    same(tmp_path / "made", made)


def test_the_config_beside_it_is_taken_and_not_contradicted(tmp_path: Path) -> None:
    made = make_kind(tmp_path, "lora")
    (made.adapter / "tokenizer.json").write_text("{}")
    (made.adapter / "chat_template.jinja").write_text("{{ messages }}")
    convert_to_peft(made.adapter, tmp_path / "made", rank=4, alpha=9)
    same(tmp_path / "made", made)
    assert (tmp_path / "made" / "chat_template.jinja").read_text() == "{{ messages }}"
    ours, theirs = (json.loads((one / "adapter_config.json").read_text()) for one in (tmp_path / "made", made.adapter))
    assert ours == theirs
    for options, words in (({"alpha": 8.0}, "--alpha is 8, and the config has lora_alpha 9"), ({"rank": 3}, "r 4")):
        with pytest.raises(InputError, match=words):
            convert_to_peft(made.adapter, tmp_path / "again", **options)
    half = load_file(tmp_path / "made" / "adapter_model.safetensors")
    convert_to_peft(made.adapter, tmp_path / "half", dtype="bf16")
    for name, tensor in load_file(tmp_path / "half" / "adapter_model.safetensors").items():
        assert torch.equal(tensor, half[name].bfloat16())


def test_a_base_is_compared_and_bound(tmp_path: Path) -> None:
    made = make_kind(tmp_path, "lora")
    convert_to_peft(made.adapter, tmp_path / "made", base=made.base)
    assert json.loads((tmp_path / "made" / "base.json").read_text())["model"] == str(made.base)
    tiny("llama", intermediate_size=96).save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="up_proj"):
        convert_to_peft(made.adapter, tmp_path / "no", base=tmp_path / "other")
    convert_to_peft(tmp_path / "made", tmp_path / "again")
    assert (tmp_path / "again" / "base.json").read_bytes() == (tmp_path / "made" / "base.json").read_bytes()


def test_what_nothing_explains_is_refused(tmp_path: Path) -> None:
    made = make_kind(tmp_path, "lora")
    tensors = {name: tensor for name, tensor in trained(made).named_parameters() if tensor.requires_grad}
    (tmp_path / "alone").mkdir()
    source = tmp_path / "alone" / "adapter.pt"

    def refused(change: dict[str, Any], words: str, **options: Any) -> None:
        torch.save({**tensors, **change}, source)
        with pytest.raises(InputError, match=words):
            convert_to_peft(source, tmp_path / "made", **{"alpha": 9, **options})
        assert not (tmp_path / "made").exists()

    norm = {"base_model.model.model.norm.weight": torch.ones(24)}
    refused(norm, r"1 tensors are neither LoRA's nor .*norm")
    refused(norm, "neither LoRA's", like=made.adapter, alpha=None)
    first = next(name for name in tensors if "lora_A" in name)
    refused({first: torch.full((4, 24), float("nan"))}, "NaN")
    refused({first: torch.zeros(0, 24)}, "sharded over the ranks")
    refused({first: torch.zeros(5, 24)}, "their ranks, 5 and 4, differ")
    refused({first.replace("default", "second"): tensors[first]}, "of 2 adapters: default, second")
    refused({"base_model.model.x.lora_C.weight": torch.ones(2, 2)}, "no kind that is known|neither")
    torch.save({**tensors, **norm}, source)
    convert_to_peft(source, tmp_path / "made", alpha=9, save_modules=True)
    assert json.loads((tmp_path / "made" / "adapter_config.json").read_text())["modules_to_save"] == ["model.norm"]


def test_get_peft_model_is_what_was_trained(tmp_path: Path) -> None:
    model = get_peft_model(tiny("llama"), LoraConfig(r=2, target_modules=["q_proj"]), adapter_name="mine")
    model.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    convert_to_peft(tmp_path / "state.pt", tmp_path / "made", like=tmp_path / "mine")
    one, two = (load_file(tmp_path / each / "adapter_model.safetensors") for each in ("mine", "made"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
