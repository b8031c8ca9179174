"""A PEFT adapter on disk: its settings, and its tensors sorted by the module that each belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outlive.checkpoint.adapters.settings import Settings, read_settings
from outlive.checkpoint.formats.pickled import open_state_dict
from outlive.checkpoint.formats.safetensors import open_tensors
from outlive.checkpoint.tensors.dtypes import DTYPES, is_finite
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

NAME = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"  # of older versions of PEFT
_PREFIX = "base_model.model."
_LOW = re.compile(
    r"(?P<path>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(?:\.(?P<name>(?!weight$|bias$)[^.]+))?(?:\.(?P<leaf>weight|bias))?"
)
_TOKENS = re.compile(r"(?P<path>.+)\.token_adapter\.trainable_tokens_delta(?:\.[^.]+)?")
_GATHER = (
    "save it again with the shards gathered: under ZeRO-3 with stage3_gather_16bit_weights_on_model_save, or inside "
    "deepspeed.zero.GatheredParameters; under FSDP inside summon_full_params"
)


@dataclass
class LowRank:
    """What a module learned: A [r, in] and B [out, r], of an embedding A [r, vocabulary] and B [width, r].

    `bias` [out] is added to B's product (lora_bias), `magnitude` [out] is DoRA's. `depth`: how many wrappers are around
    the module inside which these lie (PEFT nests those of several parameters of one module).
    """

    path: str
    depth: int
    a: Tensor
    b: Tensor
    embedding: bool
    bias: Tensor | None = None
    magnitude: Tensor | None = None

    @property
    def rank(self) -> int:
        """r, of experts r of all of them."""
        return self.a.shape[0]


@dataclass
class Adapter:
    """`low_rank`: by path and depth. `tokens`: module path → rows that replace those of its weight. `saved`: tensors
    that replace others, by the names that they have in the base; `below`: those that replace them under the low-rank
    part, which PEFT saves along (an embedding that was adapted, a bias that was trained)."""

    settings: Settings
    where: str
    low_rank: dict[tuple[str, int], LowRank] = field(default_factory=dict)
    tokens: dict[str, Tensor] = field(default_factory=dict)
    saved: dict[str, Tensor] = field(default_factory=dict)
    below: dict[str, Tensor] = field(default_factory=dict)


def open_adapter(folder: Path) -> Adapter:
    """The adapter in `folder`. Raises InputError for what is none, is damaged or can't be merged; WorkError."""
    settings = read_settings(folder)
    if (folder / NAME).is_file():
        return adapter_of(settings, open_tensors(folder / NAME), str(folder / NAME))
    if (folder / PICKLED).is_file():
        return adapter_of(settings, open_state_dict(folder / PICKLED).tensors, str(folder / PICKLED))
    what = f"the adapter has neither {NAME} nor {PICKLED}"
    raise InputError(what, where=str(folder), fix="copy the folder again, whole")


