"""Weights from files into a model, one tensor after the other, through the readers of outlive.checkpoint.

The model is built without memory (torch's meta device). Each tensor then gets memory in the dtype that it is wanted in,
and is filled block by block: beside the model there is one block in memory, whatever the layout of the folder. What is
in no file (rotary frequencies and other buffers) is computed by the model's own `initialize_weights`, as transformers
does it. The one place that asks transformers how it loads; seen on 5.24.0 (PreTrainedModel.from_pretrained), with which
tests/modeling/test_streaming.py compares every tensor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PretrainedConfig
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, build_glob_alternation
from transformers.initialization import meta_device_safe_creation_ops

from outlive.checkpoint.families.family import Family
from outlive.checkpoint.families.table import FAMILIES
from outlive.checkpoint.formats.huggingface import INDEX as SHARDED
from outlive.checkpoint.formats.huggingface import SINGLE, open_model
from outlive.checkpoint.formats.pickled import open_state_dict
from outlive.checkpoint.formats.safetensors import open_tensors
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.tensor import BLOCK, Tensor, blocks_of, extent, slices

_FAMILY = {kind: family for family in FAMILIES for kind in family.model_types}
_MOVED = (r"rotary_emb\.inv_freq", r"(^|\.)position_ids$")  # in old folders: buffers that are computed anew


@dataclass
class Loaded:
    """`missing`: names of the model that are in no file. `misfits`: name, shape in the files, shape in the model.
    `unused`: names of the files that have no place in the model. The model is whole where the first two are empty."""

    model: Any
    missing: list[str] = field(default_factory=list)
    misfits: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


def load_folder(
    folder: Path, config: PretrainedConfig, dtype: torch.dtype, implementation: str, code: bool, notes: list[str]
) -> Loaded:
    """The model of `folder`, through `stream_model`; through transformers where that is not possible, and a note says
    why. `code`: whether Python code that comes with the model may be run."""
    if getattr(config, "quantization_config", None) is not None:
        why = "the weights are quantised"
    elif code and getattr(config, "auto_map", None):
        why = "the model brings its own code"
    else:
        loaded = stream_model(folder, config, dtype, implementation)
        if isinstance(loaded, Loaded):
            return loaded
        why = loaded
    notes.append(f"transformers reads the weights itself, which takes more memory: {why}")
    model, report = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        attn_implementation=implementation,
        trust_remote_code=code,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # raised by the caller, by name
    )
    misfits = [(name, tuple(found), tuple(wanted)) for name, found, wanted in report["mismatched_keys"]]
    return Loaded(model, sorted(report["missing_keys"]), sorted(misfits), sorted(report["unexpected_keys"]))


def stream_model(folder: Path, config: PretrainedConfig, dtype: torch.dtype, implementation: str) -> Loaded | str:
    """The model of `folder` on the CPU in `dtype`, as from_pretrained makes it: tied, in evaluation mode, with its
    generation config. The modules that the model's makers keep in fp32 are kept so.

    The reason (a text) where the files can't be read into the modules here: a family that outlive.checkpoint.families
    does not know, and names or layouts that are not the modules' own. Raises InputError where a file is damaged or
    experts are incomplete, WorkError where one can't be read.
    """
    model = _empty(folder, config, dtype, implementation)
    live: dict[str, torch.Tensor] = model.state_dict(keep_vars=True)
    tensors, family = _open(folder), _FAMILY.get(config.model_type)
    values = config.to_dict()
    if family is None or not tensors.keys() & family.expected(values).keys():
        tensors = _with_prefix(tensors, model.base_model_prefix, live)
    if family is not None:
        tensors = _as_modules(family, tensors, values, live)
    elif why := _why_not_plain(model, tensors, live):
        return why
    loaded = Loaded(model, _missing(model, tensors, live))
    loaded.unused = sorted(name for name in tensors if name not in live and not _expects(model, name))
    for name, tensor in sorted(live.items()):
        if name in tensors and tuple(tensors[name].shape) != tuple(tensor.shape):
            loaded.misfits.append((name, tuple(tensors[name].shape), tuple(tensor.shape)))
    if not loaded.missing and not loaded.misfits:
        _fill(model, {name: tensors[name] for name in live if name in tensors}, dtype)
        _generation(model, folder)
    return loaded


def _empty(folder: Path, config: PretrainedConfig, dtype: torch.dtype, implementation: str) -> Any:
    """The model without memory for its tensors."""
    with torch.device("meta"), meta_device_safe_creation_ops():
        model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation, dtype=dtype)
    model.config.name_or_path = str(folder)  # of a folder with a vision tower too, this is the text model's config
    return model


def _open(folder: Path) -> Mapping[str, Tensor]:
    """The tensors of a folder, of the files that transformers would take."""
    if (folder / SINGLE).is_file():
        return open_tensors(folder / SINGLE)
    return (open_model(folder) if (folder / SHARDED).is_file() else open_state_dict(folder)).tensors


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str, live: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """The names of a model with a head, where the folder holds the model without one: those lack a prefix."""
    if not prefix or any(name.startswith(f"{prefix}.") for name in tensors):
        return tensors
    if not any(f"{prefix}.{name}" in live for name in tensors):
        return tensors
    return {name if name in live else f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _as_modules(
    family: Family, tensors: Mapping[str, Tensor], config: Mapping[str, Any], live: Mapping[str, Any]
) -> dict[str, Tensor]:
    """A folder of any layout that the family has, by the names and in the layout of the modules."""
    fused = family.fused(family.canonical(tensors, config), config)
    return {_of_text(name, live): tensor for name, tensor in fused.items()}


def _of_text(name: str, live: Mapping[str, Any]) -> str:
    """The name in a language model that is loaded without the vision tower that the folder has too."""
    alone = name.replace("model.language_model.", "model.", 1)
    return alone if name not in live and alone in live else name


def _why_not_plain(model: Any, tensors: Mapping[str, Tensor], live: Mapping[str, Any]) -> str | None:
    kind = model.config.model_type
    if any(isinstance(one, WeightConverter) for one in get_model_conversion_mapping(model, add_legacy=False)):
        return f"there is no table of tensors for {kind}, whose files have another layout than its modules"
    others = [name for name in tensors if name not in live and not _expects(model, name)]
    if others or _missing(model, tensors, live):
        return f"there is no table of tensors for {kind}, and its files have other names than its modules"
    return None


def _missing(model: Any, tensors: Mapping[str, Tensor], live: Mapping[str, Any]) -> list[str]:
    """What is in no file, but for what is tied to a tensor that is, and what the model's makers make anew."""
    anew = model._keys_to_ignore_on_load_missing or ()
    tied: dict[str, str] = model.all_tied_weights_keys
    there = {tied.get(name, name) for name in tensors}  # of those that are tied: which one of them all are tied to
    return sorted(
        name
        for name in live
        if name not in tensors and tied.get(name, name) not in there and not any(re.search(one, name) for one in anew)
    )


