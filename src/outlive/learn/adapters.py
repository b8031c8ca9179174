"""Adapters: LoRA through PEFT, its weights in fp32 beside a frozen base."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model

from outlive.modeling.loading import quiet_peft
from outlive.run.config import Adapter
from outlive.run.errors import InputError, nearest


def add_adapter(model: Any, section: Adapter, seed: int) -> Any:
    """`model` with LoRA layers that are trained, and all else frozen. Raises InputError for targets that match nothing.

    The matrices are drawn from `seed`, whatever was drawn before.
    """
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    head = next((name for name, module in model.named_modules() if module is model.get_output_embeddings()), "lm_head")
    if section.targets != "all-linear":
        _check_targets(section.targets, linear, head)
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=section.rank,
        lora_alpha=section.alpha,
        lora_dropout=section.dropout,
        target_modules=section.targets if section.targets == "all-linear" else list(section.targets),
    )
    with torch.random.fork_rng(devices=[]), quiet_peft():
        torch.manual_seed(seed)
        try:
            adapted = get_peft_model(model, config)
        except ValueError as error:
            if section.dropout and "dropout" in str(error):  # experts that are one tensor have no layer to put it in
                raise InputError(
                    "this model's experts are fused, and an adapter on them can have no dropout",
                    where="adapter.dropout",
                    fix="set adapter.dropout=0, or name in adapter.targets the layers that are no experts",
                ) from error
            raise
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
    return adapted


def _check_targets(targets: list[str], linear: set[str], head: str) -> None:
    endings = {name.rpartition(".")[2] for name in linear}
    for target in targets:
        matched = [name for name in linear if name == target or name.endswith(f".{target}")]
        if not matched:
            close = nearest(target, endings)
            raise InputError(
                f"{target!r} matches no linear layer of the model",
                where="adapter.targets",
                fix=f"did you mean {close!r}?"
                if close
                else f"the layers are named {', '.join(sorted(endings - {head}))}",
            )
        if matched == [head]:
            raise InputError(
                f"{target!r} is the head, which an adapter can't be put on",
                where="adapter.targets",
                fix="leave it out",
            )
