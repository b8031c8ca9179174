"""Promise: the field's names work, each use is noted, and no two names ever set one key."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from outlive.run.config import Run, load_run, plain
from outlive.run.errors import InputError
from outlive.run.mistakes import section_at
from outlive.run.synonyms import PER_DEVICE, TABLE, known_names, source_of
from outlive.run.yaml_file import Key
from tests.fixtures import cases

# Logging, caching and launching of the tool itself, and choices that are made for the user here.
WITHOUT_A_COUNTERPART = """
    attn_implementation do_train evals_per_epoch logging_steps overwrite_output_dir preprocessing_num_workers
    saves_per_epoch template tf32 wandb_entity wandb_log_model wandb_name wandb_project wandb_watch
"""
BASE = {"model": "m", "data.train": "[{path: a}]"}


def load(*given: str) -> tuple[Run, list[str]]:
    keys = {text.split("=")[0] for text in given}
    has = {"model": {"base_model", "model_name_or_path"} & keys, "data.train": {"data", "datasets", "dataset"} & keys}
    base = [f"{key}={value}" for key, value in BASE.items() if key not in keys and not has[key]]
    loaded = load_run(None, [*base, *given])
    return loaded.run, loaded.notes


def value_at(run: Run, key: str) -> Any:
    node: Any = plain(run)
    for part in key.split("."):
        node = node[part]
    return node


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ("learning_rate=3e-4", "optimizer.lr", 3e-4),
        ("optimizer.learning_rate=3e-4", "optimizer.lr", 3e-4),
        ("weight_decay=0.1", "optimizer.weight_decay", 0.1),
        ("max_grad_norm=0.5", "optimizer.clip", 0.5),
        ("lr_scheduler_type=constant_with_warmup", "optimizer.schedule", "constant"),
        ("lr_scheduler=linear", "optimizer.schedule", "linear"),
        ("warmup_ratio=0.1", "optimizer.warmup", 0.1),
        ("warmup_steps=20", "optimizer.warmup", 20),
        ("optim=adamw_torch_fused", "optimizer.name", "adamw"),
        ("optimizer=adamw_torch", "optimizer.name", "adamw"),
        ("adam_epsilon=1e-6", "optimizer.eps", 1e-6),
        ("num_train_epochs=3.0", "stop.epochs", 3),
        ("num_epochs=4", "stop.epochs", 4),
        ("max_steps=50", "stop.steps", 50),
        ("max_length=1024", "data.sequence_length", 1024),
        ("max_seq_length=1024", "data.sequence_length", 1024),
        ("cutoff_len=1024", "data.sequence_length", 1024),
        ("sequence_len=1024", "data.sequence_length", 1024),
        ("data.max_length=1024", "data.sequence_length", 1024),
        ("packing=true", "data.packing", "best_fit"),
        ("sample_packing=false", "data.packing", "none"),
        ("data.packing=false", "data.packing", "none"),
        ("lora_r=8", "adapter.rank", 8),
        ("adapter.r=8", "adapter.rank", 8),
        ("lora_alpha=8", "adapter.alpha", 8),
        ("lora_dropout=0.1", "adapter.dropout", 0.1),
        ("adapter=lora", "adapter.kind", "lora"),
        ("lora_target_modules=[q_proj, v_proj]", "adapter.targets", ["q_proj", "v_proj"]),
        ("lora_target='q_proj, v_proj'", "adapter.targets", ["q_proj", "v_proj"]),
        ("lora_target=all", "adapter.targets", "all-linear"),
        ("lora_target_linear=true", "adapter.targets", "all-linear"),
        ("model_name_or_path=org/m", "model", "org/m"),
        ("base_model=org/m", "model", "org/m"),
        (
            "datasets=[a.jsonl, {path: b.jsonl}]",
            "data.train",
            [{"path": "a.jsonl", "weight": 1}, {"path": "b.jsonl", "weight": 1}],
        ),
        ("dataset=org/name", "data.train", [{"hub": "org/name", "weight": 1}]),
        ("data=a.jsonl", "data.train", [{"path": "a.jsonl", "weight": 1}]),
        ("data.train=a.jsonl", "data.train", [{"path": "a.jsonl", "weight": 1}]),
        ("data.validation=a.jsonl", "data.validation", [{"path": "a.jsonl", "weight": 1}]),
        ("val_set_size=0.1", "data.validation", 0.1),
        ("val_set_size=0", "data.validation", None),
        ("train_on_inputs=false", "data.loss_on", "assistant"),
        ("train_on_inputs=true", "data.loss_on", "all"),
        ("assistant_only_loss=true", "data.loss_on", "assistant"),
        ("bf16=true", "precision", "bf16"),
        ("bf16=auto", "precision", "auto"),
        ("bf16=false", "precision", "fp32"),
        ("gradient_checkpointing=true", "activation_checkpointing", True),
        ("output_dir=./out/my-run", "name", "my-run"),
        ("per_device_train_batch_size=4", "batch.micro_sequences", 4),
        ("micro_batch_size=4", "batch.sequences", 4),
        ("batch.micro_batch_size=4", "batch.sequences", 4),
    ],
)
def test_names_of_the_field(given: str, key: str, value: Any) -> None:
    run, notes = load(given)
    assert value_at(run, key) == value
    name = given.split("=")[0]
    assert any(note.startswith(name) and f"taken as {key}" in note for note in notes)


def test_a_note_says_what_became_of_the_name() -> None:
    assert load("learning_rate=1e-3")[1] == ["learning_rate: taken as optimizer.lr"]
    assert load("bf16=true")[1] == ["bf16 true: taken as precision bf16"]


def test_micro_batch_and_accumulation_together() -> None:
    run, notes = load("per_device_train_batch_size=4", "gradient_accumulation_steps=8")
    assert (run.batch.micro_sequences, run.batch.sequences, run.batch.tokens) == (4, 32, None)
    assert any(
        "gradient_accumulation_steps 8 × per_device_train_batch_size 4: taken as batch.sequences 32" in n for n in notes
    )


def test_accumulation_alone_is_refused() -> None:
    with pytest.raises(InputError, match="does not say how large a step is"):
        load("gradient_accumulation_steps=8")
    with pytest.raises(InputError, match="both say how large"):
        load("per_device_train_batch_size=4", "batch.tokens=16384")


@pytest.mark.parametrize(
    "given", ["max_steps=-1", "report_to=none", "fp16=false", "learning_rate=null", "lora_r=null", "report_to=[]"]
)
def test_values_that_ask_for_nothing_set_nothing_and_are_noted(given: str) -> None:
    run, notes = load(given)
    assert run == load()[0]
    assert len(notes) == 1
    assert "not set" in notes[0]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("fp16=true", "fp16 is not built"),
        ("optim=adamw_8bit", "adamw_8bit is not built"),
        ("adapter=qlora", "qlora is not built"),
        ("method=dpo", "dpo is not built"),
        ("save_steps=200", "checkpoint.every"),
        ("report_to=wandb", "track"),
        ("warmup_ratio=3", "less than 1"),
        ("val_set_size=100", "not built"),
        ("lora_target_linear=false", "adapter.targets"),
        ("micro_batch_size=0", "whole number"),
        ("micro_batch_size=true", "whole number"),
        ("learning_rate=fast", "optimizer.lr: fast, expected a number"),
    ],
)
def test_values_that_we_lack_are_refused(given: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        load(given)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("learning_rate: 1e-4", "optimizer: {lr: 1e-4}"),
        ("learning_rate: 1e-4", "optimizer: {learning_rate: 1e-4}"),
        ("warmup_ratio: 0.1", "warmup_steps: 10"),
        ("max_length: 512", "cutoff_len: 512"),
        ("lora_target_linear: true", "lora_target_modules: [q_proj]"),
        ("per_device_train_batch_size: 1", "micro_batch_size: 1"),
        ("micro_batch_size: 1", "batch: {micro_sequences: 1, sequences: 4}"),
        ("datasets: a.jsonl", "data: b.jsonl"),
        ("base_model: a", "model: b"),
    ],
)
def test_two_names_for_one_key_in_a_file_are_refused_with_both_lines(tmp_path: Path, first: str, second: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"{first}\n{second}\n")
    with pytest.raises(InputError) as caught:
        load_run(path)
    assert set((caught.value.where or "").split(" and ")) == {f"{path}:1", f"{path}:2"}
    assert first.split(":")[0] in caught.value.what


def test_two_names_for_one_key_in_overrides_are_refused() -> None:
    with pytest.raises(InputError, match=r"both set optimizer\.lr"):
        load("learning_rate=1", "optimizer.lr=1")


def test_an_override_may_use_another_name_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ndata: a.jsonl\nlearning_rate: 1\nmicro_batch_size: 4\ngradient_accumulation_steps: 2\n")
    run = load_run(path, ["lr_scheduler=linear", "optimizer.lr=2", "gradient_accumulation_steps=8"]).run
    assert (run.optimizer.lr, run.batch.sequences, run.batch.micro_sequences) == (2, 32, 4)
    assert load_run(path, ["learning_rate=3"]).run.optimizer.lr == 3
    smaller = load_run(path, ["micro_batch_size=2"]).run.batch
    assert (smaller.sequences, smaller.micro_sequences) == (8, 2), "the step stays as large as the file says"


def test_an_override_replaces_a_misspelt_type_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ndata: a.jsonl\nadapter: lora\nlora_r: 4\n")
    assert load_run(path, ["adapter=null"]).run.adapter is None


def test_every_row_of_the_table_leads_to_a_key() -> None:
    for synonym in TABLE:
        key: Key = synonym.key
        section = section_at(key[:-1])
        assert section is not None
        assert key[-1] in section.model_fields


def test_no_name_stands_for_two_keys_nor_hides_one_of_ours() -> None:
    names = [name for synonym in TABLE for name in synonym.names]
    assert len(names) == len(set(names))
    shorthands = {"optimizer", "adapter", "method", "data"}
    assert set(names) & set(Run.model_fields) == shorthands
    for section in ("data", "adapter", "optimizer", "batch", "stop", "checkpoint"):
        model = section_at((section,))
        assert model is not None
        assert set(known_names(section)) & set(model.model_fields) <= {"train", "validation", "packing"}


@pytest.mark.parametrize(
    ("text", "kind"), [("a.jsonl", "path"), ("rows/a.jsonl", "path"), ("org/name", "hub"), ("/a/b", "path")]
)
def test_what_a_text_names(text: str, kind: str) -> None:
    assert source_of(text) == {kind: text}


def test_the_commonest_keys_of_two_tools_are_known() -> None:
    # Keys that at least four of five of a tool's own example files set.
    folder = cases() / "config-keys"
    if not folder.is_dir():
        pytest.skip("no cases: set OUTLIVE_CASES")
    common = set[str]()
    for file, num_files in (("axolotl_keys.tsv", 250), ("llamafactory_keys.tsv", 66)):
        with open(folder / file, newline="", encoding="utf-8") as table:
            for row in csv.DictReader(table, delimiter="\t"):
                if row["uses_in_examples"].isdigit() and int(row["uses_in_examples"]) >= 0.8 * num_files:
                    common.add(row["key"])
    assert {"learning_rate", "sequence_len", "cutoff_len", "warmup_ratio", *PER_DEVICE} <= common
    assert sorted(common - {*known_names(None), *Run.model_fields}) == WITHOUT_A_COUNTERPART.split()
