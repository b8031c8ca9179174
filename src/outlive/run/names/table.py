"""The table of the field's names for our keys. A row more is a name more; `outlive.run.names.page` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from outlive.run.names import values as values
from outlive.run.names.values import Convert, Weak, choice


@dataclass(frozen=True)
class Synonym:
    """Other names of `key`. `short` ones are accepted only inside the key's section.

    `joint`: names that often stand side by side; they are no contradiction as long as they say the same.
    """

    key: tuple[str, ...]
    names: tuple[str, ...]
    convert: Convert | None = None
    remark: str = ""
    short: tuple[str, ...] = ()
    joint: bool = False


TABLE: tuple[Synonym, ...] = (
    Synonym(
        ("model",), ("model_name_or_path", "base_model", "model_name", "pretrained_model_name_or_path", "model_id")
    ),
    Synonym(("name",), ("output_dir",), values.last_part, "the run folder is runs/<name>"),
    Synonym(("name",), ("run_name", "experiment_name")),
    Synonym(
        ("data", "train"),
        ("datasets", "dataset", "dataset_name", "train_dataset", "train_file", "dataset_path", "data_path"),
        values.sources,
    ),
    Synonym(
        ("data", "validation"),
        ("val_set_size", "val_size", "split_dataset_ratio", "test_split_size"),
        values.validation,
    ),
    Synonym(("data", "validation"), ("eval_dataset", "test_datasets", "val_dataset"), values.sources),
    Synonym(
        ("data", "validation"),
        ("eval_strategy", "evaluation_strategy", "do_eval"),
        values.no_validation,
        "the validation loss is measured before the first step, at each checkpoint and after each epoch",
        joint=True,
    ),
    Synonym(
        ("data", "sequence_length"),
        (
            "max_length",
            "max_seq_length",
            "max_seq_len",
            "seq_length",
            "seq_len",
            "cutoff_len",
            "sequence_len",
            "model_max_length",
            "packing_length",
        ),
        remark="what becomes of longer samples is data.overlong",
    ),
    Synonym(
        ("data", "pass_ends"),
        ("stopping_strategy",),
        choice(first_exhausted="first", all_exhausted="all"),
        "with data.mix_by=rows or tokens",
    ),
    Synonym(
        ("data", "processes"),
        ("dataset_num_proc", "dataset_processes", "preprocessing_num_workers", "num_proc"),
        remark="null: as many as the machine has",
    ),
    Synonym(
        ("data", "packing"),
        ("packing", "sample_packing", "neat_packing", "packed", "pack", "use_packed_sequences"),
        choice(true="best_fit", false="none"),
        "samples in one pack never see each other",
        short=("packing",),
        joint=True,
    ),
    Synonym(
        ("data", "loss_on"),
        ("train_on_inputs", "train_on_input", "train_on_prompt"),
        choice(true="all", false=Weak("assistant")),
        "all: every token, the headers of turns included",
    ),
    Synonym(
        ("data", "loss_on"),
        ("assistant_only_loss",),
        choice(true="assistant", false=Weak("all")),
        "rows of prompt and completion: completion_only_loss",
    ),
    Synonym(
        ("data", "loss_on"),
        ("completion_only_loss", "train_on_completions_only"),
        choice(true="completion", false=Weak("all")),
    ),
    Synonym(("data", "loss_on"), ("mask_history",), values.last_turn),
    Synonym(("data", "loss_on"), ("loss_scale",), choice(default="assistant", last_round="last_assistant")),
    Synonym(("data", "turn_end"), ("train_on_eos",), values.turn_end),
    Synonym(("data", "overlong"), ("excess_length_strategy", "truncation_strategy"), values.overlong),
    Synonym(
        ("data", "system"),
        ("system", "default_system", "default_system_message", "system_prompt"),
        short=("default_system",),
    ),
    Synonym(("data", "chat_template"), ("chat_template_path", "chat_template_file")),
    Synonym(("method", "name"), ("stage", "rl", "rlhf_type", "trainer_type"), values.method),
    Synonym(("method", "router_aux_coef"), ("moe_aux_loss_coef", "router_aux_loss_coef", "aux_loss_coef")),
    Synonym(("adapter", "kind"), ("finetuning_type", "tuner_type", "train_type"), values.adapter_kind),
    Synonym(("adapter", "kind"), ("use_peft",), values.use_peft),
    Synonym(("adapter", "kind"), ("use_dora", "peft_use_dora"), values.variant("dora")),
    Synonym(("adapter", "kind"), ("use_rslora", "peft_use_rslora"), values.variant("rslora")),
    Synonym(("adapter", "kind"), ("pissa_init",), values.variant("pissa")),
    Synonym(("adapter", "kind"), ("q_lora",), values.variant("qlora")),
    Synonym(("adapter", "rank"), ("lora_r", "lora_rank"), short=("r",)),
    Synonym(("adapter", "alpha"), ("lora_alpha",)),
    Synonym(("adapter", "dropout"), ("lora_dropout",)),
    Synonym(
        ("adapter", "targets"),
        ("lora_target_modules", "lora_target", "lora_attn_modules", "target_modules"),
        values.targets,
    ),
    Synonym(("adapter", "targets"), ("lora_target_linear",), values.all_linear),
    Synonym(("optimizer", "name"), ("optim",), values.adamw, short=("type",)),
    Synonym(("optimizer", "lr"), ("learning_rate", "lr")),
    Synonym(
        ("optimizer", "schedule"), ("lr_scheduler_type", "lr_scheduler"), values.schedule, "warm-up is optimizer.warmup"
    ),
    Synonym(("optimizer", "min_lr_ratio"), ("lr_scheduler_kwargs",), values.end_of_schedule),
    Synonym(("optimizer", "min_lr_ratio"), ("cosine_min_lr_ratio", "min_lr_rate")),
    Synonym(("optimizer", "schedule_steps"), ("lr_decay_steps", "lr_decay_iters")),
    Synonym(("optimizer", "warmup"), ("warmup_ratio", "lr_warmup_fraction"), values.share_below_1),
    Synonym(("optimizer", "warmup"), ("warmup_steps", "num_warmup_steps", "lr_warmup_steps"), values.warmup_steps),
    Synonym(("optimizer", "weight_decay"), ("weight_decay",)),
    Synonym(("optimizer", "eps"), ("adam_epsilon", "adam_eps")),
    Synonym(("optimizer", "clip"), ("max_grad_norm", "gradient_clipping", "clip_grad_norm", "clip_grad"), values.clip),
    Synonym(("stop", "epochs"), ("num_train_epochs", "num_epochs", "epochs", "max_epochs"), values.epochs),
    Synonym(
        ("stop", "steps"),
        ("max_steps", "train_iters"),
        values.positive_or_none,
        "with stop.epochs too, whichever is reached first",
    ),
    Synonym(("stop", "early_stopping"), ("early_stopping_patience", "early_stopping_steps"), values.positive_or_none),
    Synonym(("precision",), ("bf16",), values.enabled("bf16", Weak("fp32"))),
    Synonym(("precision",), ("fp16",), values.enabled("fp16", values.NO_EFFECT)),
    Synonym(
        ("precision",),
        ("torch_dtype", "dtype", "torch_dtype_str", "mixed_precision", "mixed_precision_dtype"),
        values.dtype,
        "weights that are trained are kept in fp32",
    ),
    Synonym(
        ("precision",), ("pure_bf16", "bfloat16"), values.switch("bf16"), "weights that are trained are kept in fp32"
    ),
    Synonym(("precision",), ("float16",), values.switch("fp16")),
    Synonym(("precision",), ("float32",), values.switch("fp32")),
    Synonym(
        ("activation_checkpointing",),
        (
            "gradient_checkpointing",
            "use_gradient_checkpointing",
            "enable_gradient_checkpointing",
            "enable_activation_checkpointing",
        ),
        values.recompute,
    ),
    Synonym(("activation_checkpointing",), ("disable_gradient_checkpointing",), values.negated),
    Synonym(("checkpoint", "every"), ("save_steps", "save_interval"), values.save_steps),
    Synonym(("checkpoint", "every"), ("save_strategy",), values.save_strategy, "the last step is always saved"),
    Synonym(("checkpoint", "keep"), ("save_total_limit", "keep_last_n_checkpoints"), values.keep),
    Synonym(
        ("checkpoint", "best"),
        ("load_best_model_at_end",),
        values.best_at_end,
        "the best is kept beside the last",
        joint=True,
    ),
    Synonym(("checkpoint", "best"), ("metric_for_best_model",), values.best_measure, joint=True),
    Synonym(("export", "hub"), ("hub_model_id", "export_hub_model_id")),
    Synonym(("export", "merged"), ("merge_lora",)),
    Synonym(("seed",), ("random_state", "random_seed")),
    Synonym(("track",), ("report_to",), values.trackers),
    # One text in place of a section or a list.
    Synonym(("optimizer", "name"), ("optimizer",), values.adamw),
    Synonym(("adapter", "kind"), ("adapter",)),
    Synonym(("method", "name"), ("method",)),
    Synonym(("data", "train"), ("data",), values.sources),
    Synonym(("data", "train"), (), values.sources, short=("train",)),
    Synonym(("data", "validation"), (), values.sources, short=("validation",)),
)

# These say together what batch.micro_sequences and batch.sequences say.
PER_DEVICE = ("per_device_train_batch_size", "micro_batch_size", "train_micro_batch_size_per_gpu")
ACCUMULATION = "gradient_accumulation_steps"
WHOLE_STEP = ("train_batch_size", "global_batch_size")
# These two say together what optimizer.betas says: its first and its second number.
BETAS = ("adam_beta1", "adam_beta2")
