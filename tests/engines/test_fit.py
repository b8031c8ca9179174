"""Promise: a model that the data does not fit is refused before the first step, and broken numbers are not saved."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch

from outlive.checkpoint.write import save
from outlive.engines.native.build import build, get_ready
from outlive.engines.native.loop import train
from outlive.modeling.causal import load
from outlive.run.config import Run
from outlive.run.errors import InputError, WorkError
from outlive.run.metrics import Record
from tests.engines.test_loop import ready_for, tiny_folder
from tests.fixtures import tiny_tokenizer
from tests.modeling.test_architectures import PACKED


@pytest.fixture
def model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return tiny_folder(tmp_path / "model", "llama")


def _fresh(folder: Path, rows: Path, **config: object) -> Run:
    tiny_tokenizer(folder)
    init = {"config": config, "tokenizer": str(folder)}
    data = {"train": [{"path": str(rows)}], "validation": None, "sequence_length": 256}
    return Run.model_validate({"model": {"init": init}, "data": data, "precision": "fp32"})


def test_tokens_without_an_embedding_are_refused(model_folder: Path, rows: Path) -> None:
    run = _fresh(model_folder, rows, model_type="gpt2", **{**PACKED["gpt2"], "vocab_size": 100, "n_positions": 256})
    with pytest.raises(InputError, match="embeddings for 100 tokens only"):
        build(get_ready(run))


def test_positions_without_a_row_are_refused(model_folder: Path, rows: Path) -> None:
    run = _fresh(model_folder, rows, model_type="gpt2", **{**PACKED["gpt2"], "vocab_size": 512, "n_positions": 20})
    with pytest.raises(InputError, match="made for up to 20"):
        build(get_ready(run))


def test_an_adapter_beside_fresh_weights_is_refused(model_folder: Path, rows: Path) -> None:
    values = _fresh(model_folder, rows, model_type="llama").model_dump()
    with pytest.raises(ValueError, match="fresh weights"):
        Run.model_validate({"model": values["model"], "data": {"train": [{"path": "x"}]}, "adapter": {}})


def test_broken_weights_are_named_before_training(model_folder: Path, rows: Path) -> None:
    with pytest.raises(InputError, match="no numbers"):
        build(ready_for(model_folder, rows, "precision=fp32", "adapter.rank=2", "adapter.alpha=1e300"))


def test_a_loss_that_is_no_number_ends_the_run(model_folder: Path, rows: Path) -> None:
    settings = ["precision=fp32", "optimizer.lr=1e9", "optimizer.warmup=0", "stop.steps=9"]
    training = build(ready_for(model_folder, rows, *settings))
    records: list[Record] = []
    with pytest.raises(WorkError, match="5 steps in a row changed no weights") as error:
        train(training, records.append)
    assert f"step {records[-1].step}" in str(error.value)
    assert [record.skipped is None for record in records[-6:]] == [True, *[False] * 5]


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_weights_that_are_no_numbers_are_not_saved(model_folder: Path, tmp_path: Path, dtype: str) -> None:
    """1e6 is a number in bf16, and infinite in fp16."""
    model = load(str(model_folder), precision="fp32")
    with torch.no_grad():
        model.model.model.norm.weight[0] = 1e6
    if dtype == "bf16":
        save(model, tmp_path / "out", tokenizer=model_folder, dtype="bf16")
        return
    with pytest.raises(WorkError, match=r"model\.norm\.weight holds NaN or infinity as float16"):
        save(model, tmp_path / "out", tokenizer=model_folder, dtype="fp16")
    assert not list(tmp_path.glob("*out*"))


def test_a_full_disk_is_an_error_of_the_work(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(str(model_folder), precision="fp32")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WorkError, match="No space left"):
        save(model, tmp_path / "out", tokenizer=model_folder)
    assert not list(tmp_path.glob("*out*"))


def test_a_checkpoint_has_its_tokenizer_or_is_not_saved(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="tokenizer is not there"):
        save(load(str(model_folder), precision="fp32"), tmp_path / "out", tokenizer=tmp_path / "gone")


def test_steps_alone_need_no_plan_of_every_pass(model_folder: Path, rows: Path) -> None:
    ready = ready_for(model_folder, rows, "stop.steps=1000000000000")
    assert ready.source.num_steps() == 10**12


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("base.json", "", "base.json is damaged"),
        ("base.json", "[]", "base.json is damaged"),
        ("adapter_config.json", "{}", "can't be loaded"),
        ("adapter_model.safetensors", "", "can't be loaded"),
        ("adapter_model.safetensors", None, "no weights"),
    ],
)
def test_a_damaged_adapter_is_named(model_folder: Path, tmp_path: Path, name: str, text: str | None, what: str) -> None:
    from outlive.modeling.served import open_served

    adapter = tmp_path / "adapter"
    tiny_tokenizer(adapter)
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "base.json").write_text(json.dumps({"model": str(model_folder)}))
    (adapter / "adapter_model.safetensors").write_text("x")
    (adapter / name).unlink() if text is None else (adapter / name).write_text(text)
    with pytest.raises(InputError, match=what):
        open_served(str(adapter), tmp_path / "home")


def test_a_run_that_was_cut_off_has_no_checkpoint(tmp_path: Path) -> None:
    from outlive.modeling.served import newest_checkpoint

    (tmp_path / "run.yaml").write_text("")
    with pytest.raises(InputError, match="no checkpoint"):
        newest_checkpoint(tmp_path)
