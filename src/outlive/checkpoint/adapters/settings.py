"""What an adapter_config.json says of how the tensors beside it are to be read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outlive.checkpoint.adapters.patterns import matched
from outlive.checkpoint.formats.huggingface import read_json
from outlive.run.errors import InputError, nearest

NAME = "adapter_config.json"
_OTHER_KINDS = (
    "ADALORA", "ADAPTION_PROMPT", "BOFT", "BONE", "C3A", "FOURIERFT", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "MISS",
    "MULTITASK_PROMPT_TUNING", "OFT", "P_TUNING", "POLY", "PREFIX_TUNING", "PROMPT_TUNING", "RANDLORA", "ROAD",
    "SHIRA", "TRAINABLE_TOKENS", "VBLORA", "VERA", "XLORA",
)  # fmt: skip
# Fields that don't change the sum that an adapter stands for: where it was put, how it was trained, who made it.
_NO_MATTER = {
    "auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout",
    "lora_ga_config", "megatron_config", "megatron_core", "modules_to_save", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "target_modules", "task_type", "modules_to_tie", "target_modules_to_tie",
    "target_parameters", "peft_type",
}  # fmt: skip
_READ = {
    "r", "lora_alpha", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "use_rslora", "use_dora", "lora_bias",
    "trainable_token_indices", "init_lora_weights",
}  # fmt: skip
_WHY_NOT = {
    "alora_invocation_tokens": "it acts on the tokens after an invocation only, which no merged weight can do",
    "arrow_config": "it chooses among adapters for each token, which no merged weight can do",
    "layer_replication": "it repeats layers of the base",
    "use_qalora": "it adds to the scales of a quantised base",
}
PLAIN_STARTS = (True, False, None, "true", "false", "gaussian", "eva", "orthogonal")


@dataclass(frozen=True)
class Settings:
    """The fields of an adapter_config.json that decide what its tensors mean; `where` is that file.

    `tokens`: module name → rows of its weight that were trained ("" for the input embedding). `start`: how A and B
    began ("pissa" and others have changed the base then). `base`: the model that was trained on, by its trainer's name.
    `factor`: what all scales are times.
    """

    rank: int
    alpha: float
    rank_pattern: dict[str, Any]
    alpha_pattern: dict[str, Any]
    fan_in_fan_out: bool
    rslora: bool
    dora: bool
    tokens: dict[str, list[int]]
    start: Any
    base: str | None
    where: str
    saved: list[str] = field(default_factory=list)
    factor: float = 1.0

    def times(self, factor: float) -> Settings:
        """The settings of an adapter that counts `factor` times."""
        return replace(self, factor=self.factor * factor)

    def scale(self, path: str, rank: int) -> float:
        """alpha / r (https://arxiv.org/abs/2106.09685, section 4.1), or alpha / sqrt(r) (rsLoRA:
        https://arxiv.org/abs/2312.03732), with the alpha of the first pattern that fits the module's path.

        Raises InputError where the rank of the tensors is not the one that the config gives this module.
        """
        key = matched(self.rank_pattern, path, self.where)
        said = self.rank if key is None else self.rank_pattern[key]
        if said != rank:
            raise InputError(
                f"the tensors of {path} have rank {rank}, and the config gives them {said}",
                where=self.where,
                fix="use the adapter_config.json that was saved with these tensors",
            )
        key = matched(self.alpha_pattern, path, self.where)
        alpha = float(self.alpha if key is None else self.alpha_pattern[key])
        return self.factor * (alpha / math.sqrt(rank) if self.rslora else alpha / rank)


def read_settings(folder: Path) -> Settings:
    """The settings of the adapter in `folder`. Raises InputError and WorkError."""
    path = folder / NAME
    if not path.is_file():
        fix = "name the folder that has adapter_config.json and adapter_model.safetensors"
        raise InputError(f"there is no {NAME}: this is no PEFT adapter", where=str(folder), fix=fix)
    return settings_of(read_json(path), str(path))


def settings_of(config: dict[str, Any], where: str) -> Settings:
    """The settings in the content of an adapter_config.json. Raises InputError for what can't be merged rightly."""
    _check_kind(config, where)
    _check_options(config, where)
    rank, alpha = config.get("r"), config.get("lora_alpha", 8)
    if type(rank) is not int or rank < 1 or not _is_number(alpha):
        raise _damaged(f"r is {rank!r} and lora_alpha {alpha!r}", where)
    patterns: dict[str, Any] = {}
    for name in ("rank_pattern", "alpha_pattern"):
        value = config.get(name) or {}
        if not isinstance(value, dict) or not all(_is_number(one) for one in value.values()):
            raise _damaged(f"{name} is {str(value)[:100]}", where)
        patterns[name] = value
    base = config.get("base_model_name_or_path")
    saved = config.get("modules_to_save") or []
    return Settings(
        rank=rank,
        alpha=float(alpha),
        **patterns,
        fan_in_fan_out=bool(config.get("fan_in_fan_out")),
        rslora=bool(config.get("use_rslora")),
        dora=bool(config.get("use_dora")),
        tokens=_tokens(config.get("trainable_token_indices"), where),
        start=config.get("init_lora_weights", True),
        base=base if isinstance(base, str) and base else None,
        where=where,
        saved=[str(name) for name in saved] if isinstance(saved, list) else [str(saved)],
    )


def _check_kind(config: dict[str, Any], where: str) -> None:
    kind = config.get("peft_type")
    if kind == "LORA":
        return
    if kind in _OTHER_KINDS:
        what = f"adapters of the kind {kind} are not merged: only LORA is (with rsLoRA, DoRA, PiSSA, OLoRA)"
        raise InputError(what, where=where, fix="merge it with PEFT: PeftModel.from_pretrained(…).merge_and_unload()")
    close = nearest(str(kind), ["LORA", *_OTHER_KINDS])
    what = f"the adapter's peft_type is {str(kind)[:100]!r}, which is no kind of adapter"
    raise InputError(what, where=where, nearest=close, fix="correct peft_type in adapter_config.json")


def _check_options(config: dict[str, Any], where: str) -> None:
    """Refuse an option that changes what the tensors mean and is not known here: a guess would be silently wrong."""
    for name, value in config.items():
        if name in _READ or name in _NO_MATTER or value in (None, False, {}, []):
            continue
        why = _WHY_NOT.get(name, "it may change what the tensors mean")
        fix = "keep the adapter beside its base and serve both, or merge with the PEFT version that made it"
        raise InputError(f"an adapter with {name} can't be merged: {why}", where=where, fix=fix)
    if config.get("use_dora") and config.get("lora_bias"):
        raise InputError("use_dora and lora_bias exclude each other", where=where, fix="train it with one of them")


def _tokens(value: Any, where: str) -> dict[str, list[int]]:
    named = {"": value} if isinstance(value, list) else value or {}
    if not isinstance(named, dict):
        raise _damaged(f"trainable_token_indices is {str(value)[:100]}", where)
    for indices in named.values():
        whole = isinstance(indices, list) and all(type(index) is int and 0 <= index < 2**31 for index in indices)
        if not whole or len(set(indices)) != len(indices):
            raise _damaged(
                f"trainable_token_indices holds {str(indices)[:100]}: token ids, each once, belong there", where
            )
    return named


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -1e30 < value < 1e30


def _damaged(what: str, where: str) -> InputError:
    return InputError(
        f"the adapter's config is damaged: {what}", where=where, fix="copy it again from where it was made"
    )
