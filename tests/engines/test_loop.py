"""The loop: equal to a hand-written one, in every step; bf16 trains what it should; dropout is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from outlive.data.batch import make_batch
from outlive.engines.native.build import Ready, build, get_ready
from outlive.engines.native.loop import forward_backward, train
from outlive.learn.adapters import add_adapter
from outlive.run.config import load_run
from outlive.run.errors import InputError
from outlive.run.metrics import Record
from tests.fixtures import cases, tiny_tokenizer
from tests.tiny import CONFIGS, gradients, relative_error

LORA = ["adapter.rank=4", "adapter.alpha=8"]


@pytest.fixture
def model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return tiny_folder(tmp_path / "model", "llama")


def tiny_folder(folder: Path, name: str, **changes: Any) -> Path:
    """A tiny model's folder with weights and tokenizer; `changes` of its config."""
    from transformers import AutoConfig

    values = {**CONFIGS[name], "vocab_size": 512, **changes}
    tiny_tokenizer(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def ready_for(model: Path, rows: Path, *settings: str) -> Ready:
    """A later setting replaces an earlier one of the same key."""
    given = dict(setting.split("=", 1) for setting in ("data.validation=null", *settings))
    overrides = [f"{key}={value}" for key, value in given.items()]
    return get_ready(load_run(None, overrides, model=str(model), data=str(rows)).run)


def run_losses(ready: Ready) -> list[float]:
    records: list[Record] = []
    train(build(ready), records.append)
    return [record.loss for record in records if record.kind == "train" and record.loss is not None]


def hand_written(ready: Ready, steps: int, lr: float) -> list[float]:
    """The loop that anyone would write: one sample a row, padded, transformers' own forward and loss."""
    model: Any = AutoModelForCausalLM.from_pretrained(ready.place.folder, dtype=torch.float32)
    if ready.run.adapter is not None:
        model = add_adapter(model, ready.run.adapter, ready.run.seed)
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.0)
    plan, losses = ready.source.plan(0), []
    for first in range(0, steps * 4, 4):
        samples = [plan.segments(pack)[0] for pack in range(first, first + 4)]
        store = ready.prepared.train.stores[0]
        ids = [torch.from_numpy(store.tokens(s.sample).copy()).long() for s in samples]
        labels = [
            torch.where(torch.from_numpy(store.weights(s.sample)) > 0, i, -100)
            for s, i in zip(samples, ids, strict=True)
        ]
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        wanted = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        loss = model(input_ids=padded, attention_mask=mask, labels=wanted).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


PARITY = ["data.packing=none", "batch.sequences=4", "stop.steps=12", "precision=fp32", "optimizer.schedule=constant"]
PARITY += ["optimizer.warmup=0", "optimizer.lr=1e-4"]


@pytest.mark.parametrize("adapter", [[], LORA], ids=["full", "lora"])
def test_equal_to_a_hand_written_loop(model_folder: Path, rows: Path, adapter: list[str]) -> None:
    ready = ready_for(model_folder, rows, *PARITY, "optimizer.lr=1e-3", *adapter)
    ours, theirs = run_losses(ready), hand_written(ready, 12, 1e-3)
    assert len(ours) == 12
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-5
    assert ours[-1] < ours[0]


def test_packed_training_equals_unpacked(model_folder: Path, rows: Path) -> None:
    """All rows in each step, so that both have the same global batch: the same losses whatever the packs."""
    common = ["precision=fp32", "optimizer.warmup=0", "stop.steps=5", "optimizer.lr=1e-3"]
    packed = ready_for(model_folder, rows, *common, "batch.sequences=60", "data.sequence_length=256")
    alone = ready_for(model_folder, rows, *common, "batch.sequences=60", "data.packing=none", "batch.micro_sequences=7")
    assert packed.source.plan(0).num_packs < 20
    assert run_losses(packed) == pytest.approx(run_losses(alone), abs=1e-5)


def test_bf16_changes_every_trained_tensor(model_folder: Path, rows: Path) -> None:
    """At a learning rate of 2e-5, within 6 steps: weights kept in bf16 would round the updates away."""
    ready = ready_for(model_folder, rows, "precision=bf16", "optimizer.lr=2e-5", "stop.steps=6", "optimizer.warmup=0")
    training = build(ready)
    before = {name: p.detach().clone() for name, p in training.model.trained().items()}
    train(training, lambda record: None)
    for name, parameter in training.model.trained().items():
        assert parameter.dtype == torch.float32
        changed = (parameter.detach() != before[name]).float().mean()
        seen_only = "embed" in name  # rows of tokens that never come stay as they are
        assert changed > (0.05 if seen_only else 0.95), name


def test_lora_is_kept_in_fp32_beside_a_frozen_bf16_base(model_folder: Path, rows: Path) -> None:
    training = build(ready_for(model_folder, rows, "precision=bf16", *LORA))
    trained = training.model.trained()
    assert all("lora" in name for name in trained)
    assert {p.dtype for p in trained.values()} == {torch.float32}
    assert {p.dtype for p in training.model.model.parameters() if not p.requires_grad} == {torch.bfloat16}


