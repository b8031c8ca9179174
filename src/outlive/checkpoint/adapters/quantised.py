"""Bases whose weights are quantised: read as numbers again where that can be done, else refused with what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.checkpoint.adapters.packings import bitsandbytes, grouped
from outlive.checkpoint.tensors.dtypes import DTYPES, SHORT
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Cast, Given, Scaled
from outlive.run.errors import InputError

_SCALES = ("_scale_inv", "_scale")
_BLOCK = (128, 128)


def dequantised(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors with quantised weights as numbers in the config's dtype (bfloat16 where it names none), and the
    config without its quantisation: to round a sum to 4 bits again would undo much of the adapter.

    float8 with scales of blocks (`weight_scale_inv`, DeepSeek-V3's), of rows or of the whole tensor (`weight_scale`);
    bitsandbytes, GPTQ and AWQ. Raises InputError for other kinds, and for what is damaged.
    """
    about = config.get("quantization_config")
    if not isinstance(about, dict):
        about = None
    target = _target(config)
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    float8 = {name: tensor for name, tensor in tensors.items() if tensor.dtype.startswith("float8")}
    if float8:
        return _from_float8(tensors, float8, about or {}, target), plain
    method = None if about is None else str(about.get("quant_method", "an unnamed method"))
    if about is not None and method in ("bitsandbytes", "gptq", "awq"):
        found, gone = bitsandbytes(tensors) if method == "bitsandbytes" else grouped(tensors, about, method == "awq")
        if not found:
            raise _refused(f"{method}, and no weight is packed as it does")
        kept: dict[str, Tensor] = {name: tensor for name, tensor in tensors.items() if name not in gone}
        return kept | {name: Cast(tensor, target) for name, tensor in found.items()}, plain
    packed = next((name for name in tensors if name.endswith((".qweight", ".weight_packed", ".weight.absmax"))), None)
    if method is not None or packed is not None:
        raise _refused(method or f"{packed} is packed, and quantization_config does not say how")
    return dict(tensors), dict(config)


def _target(config: Mapping[str, Any]) -> str:
    """The dtype that the config gives the model; bfloat16 where it names none."""
    target = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    target = SHORT.get(target, target)
    usable = target in DTYPES and DTYPES[target].is_float and not target.startswith("float8")
    return target if usable else "bfloat16"


def _from_float8(
    tensors: Mapping[str, Tensor], float8: Mapping[str, Tensor], about: Mapping[str, Any], target: str
) -> dict[str, Tensor]:
    block = about.get("weight_block_size") or _BLOCK
    scales = {name: _scale_of(name, tensors) for name in float8}
    gone = set(scales.values()) | {
        f"{name.rpartition('.')[0]}.{kind}_scale" for name in float8 for kind in ("input", "activation")
    }
    result: dict[str, Tensor] = {name: tensor for name, tensor in tensors.items() if name not in gone}
    for name, scale in scales.items():
        result[name] = Cast(_scaled(name, tensors[name], scale, tensors[scale], block), target)
    return result


def _scale_of(name: str, tensors: Mapping[str, Tensor]) -> str:
    found = next((name + end for end in _SCALES if name + end in tensors), None)
    if found is None:
        fix = "merge into the base in bf16 from which this one was quantised"
        raise InputError(f"{name} is float8 and has no scale beside it", where=name, fix=fix)
    return found


def _scaled(name: str, base: Tensor, scale_name: str, scale: Tensor, block: Any) -> Tensor:
    if len(base.shape) != 2:
        raise InputError(f"{name} is float8 and has {len(base.shape)} axes", where=name, fix="merge into the bf16 base")
    if scale_name.endswith("_scale_inv") and len(scale.shape) == 2:
        if not (isinstance(block, (list, tuple)) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)):
            raise InputError(
                f"weight_block_size is {str(block)[:50]}", where=name, fix="it is two whole numbers: [128, 128]"
            )
        return Scaled(base, scale, (block[0], block[1]))
    if scale.size == 1:
        return Scaled(base, Given(np.reshape(scale.array(), (1, 1)), scale.dtype), base.shape)
    if scale.shape == (base.shape[0], 1):
        return Scaled(base, scale, (1, base.shape[1]))
    raise InputError(
        f"{scale_name} has the shape {scale.shape}, {name} {base.shape}", where=name, fix="use the bf16 base"
    )


def _refused(how: str) -> InputError:
    return InputError(
        f"the base's weights are quantised ({how}): an adapter is not merged into them",
        where="quantization_config of the base",
        fix="name the base in bf16 or fp16 from which it was quantised, merge, and quantise the result",
    )
