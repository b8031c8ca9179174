"""The field's names for our keys: one table, each use noted, two names for one key refused.

Names are accepted at the top level of a run file, in overrides, and inside the section that their key belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.run.errors import InputError
from outlive.run.settings.base import Mistake
from outlive.run.yaml_file import Key, dotted, shown

NO_EFFECT = object()  # what a conversion returns for a value that asks for nothing, such as max_steps: -1


@dataclass(frozen=True)
class Given:
    """A key as someone wrote it, its value, and where ("run.yaml:3", "override lr=1e-4")."""

    key: Key
    value: Any
    place: str


@dataclass(frozen=True)
class Synonym:
    """Other names of `key`. `short` ones are accepted only inside the key's section."""

    key: tuple[str, ...]
    names: tuple[str, ...]
    convert: Callable[[Any], Any] | None = None
    remark: str = ""
    short: tuple[str, ...] = ()


def _choice(**names: Any) -> Callable[[Any], Any]:
    # YAML values as texts: true and false are among the names.
    return lambda value: names.get(shown(value), value)


def _adamw(value: Any) -> Any:
    return "adamw" if value in ("adamw_torch", "adamw_torch_fused", "adamw_hf") else value


def _share_below_1(value: Any) -> Any:
    if isinstance(value, int | float) and value >= 1:
        raise Mistake("a ratio is less than 1", fix="set optimizer.warmup to a share below 1, or to a number of steps")
    return value


