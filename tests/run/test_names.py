"""Promise: the field's names work, each use is noted, and no two names ever set one key."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from outlive.run.config import Run, load_run, plain
from outlive.run.errors import InputError
from outlive.run.mistakes import section_at
from outlive.run.names.known import KNOWN
from outlive.run.names.page import keys_page
from outlive.run.names.table import PER_DEVICE, TABLE
from outlive.run.names.translate import known_names, source_of, taken_as
from outlive.run.yaml_file import Key
from tests.fixtures import cases

# Logging, caching and launching of the tool itself, and choices that are made for the user here.
WITHOUT_A_COUNTERPART = """
    attn_implementation do_train evals_per_epoch logging_steps overwrite_output_dir saves_per_epoch
    template tf32 wandb_entity wandb_log_model wandb_name wandb_project wandb_watch
"""
# Every name that leads to one of our keys, by key: whoever takes one out of the table takes it out of here, too.
MAPPED = """
    optimizer.betas: adam_beta1 adam_beta2
    optimizer.eps: adam_eps adam_epsilon
    data.loss_on: assistant_only_loss completion_only_loss loss_scale mask_history train_on_completions_only
      train_on_input train_on_inputs train_on_prompt
    method.router_aux_coef: aux_loss_coef moe_aux_loss_coef router_aux_loss_coef
    model: base_model model_id model_name model_name_or_path pretrained_model_name_or_path
    precision: bf16 bfloat16 dtype float16 float32 fp16 mixed_precision mixed_precision_dtype pure_bf16 torch_dtype
      torch_dtype_str
    data.chat_template: chat_template_file chat_template_path
    optimizer.clip: clip_grad clip_grad_norm gradient_clipping max_grad_norm
    optimizer.min_lr_ratio: cosine_min_lr_ratio lr_scheduler_kwargs min_lr_rate
    data.sequence_length: cutoff_len max_length max_seq_len max_seq_length model_max_length packing_length seq_len
      seq_length sequence_len
    data.train: data_path dataset dataset_name dataset_path datasets train_dataset train_file
    data.system: system default_system default_system_message system_prompt
    activation_checkpointing: disable_gradient_checkpointing enable_activation_checkpointing
      enable_gradient_checkpointing gradient_checkpointing use_gradient_checkpointing
    data.validation: do_eval eval_dataset eval_strategy evaluation_strategy split_dataset_ratio test_datasets
      test_split_size val_dataset val_set_size val_size
    stop.early_stopping: early_stopping_patience early_stopping_steps
    stop.epochs: epochs max_epochs num_epochs num_train_epochs
    data.overlong: excess_length_strategy truncation_strategy
    name: experiment_name output_dir run_name
    export.hub: export_hub_model_id hub_model_id
    adapter.kind: finetuning_type peft_use_dora peft_use_rslora pissa_init q_lora train_type tuner_type use_dora
      use_peft use_rslora
    batch.sequences: global_batch_size gradient_accumulation_steps train_batch_size
    checkpoint.keep: keep_last_n_checkpoints save_total_limit
    optimizer.lr: learning_rate lr
    checkpoint.best: load_best_model_at_end metric_for_best_model
    adapter.alpha: lora_alpha
    adapter.targets: lora_attn_modules lora_target lora_target_linear lora_target_modules target_modules
    adapter.dropout: lora_dropout
    adapter.rank: lora_r lora_rank
    optimizer.schedule_steps: lr_decay_iters lr_decay_steps
    optimizer.schedule: lr_scheduler lr_scheduler_type
    optimizer.warmup: lr_warmup_fraction lr_warmup_steps num_warmup_steps warmup_ratio warmup_steps
    stop.steps: max_steps train_iters
    export.merged: merge_lora
    batch.micro_sequences: micro_batch_size per_device_train_batch_size train_micro_batch_size_per_gpu
    data.pass_ends: stopping_strategy
    data.processes: dataset_num_proc dataset_processes num_proc preprocessing_num_workers
    data.packing: neat_packing pack packed packing sample_packing use_packed_sequences
    optimizer.name: optim
    seed: random_seed random_state
    track: report_to
    method.name: rl rlhf_type stage trainer_type
    checkpoint.every: save_interval save_steps save_strategy
    data.turn_end: train_on_eos
    optimizer.weight_decay: weight_decay