def _expects(model: Any, name: str) -> bool:
    """Whether the model's makers say that folders may hold a tensor of this name which it does not use."""
    buffers = [buffer for buffer, _ in model.named_buffers()]
    moved = [one for one in _MOVED if any(re.search(one, buffer) for buffer in buffers)]
    return any(re.search(one, name) for one in (*(model._keys_to_ignore_on_load_unexpected or ()), *moved))


def _fill(model: Any, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Give every tensor of the model memory and its values."""
    wanted = _dtypes(model, dtype)
    tied: dict[str, str] = model.all_tied_weights_keys
    known = {*tied, *tied.values()}
    absent = {name for name in wanted if name not in tensors}
    for name, tensor in tensors.items():
        # The mark keeps `initialize_weights` from drawing it anew.
        _put(model, name, _read(tensor, wanted[name]), mark=True)
    for name in absent - known:
        _put(model, name, torch.empty_like(model.get_parameter_or_buffer(name), device="cpu"))
    for name in absent & known:
        model.get_parameter_or_buffer(name)._is_hf_initialized = True  # without memory until it is tied
    for name, buffer in model.named_non_persistent_buffers():
        _put(model, name, torch.empty_like(buffer, device="cpu"))
    model.initialize_weights()
    model.tie_weights(missing_keys=absent, recompute_mapping=False)
    model.eval()


def _dtypes(model: Any, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The dtype of each tensor: what the modules were built with, or what their makers want kept in fp32."""
    wanted = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    if plan := model._get_dtype_plan(dtype):
        pattern, globs, _ = build_glob_alternation(list(plan))
        for name in wanted:
            if (found := pattern.search(name)) is not None:
                wanted[name] = plan[globs[found.lastgroup]]
    return wanted


def _read(tensor: Tensor, dtype: torch.dtype) -> torch.Tensor:
    """All of a tensor, read and cast block by block."""
    out = torch.empty(tensor.shape, dtype=dtype)
    own = getattr(torch, tensor.dtype)
    for box in blocks_of(tensor.whole, DTYPES[tensor.dtype].width, BLOCK):
        raw = np.ascontiguousarray(tensor.read(box)).reshape(-1)
        block = torch.from_numpy((raw if raw.flags.writeable else raw.copy()).view(np.uint8)).view(own)
        out[slices(box)].copy_(block.view(extent(box)))
    return out


def _put(model: Any, name: str, values: torch.Tensor, mark: bool = False) -> None:
    """Set a parameter or buffer of the model."""
    path, _, last = name.rpartition(".")
    module = model.get_submodule(path)
    if last in module._parameters:
        values = torch.nn.Parameter(values, requires_grad=values.is_floating_point())
    if mark:
        values._is_hf_initialized = True  # type: ignore[attr-defined]
    setattr(module, last, values)


def _generation(model: Any, folder: Path) -> None:
    """The folder's generation config; where it has none, what config.json says of generation (as BART's does)."""
    if not model.can_generate():
        return
    try:
        model.generation_config = GenerationConfig.from_pretrained(folder)
    except OSError:
        model.generation_config = GenerationConfig.from_pretrained(
            folder, config_file_name="config.json", _from_model_config=True
        )
