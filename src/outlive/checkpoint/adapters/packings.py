"""Which tensors of a quantised folder belong to one packed weight, and what its config says of how it is packed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.checkpoint.adapters.packed import Blocks, Groups, Rows
from outlive.checkpoint.tensors.dtypes import DTYPES, Array, to_float32
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Transposed
from outlive.run.errors import InputError

Found = tuple[dict[str, Tensor], set[str]]
_FIX = "copy the base again from where it is whole; or name the bf16 base from which it was quantised"
_STATE = ".quant_state.bitsandbytes__"
_WORDS = ("int32", "uint32")
_PARTS = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")


def bitsandbytes(tensors: Mapping[str, Tensor]) -> Found:
    """The packed weights of a folder that bitsandbytes quantised, as numbers, and the names that are gone with them."""
    found: dict[str, Tensor] = {}
    gone: set[str] = set()
    for name in tensors:
        if _STATE in name:
            weight = name.partition(_STATE)[0]
            found[weight] = _four_bits(weight, _packed(tensors, weight), _state(name, tensors[name]), tensors)
            gone |= {name, *(f"{weight}.{part}" for part in _PARTS)}
        elif name.endswith(".SCB"):
            weight = name.removesuffix("SCB") + "weight"
            codes, scales = _packed(tensors, weight), tensors[name]
            if codes.dtype != "int8" or len(codes.shape) != 2 or scales.shape != codes.shape[:1]:
                raise _damaged(weight, f"{codes.dtype} {codes.shape} with scales {scales.shape}")
            found[weight] = Rows(codes, scales)
            gone |= {name, f"{weight}_format"}
    for name, tensor in tensors.items():
        if tensor.dtype in ("uint8", "int8") and name not in gone and name not in found:
            raise _damaged(name, "it is packed, and what it is made of does not lie beside it")
    return found, gone


def _packed(tensors: Mapping[str, Tensor], weight: str) -> Tensor:
    if weight not in tensors:
        raise _damaged(weight, "its scales are there and it is not")
    return tensors[weight]


def _state(name: str, tensor: Tensor) -> Mapping[str, Any]:
    try:
        told = tensor.dtype == "uint8" and tensor.size < 1 << 16
        state = dict(json.loads(tensor.array().tobytes()) if told else {})
        shape, length = state["shape"], state["blocksize"]
        fits = len(shape) == 2 and all(type(number) is int and number > 0 for number in (*shape, length))
    except (ValueError, KeyError, TypeError, RecursionError):
        fits, state = False, {}
    if not fits:
        raise _damaged(name, "it does not say what was packed, or not a matrix")
    return state


def _four_bits(weight: str, packed: Tensor, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tensor:
    shape, length = (int(state["shape"][0]), int(state["shape"][1])), int(state["blocksize"])
    size = shape[0] * shape[1]
    levels, scales = (_whole(tensors, f"{weight}.{part}") for part in ("quant_map", "absmax"))
    if f"{weight}.nested_absmax" in tensors:
        offset, nested = state.get("nested_offset"), state.get("nested_blocksize")
        outer, inner = (_whole(tensors, f"{weight}.{part}") for part in ("nested_absmax", "nested_quant_map"))
        if not isinstance(offset, (int, float)) or type(nested) is not int or nested < 1 or len(inner) != 256:
            raise _damaged(weight, "its scales are packed too, and the way is not told")
        if tensors[f"{weight}.absmax"].dtype != "uint8" or len(outer) != -(-len(scales) // nested):
            raise _damaged(weight, f"{len(scales)} scales in blocks of {nested} have {len(outer)} scales of their own")
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused when it is written
            scales = inner[scales.astype(np.int64)] * outer[np.arange(len(scales)) // nested] + float(offset)
    expected = (16, -(-size // length), -(-size // 2))
    if packed.dtype != "uint8" or (len(levels), len(scales), packed.size) != expected or packed.shape[0] != packed.size:
        raise _damaged(weight, f"{packed.shape} bytes and {len(scales)} scales for {shape} in blocks of {length}")
    return Blocks(packed, levels, scales.astype(np.float32), length, shape)


def _whole(tensors: Mapping[str, Tensor], name: str) -> Array:
    if name not in tensors:
        raise _damaged(name, "it is missing")
    tensor = tensors[name]
    values = tensor.array().reshape(-1)
    return values.astype(np.float32) if tensor.dtype == "uint8" else to_float32(values, tensor.dtype)


def grouped(tensors: Mapping[str, Tensor], about: Mapping[str, Any], awq: bool) -> Found:
    """The packed weights of a folder that GPTQ or AWQ made, as numbers, and the names that are gone with them."""
    bits = about.get("bits", about.get("w_bit"))
    length = about.get("group_size", about.get("q_group_size", 128))
    if bits not in ((4,) if awq else (2, 4, 8)) or type(length) is not int or (awq and about.get("version") == "gemv"):
        said = f"{bits!r} bits, group_size {length!r}, version {about.get('version')!r}"
        raise InputError(f"weights packed with {said} are not read", where="quantization_config of the base", fix=_FIX)
    offset = 0 if awq or about.get("checkpoint_format") == "gptq_v2" else 1
    found: dict[str, Tensor] = {}
    gone: set[str] = set()
    for name in tensors:
        if not name.endswith(".qweight"):
            continue
        module = name.removesuffix("qweight")
        words, zeros, scales = (_packed(tensors, module + part) for part in ("qweight", "qzeros", "scales"))
        kinds = [words.dtype in _WORDS, zeros.dtype in _WORDS, DTYPES[scales.dtype].is_float]
        if not all(kinds) or any(len(each.shape) != 2 for each in (words, zeros, scales)):
            raise _damaged(name, f"words of {words.dtype} {words.shape}, zeros of {zeros.dtype}, scales {scales.dtype}")
        per_word = 32 // bits
        inputs = words.shape[0] * (1 if awq else per_word)
        outputs = words.shape[1] * (per_word if awq else 1)
        group = np.arange(inputs) // (length if length > 0 else inputs)
        if f"{module}g_idx" in tensors and not awq:
            group = tensors[f"{module}g_idx"].array().astype(np.int64).reshape(-1)
        groups = scales.shape[0]
        fits = scales.shape == (groups, outputs) and zeros.shape == (groups, -(-outputs // per_word))
        if not fits or len(group) != inputs or group.min(initial=0) < 0 or group.max(initial=0) >= groups:
            raise _damaged(name, f"{words.shape} words, zeros {zeros.shape}, scales {scales.shape} do not fit")
        found[f"{module}weight"] = Transposed(Groups(words, zeros, scales, group, bits, offset, awq), (1, 0))
        gone |= {module + part for part in ("qweight", "qzeros", "scales", "g_idx")}
    return found, gone


def _damaged(name: str, why: str) -> InputError:
    return InputError(f"the packed weight {name} can't be read: {why}", where=name, fix=_FIX)
