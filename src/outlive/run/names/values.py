"""How values under the field's names become values of our keys: units, spellings, and what asks for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.run.names.row_formats import row_format
from outlive.run.settings.base import Mistake
from outlive.run.yaml_file import shown

NO_EFFECT = object()  # what a conversion returns for a value that asks for nothing, such as max_steps: -1
NO_ADAPTER = object()  # all weights are trained: the adapter section is to be absent
Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Weak:
    """A value that holds only where no other name sets the same key: fp16: true beside bf16: false means fp16.

    A Mistake as `value` is raised where nothing else sets the key.
    """

    value: Any


def is_number(value: Any) -> bool:
    """A number, and not true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def choice(**names: Any) -> Convert:
    """By name; other values are left as they are. YAML values as texts: true and false are among the names."""

    def convert(value: Any) -> Any:
        return names.get(shown(value), value)

    settled = {name: found.value if isinstance(found, Weak) else found for name, found in names.items()}
    convert.__doc__ = ", ".join(f"{name} is {found}" for name, found in settled.items())
    return convert


def adamw(value: Any) -> Any:
    """the many names of AdamW"""
    name = str(value).lower()
    if name in ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_anyprecision", "torch.optim.adamw"):
        return "adamw"
    if re.fullmatch(r"(paged_)?adamw_(bnb_|torch_)?8bit|paged_adamw(_32bit)?|bitsandbytes\.optim\..*adamw.*", name):
        return "adamw_8bit"
    return "adamw" if name == "adamw" else value


def schedule(value: Any) -> Any:
    """constant_with_warmup is constant, cosine_with_min_lr is cosine"""
    names = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine", "cosine_warmup_with_min_lr": "cosine"}
    return names.get(value, value) if isinstance(value, str) else value


def end_of_schedule(value: Any) -> Any:
    """only {min_lr_rate: …}: the end of the schedule as a share of the peak"""
    if isinstance(value, dict) and not value:
        return NO_EFFECT
    if isinstance(value, dict) and set(value) == {"min_lr_rate"}:
        return value["min_lr_rate"]
    raise Mistake(
        "of these only min_lr_rate is known here", fix="set optimizer.min_lr_ratio to the share of the peak at the end"
    )


def share_below_1(value: Any) -> Any:
    """a share below 1; 0 gives way to another name"""
    if is_number(value) and value >= 1:
        raise Mistake("a ratio is less than 1", fix="set optimizer.warmup to a share below 1, or to a number of steps")
    return Weak(value) if value == 0 else value


def warmup_steps(value: Any) -> Any:
    """0 gives way to another name"""
    return Weak(value) if is_number(value) and value == 0 else value


def clip(value: Any) -> Any:
    """0 is null"""
    if value == "auto":
        return NO_EFFECT
    return None if is_number(value) and value == 0 else value


def epochs(value: Any) -> Any:
    """whole epochs only"""
    if isinstance(value, float) and not value.is_integer():
        raise Mistake("epochs are whole here", fix="set stop.steps to the steps that this part of an epoch has")
    return value


def save_steps(value: Any) -> Any:
    """whole steps only; 0 asks for nothing"""
    if is_number(value) and 0 < value < 1:
        raise Mistake("a share of all steps is not known here", fix="set checkpoint.every to a number of steps")
    return NO_EFFECT if is_number(value) and value <= 0 else value


def save_strategy(value: Any) -> Any:
    """no is null: only the last step; steps asks for nothing"""
    if value == "steps":
        return NO_EFFECT
    if value in ("no", False):
        return None
    raise Mistake("checkpoints are counted in steps here", fix="set checkpoint.every to a number of steps, or to null")


def keep(value: Any) -> Any:
    """0 is null: all are kept"""
    return None if is_number(value) and value <= 0 else value


def best_at_end(value: Any) -> Any:
    """true is validation_loss"""
    return "validation_loss" if value is True else NO_EFFECT if value is False else value


def best_measure(value: Any) -> Any:
    """loss and eval_loss are validation_loss"""
    return "validation_loss" if value in ("loss", "eval_loss", "validation_loss") else value


def validation(value: Any) -> Any:
    """0 is null; a share below 1 only"""
    if is_number(value):
        if value >= 1:
            raise Mistake("a number of validation rows is not built in this version", fix="give a share below 1")
        return value or None
    return value


def no_validation(value: Any) -> Any:
    """no is null, steps and epoch ask for nothing"""
    if value in ("no", False):
        return Weak(None)
    if value in ("steps", "epoch", True):
        return NO_EFFECT
    return value


def targets(value: Any) -> Any:
    """all is all-linear; a text is split at commas"""
    if value in ("all", "all-linear", ["all-linear"], ["all"]):
        return "all-linear"
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def all_linear(value: Any) -> Any:
    """true is all-linear; false gives way to another name"""
    if value is True:
        return "all-linear"
    return Weak(Mistake("adapters on other layers need their names", fix="list the layers in adapter.targets"))


