"""A model or an adapter as its makers' libraries write it, as plain data. The one place that asks how they do it.

Seen on transformers 5.24.0 (PreTrainedModel.save_pretrained, revert_weight_conversion) and PEFT 0.21.2
(PeftModel.save_pretrained); tests/modeling/test_export.py compares the results with theirs.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from transformers.core_model_loading import revert_weight_conversion
from transformers.dynamic_module_utils import custom_object_save
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from outlive.checkpoint.export import Export
from outlive.checkpoint.spellings import both_spellings
from outlive.run.errors import InputError

State = Mapping[str, torch.Tensor]


def export(model: Any, state: State | None = None) -> Export:
    """What is to be written of `model`: an adapter where it is a PEFT model, else all weights.

    `state` holds tensors to write in place of the model's own, by `named_parameters` name (a snapshot). The tensors are
    the model's own or views of them, but for experts that are fused in memory: transformers splits them into copies.
    Raises InputError where `state` does not fit the model, and for what can't be written: quantized weights, several
    adapters at once.
    """
    tensors = _with_snapshot(model, state or {})
    return _adapter(model, tensors) if isinstance(model, PeftModel) else _model(model, tensors)


def _with_snapshot(model: Any, state: State) -> dict[str, Any]:
    """The state dict of the model, with the tensors of `state`. What is tied stays so: it gets the same tensor."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    given: dict[int, torch.Tensor] = {}
    for name, tensor in state.items():
        if name not in parameters:
            fix = "give tensors by the names of model.named_parameters()"
            raise InputError(f"the model has no parameter {name}", where="state", fix=fix)
        if tensor.shape != parameters[name].shape:
            what = f"{name} has the shape {list(tensor.shape)} instead of {list(parameters[name].shape)}"
            raise InputError(what, where="state", fix="give tensors of the parameters' own shapes")
        given[id(parameters[name])] = tensor
    found = dict(model.state_dict())
    return {name: given.get(id(parameters.get(name)), tensor) for name, tensor in found.items()}


def _model(model: Any, tensors: dict[str, Any]) -> Export:
    if getattr(model, "hf_quantizer", None) is not None:
        raise InputError("quantized weights can't be exported", fix="train an adapter beside them, and export that")
    if getattr(model, "_hf_peft_config_loaded", False):
        raise InputError("the model has an adapter inside", fix="put it around the model with PEFT: get_peft_model")
    for name in model._keys_to_ignore_on_save or ():
        tensors.pop(name, None)
    buffers = {name for name, _ in model.named_buffers()}
    tensors = revert_weight_conversion(model, remove_tied_weights_from_state_dict(tensors, model))
    config = copy.deepcopy(model.config)
    config.dtype = str(model.dtype).removeprefix("torch.")
    config.architectures = [type(model).__name__]
    texts = _code(model, config)
    texts["config.json"] = _json(both_spellings(json.loads(config.to_json_string())))
    if model.can_generate():
        texts["generation_config.json"] = model.generation_config.to_json_string(keys_to_pop=["compile_config"])
    return Export("model", texts, tensors, frozenset(buffers & tensors.keys()))


def _code(model: Any, config: Any) -> dict[str, str]:
    """The Python files of a model that brings its own, which `config` is made to name."""
    brought = [part for part in (model, config) if part._auto_class is not None]
    if not brought:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        for part in brought:
            custom_object_save(part, folder, config=config)
        return {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.py"))}


def _adapter(model: Any, tensors: dict[str, Any]) -> Export:
    if len(model.peft_config) > 1:
        names = ", ".join(sorted(model.peft_config))
        raise InputError(f"the model has several adapters: {names}", fix="delete all but one: model.delete_adapter")
    ((name, settings),) = model.peft_config.items()
    tensors = get_peft_model_state_dict(model, state_dict=tensors, adapter_name=name)
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in settings.to_dict().items()}
    config["inference_mode"] = True
    if settings.task_type is None:
        base = model.get_base_model()
        config["auto_mapping"] = {"base_model_class": type(base).__name__, "parent_library": type(base).__module__}
    return Export("adapter", {"adapter_config.json": _json(config)}, tensors)


def _json(values: Any) -> str:
    return json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False)
