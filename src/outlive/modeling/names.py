"""Parameters by the names that the Hugging Face folder of their model has, whatever is wrapped around the model."""

from __future__ import annotations

import re

# Modules that compilers, checkpointing and sharding put around others, anywhere on the way.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_PEFT = "base_model.model."
# PEFT's: the adapter's own name behind its part, and the places where it keeps a layer that it has put itself around.
_ADAPTER_NAME = re.compile(r"(?<=\.)(lora_\w+|trainable_tokens_\w+)\.default(?=\.|$)")
_REPLACED = re.compile(r"\.modules_to_save\.default(?=\.|$)")
_INSIDE = re.compile(r"\.base_layer(?=\.|$)")


def canonical(name: str) -> str:
    """The name on disk of a parameter named as `named_parameters` gives it, without any wrapper's part.

    "_orig_mod.model.norm.weight" → "model.norm.weight"; an adapter's has its part at the end:
    "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight" →
    "model.layers.0.self_attn.q_proj.lora_A.weight". No two parameters of a model get one name.
    """
    name = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    while name.startswith("module."):  # DistributedDataParallel, in front only
        name = name.removeprefix("module.")
    name = name.removeprefix(_PEFT)
    return _INSIDE.sub("", _REPLACED.sub("", _ADAPTER_NAME.sub(r"\1", name)))
