"""Promise: adapters whose start changed the base are merged into the published base, by what the start was, or by the
adapter as it began; and a start that can't be known is refused with what to do."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from outlive.checkpoint.adapters import initial, merged, open_adapter
from outlive.checkpoint.adapters.initial import _principal
from outlive.checkpoint.formats.huggingface import open_model
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError
from tests.checkpoint.adapters.peft_models import difference, logits, logits_of, tiny

ALL = ["q_proj", "v_proj", "up_proj", "down_proj"]


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_4", "olora"])
def test_by_the_adapter_as_it_began(start: str, tmp_path: Path) -> None:
    """W + scale·(B·A - B₀·A₀), as PEFT's own conversion to plain LoRA has it, from the two adapters."""
    model = tiny("llama")
    model.save_pretrained(tmp_path / "base")
    config = LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=7, target_modules=ALL, init_lora_weights=start)
    trained = get_peft_model(copy.deepcopy(model), config)
    trained.peft_config["default"].init_lora_weights = True  # as PEFT's guide has it, to save the start
    trained.save_pretrained(tmp_path / "first")
    trained.peft_config["default"].init_lora_weights = start
    with torch.no_grad():
        for parameter in trained.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    wanted = logits(trained.eval())
    trained.save_pretrained(tmp_path / "last")
    trained.save_pretrained(tmp_path / "plain", path_initial_model_for_weight_conversion=str(tmp_path / "first"))
    base = open_model(tmp_path / "base")
    for name, options in {"last": {"initial": open_adapter(tmp_path / "first")}, "plain": {}}.items():
        result = merged(base.tensors, open_adapter(tmp_path / name), base.config, **options)
        ours = logits_of(result, tmp_path / f"merged-{name}")
        print(f"{start}, {name}: ours {difference(ours, wanted):.1e}")
        assert difference(ours, wanted) < 1e-5


def test_the_principal_part_is_that_of_a_decomposition() -> None:
    """left · right is the truncated singular value decomposition, of wide and of tall matrices."""
    for shape in ((31, 57), (57, 31)):
        matrix = np.random.default_rng(0).normal(size=shape)
        left, right = _principal(Given(matrix), 4)
        u, s, v = np.linalg.svd(matrix)
        assert np.abs(left @ right - u[:, :4] * s[:4] @ v[:4]).max() < 1e-10


@pytest.mark.parametrize("start", ["pissa_niter_4", "corda", "loftq", "lora_ga", "something new"])
def test_starts_that_nobody_can_know(start: str, tmp_path: Path) -> None:
    model = tiny("llama")
    model.save_pretrained(tmp_path / "base")
    get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=3, target_modules=ALL)).save_pretrained(tmp_path / "a")
    config = json.loads((tmp_path / "a/adapter_config.json").read_text())
    (tmp_path / "a/adapter_config.json").write_text(json.dumps({**config, "init_lora_weights": start}))
    base = open_model(tmp_path / "base")
    with pytest.raises(InputError, match="changes the base") as caught:
        merged(base.tensors, open_adapter(tmp_path / "a"), base.config)
    assert start in caught.value.what
    assert "--initial" in str(caught.value.fix)


def _started(tmp_path: Path, change: Callable[[Any], None]) -> Any:
    model = tiny("llama")
    change(model)
    model.save_pretrained(tmp_path / "base")
    config = LoraConfig(task_type="CAUSAL_LM", r=3, target_modules=["q_proj"], init_lora_weights="pissa")
    get_peft_model(model, config).save_pretrained(tmp_path / "a")
    base = open_model(tmp_path / "base")
    result = merged(base.tensors, open_adapter(tmp_path / "a"), base.config)
    return result.tensors["model.layers.0.self_attn.q_proj.weight"].array()


def test_singular_values_that_do_not_tell_what_was_taken(tmp_path: Path) -> None:
    """A matrix whose singular values are all alike: which three of them PiSSA took is anybody's guess."""

    def alike(model: Any) -> None:
        with torch.no_grad():
            model.model.layers[0].self_attn.q_proj.weight.copy_(torch.eye(24))

    with pytest.raises(InputError, match="can't be told") as caught:
        _started(tmp_path, alike)
    assert "--initial" in str(caught.value.fix)


def test_memory_that_does_not_suffice_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "available_memory", lambda: 32 * 24 * 24 - 1)
    with pytest.raises(InputError, match="GB of memory") as caught:
        _started(tmp_path, lambda model: None)
    assert "--initial" in str(caught.value.fix)