def adapter_kind(value: Any) -> Any:
    """full: all weights are trained, no adapter"""
    return NO_ADAPTER if value in ("full", "none") else value


def use_peft(value: Any) -> Any:
    """true is lora, false is no adapter"""
    return Weak("lora") if value is True else NO_ADAPTER if value is False else value


def variant(kind: str) -> Convert:
    """A switch for one kind of adapter."""
    return lambda value: kind if value is True else NO_EFFECT if value is False else value


def method(value: Any) -> Any:
    """pt is sft, rm is reward, TRL_SFT is sft"""
    names = {"pt": "sft", "rm": "reward", "hf": "sft"}
    text = str(value).lower().removeprefix("trl_")
    return names.get(text, text if isinstance(value, str) else value)


def overlong(value: Any) -> Any:
    """delete is drop, right is truncate"""
    names = {"delete": "drop", "right": "truncate", "split": "split", "drop": "drop", "truncate": "truncate"}
    if isinstance(value, str) and value in names:
        return names[value]
    raise Mistake("samples are dropped, cut at their end, or split here", fix="set data.overlong to one of the three")


def turn_end(value: Any) -> Any:
    """turn and all are end_of_turn, none is content"""
    names = {"turn": "end_of_turn", "all": "end_of_turn", "none": "content"}
    if isinstance(value, str) and value in names:
        return names[value]
    raise Mistake("every trained turn ends alike here", fix="set data.turn_end to content, end_of_turn or suffix")


def enabled(on: Any, off: Any) -> Convert:
    """A switch, plain or as DeepSpeed's {enabled: …}: `on` for true, `off` for false."""

    def convert(value: Any) -> Any:
        if isinstance(value, dict) and "enabled" in value:
            value = value["enabled"]
            if value == "auto":
                return NO_EFFECT
        return on if value is True else off if value is False else value

    return convert


def dtype(value: Any) -> Any:
    """the computation's format, where no other name says it"""
    names = {"bfloat16": "bf16", "bf16": "bf16", "bf16_mixed": "bf16", "float32": "fp32", "fp32": "fp32", "no": "fp32"}
    names |= {"float16": "fp16", "fp16": "fp16", "half": "fp16"}
    if value == "auto":
        return NO_EFFECT
    return Weak(names.get(str(value).removeprefix("torch."), value))


def switch(name: str) -> Convert:
    """A switch that names a number format of its own: bfloat16: true."""
    return lambda value: Weak(name) if value is True else NO_EFFECT if value is False else value


def recompute(value: Any) -> Any:
    """unsloth is true"""
    if value == "offload":
        raise Mistake("offloading activations is not built in this version", fix="set activation_checkpointing: true")
    return True if value == "unsloth" else value


def negated(value: Any) -> Any:
    """true is false"""
    return not value if isinstance(value, bool) else value


def source_of(text: str) -> dict[str, Any]:
    """A source named by one text: a path when it exists or has a file's ending, else a hub data set when it has the
    form org/name, else a path. org/name#1000 takes the first 1000 rows."""
    name, hash_sign, number = text.rpartition("#")
    if hash_sign and number.isascii() and number.isdigit() and not Path(text).exists():
        return {**source_of(name), "limit": int(number)}
    ends_as_a_file = re.search(r"\.(jsonl?|parquet|csv|tsv|txt|arrow|gz|zst)$", text)
    is_hub_id = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", text) and not ends_as_a_file
    return {"hub": text} if is_hub_id and not Path(text).exists() else {"path": text}


def sources(value: Any) -> Any:
    """a text is a path or a hub id, org/name#1000 its first 1000 rows; commas separate several"""
    items = value if isinstance(value, list) else [value]
    if isinstance(value, str) and "," in value and not Path(value).exists():
        items = [part.strip() for part in value.split(",")]
    return [found for item in items for found in _sources_of(item)]


def _sources_of(item: Any) -> list[Any]:
    if isinstance(item, str):
        return [source_of(item)]
    if not isinstance(item, dict) or not isinstance(item.get("path"), str):
        return [item]
    named = row_format(item)
    entry = {key: value for key, value in named.items() if key not in ("path", "data_files", "ds_type")}
    files = item.get("data_files")
    if files is None:
        return [{**source_of(item["path"]), **entry}]
    split = {} if entry.pop("split", "train") == "train" else {"split": item["split"]}  # of files, the whole is it
    return [{"path": file, **entry, **split} for file in (files if isinstance(files, list) else [files])]


def last_part(value: Any) -> Any:
    """only its last part"""
    return Path(value).name if isinstance(value, str) else value


def positive_or_none(value: Any) -> Any:
    """0 and -1 ask for nothing"""
    return NO_EFFECT if is_number(value) and value <= 0 else value


def trackers(value: Any) -> Any:
    """none asks for nothing"""
    return NO_EFFECT if value in ("none", [], ["none"]) else value


def last_turn(value: Any) -> Any:
    """true is last_assistant"""
    return "last_assistant" if value is True else NO_EFFECT if value is False else value