"""
# In the cases, and known to nobody: mistakes of the files themselves, and the settings of other programs.
UNKNOWN = "context_parapllel_size eps output_dataset_name save_dir"
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
        ("train_micro_batch_size_per_gpu=4", "batch.micro_sequences", 4),
        ("train_batch_size=32", "batch.sequences", 32),
        ("save_steps=500", "checkpoint.every", 500),
        ("save_strategy='no'", "checkpoint.every", None),
        ("save_total_limit=2", "checkpoint.keep", 2),
        ("load_best_model_at_end=true", "checkpoint.best", "validation_loss"),
        ("metric_for_best_model=eval_loss", "checkpoint.best", "validation_loss"),
        ("max_grad_norm=0", "optimizer.clip", None),
        ("gradient_clipping=1.0", "optimizer.clip", 1.0),
        ("adam_beta1=0.8", "optimizer.betas", [0.8, 0.999]),
        ("adam_beta2=0.95", "optimizer.betas", [0.9, 0.95]),
        ("optimizer.adam_beta2=0.95", "optimizer.betas", [0.9, 0.95]),
        ("lr_scheduler_type=cosine_with_min_lr", "optimizer.schedule", "cosine"),
        ("lr_scheduler_kwargs={min_lr_rate: 0.1}", "optimizer.min_lr_ratio", 0.1),
        ("cosine_min_lr_ratio=0.1", "optimizer.min_lr_ratio", 0.1),
        ("warmup_steps=0", "optimizer.warmup", 0),
        ("excess_length_strategy=truncate", "data.overlong", "truncate"),
        ("truncation_strategy=delete", "data.overlong", "drop"),
        ("mask_history=true", "data.loss_on", "last_assistant"),
        ("completion_only_loss=true", "data.loss_on", "completion"),
        ("eval_strategy='no'", "data.validation", None),
        ("dataset=org/name#500", "data.train", [{"hub": "org/name", "limit": 500, "weight": 1}]),
        (
            "datasets=[{path: json, data_files: a.jsonl, split: train}]",
            "data.train",
            [{"path": "a.jsonl", "weight": 1}],
        ),
        ("datasets=[{path: org/n, type: chat_template}]", "data.train", [{"hub": "org/n", "weight": 1}]),
        (
            "datasets=[{path: a.jsonl, type: 'alpaca:phi'}, {path: b.jsonl, type: completion, field: body}]",
            "data.train",
            [
                {"path": "a.jsonl", "format": "alpaca", "weight": 1},
                {"path": "b.jsonl", "format": "text", "fields": {"text": "body"}, "weight": 1},
            ],
        ),
        (
            "datasets=[{path: a.jsonl, type: chat_template, field_messages: conversations, "
            "message_property_mappings: {role: from, content: value}, roles: {user: [human], assistant: [gpt, bot]}}]",
            "data.train",
            [
                {
                    "path": "a.jsonl",
                    "format": "sharegpt",
                    "roles": {"human": "user", "gpt": "assistant", "bot": "assistant"},
                    "weight": 1,
                }
            ],
        ),
        (
            "datasets=[{path: a.jsonl, type: chat_template, field_messages: dialog, message_field_role: who}]",
            "data.train",
            [{"path": "a.jsonl", "fields": {"messages": "dialog", "message.role": "who"}, "weight": 1}],
        ),
        ("bf16={enabled: true}", "precision", "bf16"),
        ("torch_dtype=bfloat16", "precision", "bf16"),
        ("disable_gradient_checkpointing=true", "activation_checkpointing", False),
        ("use_gradient_checkpointing=unsloth", "activation_checkpointing", True),
        ("finetuning_type=full", "adapter", None),
        ("random_state=7", "seed", 7),
        ("epochs=3", "stop.epochs", 3),
        ("stage=pt", "method.name", "sft"),
        ("merge_lora=false", "export.merged", False),
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
        ("save_steps=0.1", "a share of all steps"),
        ("save_strategy=epoch", "counted in steps"),
        ("num_train_epochs=1.5", "stop.steps"),
        ("early_stopping_patience=3", "early_stopping"),
        ("lr_scheduler_kwargs={min_lr: 1e-6}", "min_lr_ratio"),
        ("metric_for_best_model=accuracy", "checkpoint.best"),
        ("truncation_strategy=left", "cut at their end"),
        ("gradient_checkpointing=offload", "not built"),
        ("use_dora=true", "dora is not built"),
        ("stage=rm", "reward is not built"),
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


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        (("torch_dtype=float32", "bf16=true"), "precision", "bf16"),
        (("lora_target_linear=false", "lora_target_modules=[q_proj]"), "adapter.targets", ["q_proj"]),
        (("train_on_prompt=false", "mask_history=true"), "data.loss_on", "last_assistant"),
        (("warmup_steps=0", "warmup_ratio=0.1"), "optimizer.warmup", 0.1),
        (("eval_strategy='no'", "val_size=0.1"), "data.validation", 0.1),
        (("adam_beta1=0.8", "adam_beta2=0.9"), "optimizer.betas", [0.8, 0.9]),
        (("load_best_model_at_end=true", "metric_for_best_model=loss"), "checkpoint.best", "validation_loss"),
        (("packing=true", "neat_packing=true"), "data.packing", "best_fit"),
        (
            ("train_batch_size=8", "train_micro_batch_size_per_gpu=2", "gradient_accumulation_steps=4"),
            "batch.sequences",
            8,
        ),
        (("train_micro_batch_size_per_gpu=auto", "gradient_accumulation_steps=auto"), "batch.sequences", None),
    ],
)
def test_names_that_stand_side_by_side_without_contradiction(given: tuple[str, ...], key: str, value: Any) -> None:
    run, notes = load(*given)
    assert value_at(run, key) == value
    for text in given:
        assert any(text.split("=")[0] in note for note in notes), "no name without a note"


@pytest.mark.parametrize(
    "given",
    [
        ("bf16=true", "torch_dtype=float32", "fp16=true"),
        ("bf16=false", "torch_dtype=bfloat16"),
        ("finetuning_type=full", "lora_rank=8"),
        ("use_peft=false", "lora_r=8"),
        ("train_batch_size=32", "train_micro_batch_size_per_gpu=2", "gradient_accumulation_steps=4"),
        ("packing=true", "neat_packing=false"),
        ("adam_beta1=0.8", "optimizer.adam_beta1=0.8"),
        ("mask_history=true", "train_on_inputs=true"),
    ],
)
def test_names_that_contradict_each_other_are_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        load(*given)


def test_no_adapter_beside_the_settings_of_one_is_refused_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ndata: a.jsonl\nadapter:\nlora_r: 8\n")
    with pytest.raises(InputError, match="trains all weights, and lora_r sets an adapter"):
        load_run(path)
    path.write_text("model: m\ndata: a.jsonl\nadapter: {rank: 4}\n")
    assert load_run(path, ["finetuning_type=full"]).run.adapter is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("logging_steps=10", "every step is recorded"),
        ("padding_free=true", "nothing is padded"),
        ("remove_unused_columns=false", "never read"),
        ("attn_implementation=flash_attention_2", "per document"),
        ("average_tokens_across_devices=true", "whole step"),
        ("data.overwrite_cache=true", "prepared once"),
        ("adapter.task_type=CAUSAL_LM", "from its config"),
        ("wandb_project=null", "asks for nothing"),
        ("load_in_4bit=false", "asks for nothing"),
        ("neftune_noise_alpha=0", "asks for nothing"),
    ],
)
def test_known_keys_that_ask_for_nothing_new_are_noted_and_change_nothing(given: str, said: str) -> None:
    run, notes = load(given)
    plain_run = load(*(["adapter.rank=16"] if given.startswith("adapter") else []))[0]
    if not given.startswith("adapter"):
        assert run == plain_run
    (note,) = notes
    assert note.startswith(given.split("=")[0])
    assert said in note


@pytest.mark.parametrize(
    ("given", "why", "fix"),
    [
        ("wandb_project=mine", "tracker", "remove"),
        ("load_in_4bit=true", "quantised base", "bf16"),
        ("deepspeed=zero3.json", "more than one device", "one process"),
        ("average_tokens_across_devices=false", "whole step", "remove"),
        ("shuffle_dataset=false", "anew each epoch", "remove"),
        ("resume_from_checkpoint=x", "gone on with", "--resume"),
        ("template=llama3", "own chat template", "data.chat_template"),
        ("batch_size=8", "one pass of one device", "batch.micro_sequences"),
        ("label_smoothing_factor=0.1", "this loss", "method.loss"),
        ("device=cpu", "GPU", "remove"),
        ("adapter.modules_to_save=[lm_head]", "option of adapters", "targets"),
    ],
)
def test_known_keys_that_ask_for_more_are_refused_with_the_reason(given: str, why: str, fix: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        load(given)
    assert fix in (caught.value.fix or "")
    assert given.split("=")[0] in caught.value.what


def test_a_credential_is_refused_without_being_shown(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ndata: a.jsonl\nhub_token: my-secret\nwandb_project: p\n")
    for load_it in (lambda: load_run(path), lambda: load("hf_hub_token=my-secret")):
        with pytest.raises(InputError, match=r"environment only|taken over") as caught:
            load_it()
        assert "my-secret" not in str(caught.value)
        assert "my-secret" not in json.dumps(caught.value.to_json())


def test_what_is_nearly_one_of_our_keys_is_no_key_of_another_tool() -> None:
    with pytest.raises(InputError, match="no key `beta`") as caught:
        load("optimizer.beta=[0.9, 0.99]")
    assert "optimizer.betas" in (caught.value.fix or "")


def test_all_refused_keys_of_a_file_are_named_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("base_model: m\ndatasets: a.jsonl\nload_in_4bit: true\nwandb_project: p\n")
    with pytest.raises(InputError) as caught:
        load_run(path)
    text = str(caught.value)
    assert f"{path}:3" in text
    assert f"{path}:4" in text


def test_every_known_key_stands_once_and_is_none_of_ours() -> None:
    names = [name for known in KNOWN for name in known.names]
    assert sorted(names) == sorted(set(names))
    others = {*Run.model_fields, *known_names(None)}
    assert not others & set(names)
    for known in KNOWN:
        assert known.why
        assert known.fix


def test_the_page_of_keys_is_that_of_the_tables() -> None:
    page = Path(__file__).parents[2] / "docs" / "keys.md"
    assert page.read_text("utf-8") == keys_page(), "python -m outlive.run.names.page > docs/keys.md"


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
    assert {"learning_rate", "sequence_len", "cutoff_len", "warmup_ratio", *PER_DEVICE[:2]} <= common
    assert sorted(common - {*known_names(None), *Run.model_fields}) == WITHOUT_A_COUNTERPART.split()


def test_no_name_is_lost() -> None:
    expected: dict[str, set[str]] = {}
    for word in MAPPED.split():
        if word.endswith(":"):
            names = expected.setdefault(word[:-1], set())
        else:
            names.add(word)
    for key, names in expected.items():
        for name in names:
            assert ".".join(map(str, taken_as((name,)) or ())) == key, name
    assert {name for names in expected.values() for name in names} == set(known_names(None)) - set(Run.model_fields)


def test_every_key_of_the_cases_is_mapped_or_explained() -> None:
    folder = cases()
    if not folder.is_dir():
        pytest.skip("no cases: set OUTLIVE_CASES")
    found = set[str]()
    for file in ("axolotl_keys.tsv", "llamafactory_keys.tsv"):
        with open(folder / "config-keys" / file, newline="", encoding="utf-8") as table:
            found |= {row["key"] for row in csv.DictReader(table, delimiter="\t") if "." not in row["key"]}
    for path in (folder / "configs").glob("*/*"):
        if path.suffix in (".yaml", ".yml", ".json") and "__data__" not in path.name:  # those list data sets
            text = path.read_text("utf-8")
            content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
            found |= set(content) if isinstance(content, dict) else set()
    mapped = found & {*known_names(None), *Run.model_fields}
    explained = found & {name for known in KNOWN for name in known.names}
    assert sorted(found - mapped - explained) == UNKNOWN.split()
    assert (len(found), len(mapped), len(explained)) == (896, 100, 792)


def test_the_configs_of_other_tools_end_in_an_error_that_can_be_read() -> None:
    files = sorted((cases() / "configs").glob("*/*.y*ml"))
    if not files:
        pytest.skip("no cases: set OUTLIVE_CASES")
    for path in files:
        with pytest.raises(InputError) as caught:  # none of them asks only for what there is
            load_run(path)
        assert "no key" not in str(caught.value), "an unknown key, where each is to be known"


# What TRL 1.16 has beside the Trainer's own arguments: SFTConfig, ModelConfig and ScriptArguments.
TRL = """
    activation_offloading assistant_only_loss attn_implementation bnb_4bit_quant_storage bnb_4bit_quant_type
    chat_template_path completion_only_loss dataset_config dataset_kwargs dataset_name dataset_num_proc
    dataset_streaming dataset_test_split dataset_text_field dataset_train_split datasets dtype eos_token eval_packing
    ignore_bias_buffers load_in_4bit load_in_8bit lora_alpha lora_dropout lora_modules_to_save lora_r
    lora_target_modules lora_target_parameters lora_task_type loss_type max_length model_init_kwargs
    model_name_or_path model_revision packing packing_strategy pad_to_multiple_of pad_token padding_free
    router_aux_loss_coef shuffle_dataset streaming test_split_size truncation_mode trust_remote_code
    use_bnb_nested_quant use_dora use_peft use_rslora
"""


def test_every_argument_of_trainer_lora_and_trl_is_mapped_or_explained() -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    known = {*known_names(None), *Run.model_fields, *(name for group in KNOWN for name in group.names)}
    arguments = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    assert not {*arguments, *TRL.split()} - known
    lora = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert lora - known == {"r", "revision"}, "r is adapter.r; the revision of a base model is no part of an adapter"
    assert taken_as(("adapter", "r")) == ("adapter", "rank")
