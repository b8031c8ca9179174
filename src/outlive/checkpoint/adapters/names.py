"""The names of an adapter's tensors: as PEFT writes them into files, whatever a training put around them.

Seen on PEFT 0.21.2 (get_peft_model_state_dict).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from outlive.checkpoint.optimizer import OPTIMIZER
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

PREFIX = "base_model.model."
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# A part, the adapter's own name behind it in memory, and what PEFT leaves behind that in a file.
_NAMED = re.compile(
    r"(?P<before>.+\.)(?P<part>lora_\w+|trainable_tokens_delta)"
    r"(?:\.(?P<name>(?!weight$|bias$)[^.]+))?(?:\.(?P<leaf>weight|bias))?"
)
_SAVED = re.compile(r"(?P<before>.+)\.modules_to_save\.(?P<name>[^.]+)\.(?P<leaf>[^.]+)")
_WITHOUT_LEAF = ("lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector", "trainable_tokens_delta")


def is_adapter(names: Mapping[str, Tensor]) -> bool:
    """Whether tensors of LoRA are among these, an optimizer's apart."""
    return any(re.search(r"(^|\.)lora_", name) for name in names if not name.startswith(OPTIMIZER))


def plain_names(tensors: Mapping[str, Tensor], where: str) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors under PEFT's names without `PREFIX`, and the names of those that are no parameters: an optimizer's, and
    the frozen originals that PEFT keeps beside what it trains.

    InputError where they are of several adapters, or two get one name.
    """
    found: dict[str, Tensor] = {}
    left, adapters = [], set()
    for key, tensor in tensors.items():
        if key.startswith(OPTIMIZER) or ".original_module." in key:
            left.append(key)
            continue
        name, adapter = _plain(key)
        adapters |= {adapter} - {None}
        if name in found and len(adapters) < 2:
            what = f"two tensors are {name}, one of them by the name {key}"
            raise InputError(what, where=where, fix="save the state dict of one model")
        found[name] = tensor
    if len(adapters) > 1:
        named = ", ".join(sorted(str(one) for one in adapters))
        fix = "save one of them: model.save_pretrained(folder, selected_adapters=[NAME])"
        raise InputError(f"the tensors are of {len(adapters)} adapters: {named}", where=where, fix=fix)
    return found, left


def _plain(key: str) -> tuple[str, str | None]:
    parts = [part for part in key.split(".") if part not in _WRAPPERS]
    while parts[0] == "module":  # DistributedDataParallel's
        parts = parts[1:]
    name = ".".join(parts)
    if PREFIX in name:
        name = name[name.rindex(PREFIX) + len(PREFIX) :]
    if found := _SAVED.fullmatch(name):
        return f"{found['before']}.{found['leaf']}", found["name"]
    if found := _NAMED.fullmatch(name):
        leaf = None if found["part"] in _WITHOUT_LEAF else found["leaf"] or "weight"
        return found["before"] + found["part"] + (f".{leaf}" if leaf else ""), found["name"]
    return name, None


def is_low_rank(name: str) -> bool:
    """Whether a plain name is of a part that LoRA trains."""
    return _NAMED.fullmatch(name) is not None


def module_of(name: str) -> str:
    """The path of the module that a plain name is of."""
    found = _NAMED.fullmatch(name)
    path = found["before"].rstrip(".") if found else name.rpartition(".")[0]
    return ".".join(part for part in path.split(".") if part not in ("base_layer", "token_adapter"))
