"""Promise: an adapter that changes the embedding or the head of a tied model alone unties them, in the weights and in
the config; a reader that follows the config gets base + adapter. PEFT's own merge does not hold that: shown here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig

from tests.checkpoint.adapters.peft_models import difference, logits_of, make, merge, tiny


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
def test_a_module_trained_as_a_whole(module: str, tmp_path: Path) -> None:
    """modules_to_save with one of the two: the head is written, the config says that they differ. (So does PEFT's merge
    since it unties the config itself; its versions before that left it tied: peft#2777.)"""
    made = _made(tmp_path, target_modules=["q_proj"], modules_to_save=[module])
    result = merge(made)
    assert result.config["tie_word_embeddings"] is False
    assert "lm_head.weight" in result.tensors
    assert difference(logits_of(result, tmp_path / "merged"), made.wanted) < 1e-5


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
    print(f"both tied: ours {difference(ours, made.wanted):.1e}, PEFT {theirs:.1e}")
    assert difference(ours, made.wanted) < 1e-5
    assert result.config["tie_word_embeddings"] is True
    assert theirs > 1e-2  # PEFT is wrong: it adds the change twice to the weight that they share
