"""An adapter_config.json for tensors that have none, from what their names and shapes show, and from what is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.checkpoint.adapters.names import module_of
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError


@dataclass(frozen=True)
class Asked:
    """What the user says of an adapter."""

    rank: int | None = None
    alpha: float | None = None
    save_modules: bool = False


def config_of(
    *, rank: int, alpha: float, targets: Sequence[str], saved: Sequence[str] = (), base: str | None = None,
    tied: bool = False, turned: bool = False, **others: Any,
) -> dict[str, Any]:  # fmt: skip
    """The fields of PEFT's LoraConfig that decide what tensors mean, and the few that readers ask for."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": turned,
        "init_lora_weights": True,
        "target_modules": list(targets),
        "modules_to_save": list(saved) or None,
        **({"ensure_weight_tying": True} if tied else {}),
        **others,
    }


def config_from(tensors: Mapping[str, Tensor], asked: Asked, where: str) -> dict[str, Any]:
    """The config of tensors with plain names. The rank is that of most of them, the others stand in rank_pattern.

    Raises InputError without alpha, which no tensor shows, and for a rank that they do not have; also for trained token
    rows, whose tokens no tensor names.
    """
    ranks = {
        module_of(name): tensor.shape[0]
        for name, tensor in tensors.items()
        if name.endswith((".lora_A.weight", ".lora_embedding_A")) and tensor.shape
    }
    if any(name.endswith("trainable_tokens_delta") for name in tensors):
        what = "rows of tokens were trained, and no tensor says of which"
        raise InputError(what, where=where, fix="name the folder of the adapter_config.json: --like DIR")
    if nested := [name for name in tensors if ".experts" in name and ".lora_" in name]:
        what = f"experts were trained ({nested[0]}), and no tensor says in which of their parameters"
        raise InputError(what, where=where, fix="name the folder of the adapter_config.json: --like DIR")
    if not ranks:
        raise InputError("there is no lora_A among the tensors", where=where, fix="save the whole adapter")
    if asked.alpha is None:
        raise InputError(
            "nothing says the adapter's alpha: there is no adapter_config.json, and no tensor shows it",
            where=where,
            fix="give it: --alpha N, as in the settings of the training; or --like DIR, the folder of the config",
        )
    _check_alpha(asked.alpha)
    common = Counter(ranks.values()).most_common(1)[0][0] if asked.rank is None else asked.rank
    if common not in ranks.values():
        raise InputError(
            f"the tensors have rank {', '.join(map(str, sorted(set(ranks.values()))))}, and --rank is {common}",
            where=where,
            fix="leave --rank out: the shapes show it",
        )
    others: dict[str, Any] = {"rank_pattern": {path: rank for path, rank in sorted(ranks.items()) if rank != common}}
    others["use_dora"] = any(name.endswith(".lora_magnitude_vector") for name in tensors)
    others["lora_bias"] = any(name.endswith(".lora_B.bias") for name in tensors)
    whole = sorted({module_of(name) for name in tensors} - ranks.keys())
    return config_of(rank=common, alpha=asked.alpha, targets=sorted(ranks), saved=whole, **others)


def settled(config: Mapping[str, Any], asked: Asked, where: str) -> dict[str, Any]:
    """A config that was found, which has to say what is asked for. InputError where it says another thing."""
    for option, key, wanted in (("--rank", "r", asked.rank), ("--alpha", "lora_alpha", asked.alpha)):
        if wanted is not None and config.get(key) != wanted:
            raise InputError(
                f"{option} is {wanted:g}, and the config has {key} {config.get(key)}",
                where=where,
                fix=f"leave {option} out, or give the config of these tensors: --like DIR",
            )
    if "lora_alpha" not in config:
        what = "the config does not say lora_alpha, and its default is another in other versions"
        raise InputError(what, where=where, fix="write lora_alpha into it")
    return {**config, "inference_mode": True}


def _check_alpha(alpha: float) -> None:
    if not 0 < abs(alpha) < 1e30:
        raise InputError(f"alpha is {alpha:g}", where="--alpha", fix="give a number that is not 0")
