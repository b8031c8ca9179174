"""Which tensors of a checkpoint are an adapter's: what LoRA trained, and the modules that are saved as a whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from outlive.checkpoint.adapters.names import is_low_rank, module_of, plain_names
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError


@dataclass(frozen=True)
class Kept:
    """tensors: by PEFT's names without its prefix. left: names of the checkpoint's other tensors."""

    tensors: dict[str, Tensor]
    left: list[str]


def kept_of(model: Model, config: Mapping[str, Any] | None, save_modules: bool, where: str, *, of_peft: bool) -> Kept:
    """The adapter's tensors of a checkpoint. of_peft: it is a file that PEFT wrote, with nothing else in it.

    Where the checkpoint holds all weights (a layer that an adapter is around has its own there too), the base's are
    left out. Raises InputError for a tensor of which nothing says what it is.
    """
    named, left = plain_names(model.tensors, where)
    by_name = {id(tensor): key for key, tensor in model.tensors.items()}
    if of_peft:
        return Kept(named, left)
    adapted = {module_of(name) for name in named if is_low_rank(name)}
    saved = _listed(config, "modules_to_save")
    biases = (config or {}).get("bias", "none")
    with_base = any(".base_layer." in name for name in named)
    with_saved = {module_of(key) for key in _saved_keys(model.tensors)}
    found: dict[str, Tensor] = {}
    strange = []
    for name, tensor in named.items():
        path = module_of(name)
        is_bias = name.endswith(".bias") and (biases == "all" or (biases == "lora_only" and path in adapted))
        if is_low_rank(name):
            found[name] = tensor
        elif is_bias:
            found[_around(name, path, adapted)] = tensor
        elif path in with_saved or _ends_with_any(path, saved):
            found[name] = tensor
        elif with_base:
            left.append(by_name[id(tensor)])
        elif save_modules and config is None:
            found[name] = tensor
        else:
            strange.append(by_name[id(tensor)])
    if strange:
        raise InputError(
            f"{len(strange):,} tensors are neither LoRA's nor of a module saved as a whole, such as {strange[0]}",
            where=where,
            fix="name their modules in modules_to_save of the adapter_config.json; without one add --save-modules",
        )
    _check_experts(found, config, where)
    return Kept(found, sorted(left))


def _saved_keys(names: Collection[str]) -> list[str]:
    """Plain names of what lies in a module that PEFT saves as a whole."""
    marked = {name: 0 for name in names if ".modules_to_save." in name}
    return list(plain_names(marked, "")[0]) if marked else []  # type: ignore[arg-type]


def _listed(config: Mapping[str, Any] | None, key: str) -> list[str]:
    value = (config or {}).get(key) or []
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _ends_with_any(path: str, endings: Collection[str]) -> bool:
    """Whether a module, or one that it is inside of, is named by one of the endings."""
    return any(f".{path}.".find(f".{ending}.") >= 0 for ending in endings)


def _around(name: str, path: str, adapted: Collection[str]) -> str:
    """A bias of a module that an adapter is around lies in the layer inside."""
    return f"{path}.base_layer.bias" if path in adapted else name


def _check_experts(tensors: Mapping[str, Tensor], config: Mapping[str, Any] | None, where: str) -> None:
    """Adapters of several parameters of one module lie inside each other; names that do not show it are ambiguous."""
    owners = [name.rpartition(".")[0] for name in _listed(config, "target_parameters")]
    if len(owners) == len(set(owners)) or any(".base_layer." in name for name in tensors):
        return
    what = "adapters of several parameters of one module are here under names that do not tell them apart"
    raise InputError(what, where=where, fix="take the adapter's own folder: adapter_model.safetensors")
