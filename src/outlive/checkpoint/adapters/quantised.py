"""Bases whose weights are quantised: float8 is read as numbers again, the rest is refused with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.checkpoint.tensors.dtypes import DTYPES, SHORT
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Cast, Given, Scaled
from outlive.run.errors import InputError

_SCALES = ("_scale_inv", "_scale")
_BLOCK = (128, 128)


def dequantised(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors with float8 weights as numbers in the config's dtype (bfloat16 where it names none), and the config.

    Scales are those of blocks (`weight_scale_inv`, DeepSeek-V3's), of rows or of the whole tensor (`weight_scale`).
    Raises InputError for other kinds of quantisation: rounding a sum to 4 bits would undo much of the adapter.
    """
    about = config.get("quantization_config")
    if not isinstance(about, dict):
        about = None
    float8 = {name: tensor for name, tensor in tensors.items() if tensor.dtype.startswith("float8")}
    if about is not None and not float8:
        raise _refused(str(about.get("quant_method", "an unnamed method")))
    if not float8:
        packed = next(
            (name for name in tensors if name.endswith((".qweight", ".weight_packed", ".weight.absmax"))), None
        )
        if packed is not None:
            raise _refused(f"{packed} is packed")
        return dict(tensors), dict(config)
    target = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    target = SHORT.get(target, target)
    if target not in DTYPES or not DTYPES[target].is_float or target.startswith("float8"):
        target = "bfloat16"
    block = (about or {}).get("weight_block_size") or _BLOCK
    scales = {name: _scale_of(name, tensors) for name in float8}
    gone = set(scales.values()) | {
        f"{name.rpartition('.')[0]}.{kind}_scale" for name in float8 for kind in ("input", "activation")
    }
    result: dict[str, Tensor] = {name: tensor for name, tensor in tensors.items() if name not in gone}
    for name, scale in scales.items():
        result[name] = Cast(_scaled(name, tensors[name], scale, tensors[scale], block), target)
    return result, {key: value for key, value in config.items() if key != "quantization_config"}


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