def _validation(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value >= 1:
            raise Mistake("a number of validation rows is not built in this version", fix="give a share below 1")
        return value or None
    return value


def _targets(value: Any) -> Any:
    if value in ("all", "all-linear"):
        return "all-linear"
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _all_linear(value: Any) -> Any:
    if value is True:
        return "all-linear"
    raise Mistake("adapters on other layers need their names", fix="list the layers in adapter.targets")


def source_of(text: str) -> dict[str, str]:
    """A source named by one text: a path when it exists or has a file's ending, else a hub data set when it has the
    form org/name, else a path."""
    ends_as_a_file = re.search(r"\.(jsonl?|parquet|csv|tsv|txt|arrow|gz|zst)$", text)
    is_hub_id = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", text) and not ends_as_a_file
    return {"hub": text} if is_hub_id and not Path(text).exists() else {"path": text}


def _sources(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    return [source_of(item) if isinstance(item, str) else item for item in items]


def _last_part(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) else value


def _positive_or_none(value: Any) -> Any:
    return NO_EFFECT if isinstance(value, int) and value <= 0 else value


TABLE: tuple[Synonym, ...] = (
    Synonym(("model",), ("model_name_or_path", "base_model", "model_name", "pretrained_model_name_or_path")),
    Synonym(("name",), ("output_dir",), _last_part, "the run folder is runs/<name>"),
    Synonym(("name",), ("run_name",)),
    Synonym(
        ("data", "train"),
        ("datasets", "dataset", "dataset_name", "train_dataset", "train_file", "dataset_path", "data_path"),
        _sources,
    ),
    Synonym(("data", "validation"), ("val_set_size", "val_size"), _validation),
    Synonym(("data", "validation"), ("eval_dataset", "test_datasets"), _sources),
    Synonym(
        ("data", "sequence_length"),
        ("max_length", "max_seq_length", "max_seq_len", "seq_length", "cutoff_len", "sequence_len"),
    ),
    Synonym(
        ("data", "packing"),
        ("packing", "sample_packing", "neat_packing"),
        _choice(true="best_fit", false="none"),
        "samples in one pack never see each other",
        short=("packing",),
    ),
    Synonym(("data", "loss_on"), ("train_on_inputs", "train_on_prompt"), _choice(true="all", false="assistant")),
    Synonym(("data", "loss_on"), ("assistant_only_loss",), _choice(true="assistant", false="all")),
    Synonym(("data", "system"), ("default_system", "default_system_message", "system_prompt")),
    Synonym(("data", "chat_template"), ("chat_template_path",)),
    Synonym(("method", "name"), ("stage",)),
    Synonym(("adapter", "kind"), ("finetuning_type",), lambda value: NO_EFFECT if value == "full" else value),
    Synonym(("adapter", "rank"), ("lora_r", "lora_rank"), short=("r",)),
    Synonym(("adapter", "alpha"), ("lora_alpha",)),
    Synonym(("adapter", "dropout"), ("lora_dropout",)),
    Synonym(("adapter", "targets"), ("lora_target_modules", "lora_target"), _targets, short=("target_modules",)),
    Synonym(("adapter", "targets"), ("lora_target_linear",), _all_linear),
    Synonym(("optimizer", "name"), ("optim",), _adamw),
    Synonym(("optimizer", "lr"), ("learning_rate",)),
    Synonym(
        ("optimizer", "schedule"),
        ("lr_scheduler_type", "lr_scheduler"),
        _choice(constant_with_warmup="constant"),
        "warm-up is optimizer.warmup",
    ),
    Synonym(("optimizer", "warmup"), ("warmup_ratio",), _share_below_1),
    Synonym(("optimizer", "warmup"), ("warmup_steps",)),
    Synonym(("optimizer", "weight_decay"), ("weight_decay",)),
    Synonym(("optimizer", "eps"), ("adam_epsilon",)),
    Synonym(("optimizer", "clip"), ("max_grad_norm", "gradient_clipping")),
    Synonym(("stop", "epochs"), ("num_train_epochs", "num_epochs")),
    Synonym(("stop", "steps"), ("max_steps",), _positive_or_none),
    Synonym(("precision",), ("bf16",), _choice(true="bf16", false="fp32")),
    Synonym(
        ("precision",), ("fp16",), lambda value: NO_EFFECT if value is False else "fp16" if value is True else value
    ),
    Synonym(("activation_checkpointing",), ("gradient_checkpointing",)),
    Synonym(("checkpoint", "every"), ("save_steps",)),
    Synonym(("checkpoint", "keep"), ("save_total_limit",)),
    Synonym(("track",), ("report_to",), lambda value: NO_EFFECT if value in ("none", [], ["none"]) else value),
    # One text in place of a section or a list: see _SHORTHANDS.
    Synonym(("optimizer", "name"), ("optimizer",), _adamw),
    Synonym(("adapter", "kind"), ("adapter",)),
    Synonym(("method", "name"), ("method",)),
    Synonym(("data", "train"), ("data",), _sources),
    Synonym(("data", "train"), (), _sources, short=("train",)),
    Synonym(("data", "validation"), (), _sources, short=("validation",)),
)
# These two say together what one of ours says.
PER_DEVICE = ("per_device_train_batch_size", "micro_batch_size")
ACCUMULATION = "gradient_accumulation_steps"

_TOP = {name: synonym for synonym in TABLE for name in synonym.names}
_INSIDE = {
    (synonym.key[0], name): synonym
    for synonym in TABLE
    if len(synonym.key) > 1
    for name in (*synonym.names, *synonym.short)
    if name != synonym.key[0] and (name != synonym.key[1] or name in synonym.short)
}
# Our own keys, which are read as another name only for a value of this type.
_SHORTHANDS: dict[Key, type] = {
    ("optimizer",): str,
    ("adapter",): str,
    ("method",): str,
    ("data",): str,
    ("data", "train"): str,
    ("data", "validation"): str,
    ("data", "packing"): bool,
}


def known_names(section: str | None) -> list[str]:
    """The other names that are accepted inside `section`, or at the top level (None)."""
    if section is None:
        return [*_TOP, *PER_DEVICE, ACCUMULATION]
    return [name for inside, name in _INSIDE if inside == section]


def is_synonym(key: Key, value: Any) -> bool:
    """Whether `key`, as written, is another name of one of our keys. A section given as one text is one, too."""
    if key in _SHORTHANDS:
        return isinstance(value, _SHORTHANDS[key])
    if key[-1] == ACCUMULATION or key[-1] in PER_DEVICE:
        return len(key) == 1 or key[:-1] == ("batch",)
    return _synonym(key) is not None


def translate(given: list[Given], current: dict[str, Any]) -> tuple[list[tuple[Given, Given]], list[str]]:
    """The same settings as pairs (as written, under our key), and one note per name used.

    `current` is what the file has set so far. InputError with both places when two names say the same key.
    """
    settings: list[tuple[Given, Given]] = []
    notes: list[str] = []
    batch = [item for item in given if item.key[-1] == ACCUMULATION or item.key[-1] in PER_DEVICE]
    for item in given:
        synonym = None if item in batch else _synonym(item.key)
        if synonym is None:
            continue
        value = NO_EFFECT if item.value is None else _converted(synonym, item)
        if value is NO_EFFECT:
            notes.append(f"{dotted(item.key)}: {shown(item.value)} asks for nothing, not set")
            continue
        settings.append((item, Given(synonym.key, value, item.place)))
        notes.append(_note([item], synonym.key, value, value != item.value, synonym.remark))
    for members, setting in _batch(batch, current):
        settings.append((members[0], setting))
        notes.append(_note(members, setting.key, setting.value, len(members) > 1, "on one device"))
    refuse_twice(settings)
    return settings, notes


def refuse_twice(settings: list[tuple[Given, Given]]) -> None:
    """InputError when two of (as written, as ours) set the same key."""
    seen: dict[Key, Given] = {}
    for written, ours in settings:
        first = seen.setdefault(ours.key, written)
        if first is not written:
            raise two_names(first, written, ours.key)


def two_names(first: Given, second: Given, key: Key) -> InputError:
    """The error for two settings of one key: both names, both places."""
    names = dotted(first.key), dotted(second.key)
    what = f"{names[0]} is given twice" if names[0] == names[1] else f"{names[0]} and {names[1]} both set {dotted(key)}"
    return InputError(what, where=f"{first.place} and {second.place}", fix=f"keep one; its name here is {dotted(key)}")


def _synonym(key: Key) -> Synonym | None:
    if len(key) == 1:
        return _TOP.get(str(key[0]))
    return _INSIDE.get((str(key[0]), str(key[1]))) if len(key) == 2 else None


def _converted(synonym: Synonym, item: Given) -> Any:
    try:
        return synonym.convert(item.value) if synonym.convert else item.value
    except Mistake as mistake:
        raise InputError(f"{dotted(item.key)}: {mistake.what}", where=item.place, fix=mistake.fix) from mistake


def _batch(given: list[Given], current: dict[str, Any]) -> list[tuple[list[Given], Given]]:
    device = [item for item in given if item.key[-1] in PER_DEVICE and item.value is not None]
    passes = [item for item in given if item.key[-1] == ACCUMULATION and item.value is not None]
    for several in (device, passes):
        if len(several) > 1:
            raise two_names(several[0], several[1], ("batch", "micro_sequences" if several is device else "sequences"))
    for item in (*device, *passes):
        if not isinstance(item.value, int) or isinstance(item.value, bool) or item.value < 1:
            raise InputError(
                f"{dotted(item.key)}: {shown(item.value)}, expected a whole number from 1", where=item.place
            )
    if not device and not passes:
        return []
    section = current.get("batch")
    section = section if isinstance(section, dict) else {}
    size = device[0].value if device else section.get("micro_sequences")
    if not isinstance(size, int):
        raise InputError(
            f"{ACCUMULATION} alone does not say how large a step is",
            where=passes[0].place,
            fix=f"also set {PER_DEVICE[0]}, or set batch.sequences or batch.tokens in place of both",
        )
    result = [(device, Given(("batch", "micro_sequences"), size, device[0].place))] if device else []
    if passes or section.get("sequences") is None:
        num_passes = passes[0].value if passes else 1
        place = (passes or device)[0].place
        result.append(([*passes, *device], Given(("batch", "sequences"), size * num_passes, place)))
    return result


def _note(written: list[Given], key: Key, value: Any, changed: bool, remark: str) -> str:
    names = " × ".join(f"{dotted(item.key)} {shown(item.value)}" if changed else dotted(item.key) for item in written)
    note = f"{names}: taken as {dotted(key)}" + (f" {shown(value)}" if changed else "")
    return f"{note} ({remark})" if remark else note
