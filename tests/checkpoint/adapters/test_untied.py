"""Promise: an adapter that changes the embedding or the head of a tied model alone unties them, in the weights and in
the config; a reader that follows the config gets base + adapter. PEFT's own merge does not hold that: shown here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig
from transformers import AutoModelForCausalLM

from outlive.checkpoint.formats.huggingface import open_model
from tests.checkpoint.adapters.peft_models import difference, logits, logits_of, make, merge, tiny, write


def _made(tmp_path: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=7, **options)
        return make(tmp_path, tiny("llama", tie_word_embeddings=True), config)


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_peft_adds_the_change_of_one_to_both(module: str, tmp_path: Path) -> None:
    """LoRA on one of the two: PEFT adds it to the weight that they share, so that its merge is another function."""
    made = _made(tmp_path, target_modules=[module, "q_proj"])
    result = merge(made)
    assert result.config["tie_word_embeddings"] is False
    assert any("differ now" in note for note in result.notes)
    ours = logits_of(result, tmp_path / "merged")
    print(
        f"{module}: ours {difference(ours, made.wanted):.1e}, PEFT {difference(made.unloaded_logits, made.wanted):.1e}"
    )
    assert difference(ours, made.wanted) < 1e-5
    assert difference(made.unloaded_logits, made.wanted) > 1e-2  # PEFT is wrong


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_peft_leaves_the_config_tied(module: str, tmp_path: Path) -> None:
    """A module trained as a whole: PEFT's merged config stays tied, and a reader that follows it loses the head."""
    made = _made(tmp_path, target_modules=["q_proj"], modules_to_save=[module])
    result = merge(made)
    assert result.config["tie_word_embeddings"] is False
    assert "lm_head.weight" in result.tensors
    assert difference(logits_of(result, tmp_path / "merged"), made.wanted) < 1e-5
    made.unloaded.save_pretrained(tmp_path / "theirs")
    theirs = open_model(tmp_path / "theirs")
    assert theirs.config["tie_word_embeddings"] is True  # PEFT is wrong
    followed = {name: tensor for name, tensor in theirs.tensors.items() if name != "lm_head.weight"}
    write(tmp_path / "followed", followed, theirs.config)
    read = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "followed").eval())
    assert difference(read, made.wanted) > 1e-2


def test_equal_changes_keep_them_tied(tmp_path: Path) -> None:
    """What PEFT keeps tied while it trains stays tied: one tensor, and the config as it was."""
    made = _made(tmp_path, target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)
    result = merge(made)
    assert "lm_head.weight" not in result.tensors
    assert result.config["tie_word_embeddings"] is True


def test_one_adapter_for_both(tmp_path: Path) -> None:
    """ensure_weight_tying with LoRA on both: the same change in both, once."""
    made = _made(tmp_path, target_modules=["embed_tokens", "lm_head"], ensure_weight_tying=True)
    result = merge(made)
    ours = logits_of(result, tmp_path / "merged")
    theirs = difference(made.unloaded_logits, made.wanted)
    print(f"both tied: ours {difference(ours, made.wanted):.1e}, PEFT {theirs:.1e}, {result.notes}")
    assert difference(ours, made.wanted) < 1e-5