def adapter_of(settings: Settings, tensors: Mapping[str, Tensor], where: str) -> Adapter:
    """The adapter of these tensors, which have the names of PEFT's files; `where` names their file in errors."""
    adapter = Adapter(settings, where)
    parts: dict[tuple[str, int], dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name = key.removeprefix(_PREFIX)
        if found := _LOW.fullmatch(name):
            path, depth = _unwrapped(found["path"])
            part = found["part"] + ("_bias" if found["leaf"] == "bias" else "")
            _check(key, tensor, where)
            if parts.setdefault((path, depth), {}).setdefault(part, tensor) is not tensor:
                what = f"the adapter holds {part} of {path} twice, as of several adapters in one file"
                raise InputError(what, where=where, fix="save one adapter per folder")
        elif found := _TOKENS.fullmatch(name):
            _check(key, tensor, where)
            adapter.tokens[found["path"]] = tensor
        else:
            _add_whole(adapter, key, name, tensor)
    if not tensors:
        raise InputError("the adapter holds no tensors", where=where, fix=_GATHER)
    adapter.low_rank = {place: _low_rank(place, found, where) for place, found in parts.items()}
    return adapter


def check_finite(adapter: Adapter) -> None:
    """Raise InputError where a number of an adapter is NaN or infinite, as the merged weights would be."""
    named = {**adapter.tokens, **adapter.saved, **adapter.below}
    for low in adapter.low_rank.values():
        parts = {"A": low.a, "B": low.b, "the magnitude": low.magnitude, "the bias": low.bias}
        named |= {f"{part} of {low.path}": tensor for part, tensor in parts.items() if tensor is not None}
    for name, tensor in named.items():
        if not all(is_finite(tensor.read(box), tensor.dtype) for box in tensor.blocks()):
            fix = "take an earlier checkpoint of that training: this one diverged"
            raise InputError(f"{name} holds NaN or infinite numbers", where=adapter.where, fix=fix)


def _add_whole(adapter: Adapter, key: str, name: str, tensor: Tensor) -> None:
    if re.search(r"(^|\.)(lora_|prompt_|ia3_|vera_|hada_|lokr_|oft_|boft_)", name) or ".original_module." in name:
        what = f"the adapter's tensor {key} is of no kind that is known here"
        raise InputError(what, where=adapter.where, fix="merge it with the PEFT version that made it")
    _check(key, tensor, adapter.where)
    if ".base_layer." in name:
        adapter.below[_unwrapped(name)[0]] = tensor
    else:
        adapter.saved[re.sub(r"\.modules_to_save\.[^.]+\.", ".", name)] = tensor


def _unwrapped(path: str) -> tuple[str, int]:
    parts = path.split(".")
    kept = [part for part in parts if part != "base_layer"]
    return ".".join(kept), len(parts) - len(kept)


def _check(key: str, tensor: Tensor, where: str) -> None:
    if 0 in tensor.shape:
        what = f"{key} has the shape {tensor.shape}: its values were sharded over the ranks, and only a stub was saved"
        raise InputError(what, where=where, fix=_GATHER)
    if not DTYPES[tensor.dtype].is_float:
        fix = "save the adapter in bf16, fp16 or fp32"
        raise InputError(f"{key} holds {tensor.dtype}, which is no number format of an adapter", where=where, fix=fix)


def _low_rank(place: tuple[str, int], parts: dict[str, Tensor], where: str) -> LowRank:
    path, depth = place
    embedding = "lora_embedding_A" in parts or "lora_embedding_B" in parts
    names = ("lora_embedding_A", "lora_embedding_B") if embedding else ("lora_A", "lora_B")
    copy = "copy the adapter again from where it was made"
    missing = [name for name in names if name not in parts]
    if missing or (embedding and "lora_A" in parts):
        raise InputError(
            f"the adapter has {', '.join(sorted(parts))} of {path}, and no {missing}", where=where, fix=copy
        )
    a, b, magnitude = parts[names[0]], parts[names[1]], parts.get("lora_magnitude_vector")
    for name, tensor in zip(names, (a, b), strict=True):
        if len(tensor.shape) != 2:
            what = f"{name} of {path} has the shape {tensor.shape}: only those of matrices are merged"
            raise InputError(what, where=where, fix="merge it with PEFT: merge_and_unload()")
    if a.shape[0] != b.shape[1]:
        what = f"{path}: A has the shape {a.shape} and B {b.shape}: their ranks, {a.shape[0]} and {b.shape[1]}, differ"
        raise InputError(what, where=where, fix=copy)
    for name, vector in (("lora_magnitude_vector", magnitude), ("lora_B_bias", parts.get("lora_B_bias"))):
        if vector is not None and vector.shape != (b.shape[0],):
            raise InputError(f"{name} of {path} has the shape {vector.shape}, B {b.shape}", where=where, fix=copy)
    return LowRank(path, depth, a, b, embedding, parts.get("lora_B_bias"), magnitude)