@pytest.mark.parametrize("target", ["q_prj", "lm_head"])
def test_targets_that_match_nothing_are_refused(model_folder: Path, rows: Path, target: str) -> None:
    ready = ready_for(model_folder, rows, f"adapter.targets=[{target}]")
    with pytest.raises(InputError, match=target) as error:
        build(ready)
    assert target != "q_prj" or "q_proj" in str(error.value)


def test_dropout_is_the_same_in_all_layouts(model_folder: Path, rows: Path) -> None:
    """Counted per pack: one micro-batch of 12 packs drops what 12 of one drop, and another step drops other things."""
    settings = ["precision=fp32", *LORA, "adapter.dropout=0.3", "batch.sequences=12", "data.packing=none"]
    found = []
    for micro in (12, 1):
        training = build(ready_for(model_folder, rows, *settings, f"batch.micro_sequences={micro}"))
        training.model.model.train()
        step = next(iter(training.source))
        with torch.no_grad():  # LoRA's B is 0 at the start: its A would get no gradient
            for name, parameter in training.model.trained().items():
                parameter.add_(0.05 if "lora_B" in name else 0.0)
        assert len(step.micro_batches) == 12 // micro
        loss = float(forward_backward(training, step).sum())
        found.append((loss, gradients(training.model)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert relative_error(found[0][1], found[1][1]) < 1e-4
    other_step = type(step)(step.cursor._replace(step=1), step.micro_batches, step.totals, 0, 0)
    assert float(forward_backward(training, other_step).sum()) != pytest.approx(loss, rel=1e-4)


def test_checkpointing_changes_no_gradient(model_folder: Path, rows: Path) -> None:
    found = []
    for on in ("false", "true"):
        training = build(ready_for(model_folder, rows, "precision=fp32", f"activation_checkpointing={on}", *LORA))
        training.model.model.train()
        loss = float(forward_backward(training, next(iter(training.source))).sum())
        found.append((loss, gradients(training.model)))
    assert found[0][0] == found[1][0]
    assert relative_error(found[0][1], found[1][1]) < 1e-6


def test_validation_follows_the_loss_rule(model_folder: Path, rows: Path) -> None:
    """Σ weight·nll / Σ weight over all validation tokens, whatever the batches."""
    ready = ready_for(model_folder, rows, "data.validation=0.4", "precision=fp32", "stop.steps=1")
    training, records = build(ready), []
    train(training, records.append)
    (first, *_) = [record for record in records if record.kind == "validation"]
    model = AutoModelForCausalLM.from_pretrained(ready.place.folder, dtype=torch.float32)
    (store,) = ready.prepared.validation.stores
    total = count = 0.0
    for index in range(len(store)):
        ids = torch.from_numpy(store.tokens(index).copy()).long()
        weight = torch.from_numpy(store.weights(index).copy())
        with torch.no_grad():
            nll = cross_entropy(model(input_ids=ids[None]).logits[0, :-1], ids[1:], reduction="none")
        total, count = total + float((nll * weight[1:]).sum()), count + float(weight[1:].sum())
    assert first.loss == pytest.approx(total / count, rel=1e-5)
    assert first.target_tokens == count


def test_a_recurrent_model_is_not_packed(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen3-Next's linear layers carry a state: packing is off, said so, and each sample has its own forward."""
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    config = {
        "model_type": "qwen3_next", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"], "num_experts": 0, "mlp_only_layers": [0, 1],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    ready = _fresh_ready(tmp_path, tokenizer, rows)
    assert any("packing is off" in note and "linear_attention" in note for note in ready.notes)
    assert ready.source.plan(0).num_packs == 60
    assert len(run_losses(ready)) == 2
    training = build(ready)
    assert not training.model.per_document
    batch = make_batch(ready.source.plan(0), ready.prepared.train, [0])
    assert len(batch.segments) == 1


def _fresh_ready(tmp_path: Path, tokenizer: Path, rows: Path) -> Ready:
    file = tmp_path / "run.yaml"
    file.write_text(
        f"model: {{init: {{config: {tmp_path / 'config.json'}, tokenizer: {tokenizer}}}}}\n"
        f"data: {{train: [{{path: {rows}}}], validation: null}}\nstop: {{steps: 2}}\n"
    )
    return get_ready(load_run(file).run)


def test_real_chats_through_the_real_loop(model_folder: Path) -> None:
    """400 chats, packed: the loss falls, every token is counted once an epoch."""
    path = cases() / "chat400.jsonl"
    if not path.exists():
        pytest.skip("the cases are not here")
    ready = ready_for(model_folder, path, "batch.tokens=16384", "stop.epochs=1", "optimizer.lr=3e-3")
    records: list[Record] = []
    train(build(ready), records.append)
    assert sum(record.tokens or 0 for record in records) == ready.prepared.train.stores[0].manifest["num_tokens"]
    assert records[-1].loss is not None
    assert records[0].loss is not None
    assert records[-1].loss < records[0].loss - 0.5
