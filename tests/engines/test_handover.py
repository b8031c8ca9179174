"""The merged model, and what rounding to the export's dtype does to a training: told, with losses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from outlive.checkpoint.manifest import verify_manifest
from outlive.engines.native.handover import Rounding
from outlive.run.errors import InputError
from tests.engines.resuming import Verb
from tests.engines.test_loop import tiny_folder


@pytest.fixture
def verb(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return Verb(tmp_path, tiny_folder(tmp_path / "model", "llama"), rows)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_merged_model_is_base_and_adapter(verb: Verb, dtype: str) -> None:
    result = verb.train("adapter.rank=4", "optimizer.lr=1e-2", "export.merged=true", f"export.dtype={dtype}")
    checkpoint = verb.folder.checkpoint(8)
    verify_manifest(checkpoint)
    assert [step for step in verb.steps() if (verb.folder.checkpoint(step) / "model").exists()] == [8]
    assert result.output == checkpoint / "model"
    base = AutoModelForCausalLM.from_pretrained(verb.model, dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        plain = base(ids).logits
        adapted = PeftModel.from_pretrained(base, str(checkpoint / "adapter"))(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(checkpoint / "model", dtype=torch.float32)(ids).logits
    assert (adapted - plain).abs().max() > 1e-2
    assert torch.allclose(merged, adapted, atol=1e-5 if dtype == "fp32" else 2e-2)


def test_a_training_that_bf16_rounds_away_is_told(verb: Verb) -> None:
    """The base is in bf16, as models are. At a learning rate of 2e-6 its weights move by less than half the distance to
    the next bf16 number."""
    AutoModelForCausalLM.from_pretrained(verb.model, dtype=torch.bfloat16).save_pretrained(verb.model)
    verb.train("optimizer.lr=2e-6", "optimizer.warmup=0", "optimizer.schedule=constant")
    (event,) = verb.events("rounding")
    assert event["changed_before"] > 0.6  # rows of the embedding that no token reached stay
    assert event["changed_after"] < 0.5 * event["changed_before"]
    assert event["loss_before"] is not None
    assert event["loss_after"] is not None
    assert "takes back" in verb.said
    assert "export.dtype=fp32" in verb.said
    verb.train("optimizer.lr=1e-2", "name=moves")
    assert "takes back" not in verb.said


def test_an_fp32_export_rounds_nothing(verb: Verb) -> None:
    verb.train("export.dtype=fp32")
    assert verb.events("rounding") == []


def test_what_counts_as_lost() -> None:
    assert Rounding("bf16", 1.0, 0.1, None, None).loses(None)
    assert not Rounding("bf16", 1.0, 0.95, None, None).loses(None)
    assert Rounding("bf16", 1.0, 0.5, 2.656, 2.968).loses(0.4)
    assert not Rounding("bf16", 1.0, 0.5, 2.656, 2.660).loses(0.4)


def test_merging_needs_an_adapter(verb: Verb) -> None:
    with pytest.raises(InputError, match=r"no adapter to merge"):
        verb.train("export.merged=true")
