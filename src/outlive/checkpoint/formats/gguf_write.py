"""GGUF files, written a block at a time: F32, F16, BF16 and Q8_0.

Same tensors, same values of the header: the same bytes as the package gguf writes. Nothing of it is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from outlive.checkpoint.building import Building
from outlive.checkpoint.formats.gguf_types import (
    CODES,
    DEFAULT_ALIGNMENT,
    ELEMENTS,
    MAGIC,
    MAX_AXES,
    MAX_NAME,
    NAMES,
    padded,
)  # fmt: skip
from outlive.checkpoint.formats.gguf_values import packed_text, packed_value
from outlive.checkpoint.remedies import OTHER_FORMAT
from outlive.checkpoint.tensors.dtypes import DTYPES, Array, cast, is_finite, to_float32
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError, WorkError
from outlive.run.files import HashedFile

Type = Literal["F32", "F16", "BF16", "Q8_0"]
TYPES: tuple[Type, ...] = ("F32", "F16", "BF16", "Q8_0")
_FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}  # general.file_type, of llama.h
_VERSION = 3
_ROUTERS = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")  # small, and what they decide is worth their bits


def write_gguf(
    building: Building,
    name: str,
    tensors: Mapping[str, Tensor],
    kv: Mapping[str, Any],
    *,
    types: Mapping[str, str] | None = None,
) -> None:
    """Write the file `name` of a checkpoint: `tensors` in the order given, each in its own type or that of `types`.

    kv: values of the header in their order; what they become is said at `packed_value`. Raises InputError where
    llama.cpp couldn't open the file, WorkError where the disk refuses and where a number is finite no more in its new
    type.
    """
    if building.kept(name) is not None:
        return
    types = {tensor: (types or {}).get(tensor) or _own_type(tensor, tensors[tensor]) for tensor in tensors}
    alignment = _alignment(kv)
    header = _header(tensors, kv, types, alignment)
    size = len(header) + sum(padded(_num_bytes(tensors[tensor], types[tensor]), alignment) for tensor in tensors)
    with building.stream(name, size, []) as file:
        file.write(header)
        for tensor in tensors:
            length = _write_tensor(file, tensor, tensors[tensor], types[tensor])
            file.write(bytes(padded(length, alignment) - length))


def types_for(tensors: Mapping[str, Tensor], of_matrices: Type) -> dict[str, str]:
    """The types that llama.cpp's converter gives tensors: vectors and routers F32, matrices `of_matrices`.

    Where rows are not of whole blocks of 32, F16 stands for Q8_0. Tensors of integers keep their own type.
    """
    found: dict[str, str] = {}
    for name, tensor in tensors.items():
        if not DTYPES[tensor.dtype].is_float:
            continue
        if len(tensor.shape) < 2 or name.endswith(_ROUTERS):
            found[name] = "F32"
        else:
            found[name] = "F16" if of_matrices == "Q8_0" and tensor.shape[-1] % 32 else of_matrices
    return found


def kv_for(of_matrices: Type) -> dict[str, Any]:
    """What the header says of the types: general.file_type and general.quantization_version."""
    return {"general.file_type": _FILE_TYPES[of_matrices], "general.quantization_version": 2}


def quantised_q8_0(values: Array) -> Array:
    """float32 [32 × n] as blocks of Q8_0, uint8 [n, 34]: a float16 scale, the largest magnitude / 127, and 32 int8.

    Halves are rounded away from zero (ggml-quants.c, quantize_row_q8_0_ref).
    """
    blocks = values.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        scaled = blocks * np.where(scale == 0, np.float32(0), np.float32(1) / scale)
        magnitude = np.abs(scaled)
        whole = np.floor(magnitude)
        steps = np.sign(scaled) * (whole + (magnitude - whole >= 0.5))
        out = np.empty((len(blocks), 34), np.uint8)
        out[:, :2] = scale.astype("<f2").view(np.uint8)
        out[:, 2:] = steps.astype(np.int8).view(np.uint8)
    return out


def _own_type(name: str, tensor: Tensor) -> str:
    if tensor.dtype not in NAMES:
        fix = "write it as one of " + ", ".join(TYPES)
        raise InputError(f"{name} is of {tensor.dtype}, which GGUF files don't have", fix=fix)
    return NAMES[tensor.dtype]


def _alignment(kv: Mapping[str, Any]) -> int:
    value = int(kv.get("general.alignment", DEFAULT_ALIGNMENT))
    if value <= 0 or value & (value - 1):
        raise InputError(f"general.alignment is {value}, and no power of two", fix=OTHER_FORMAT)
    return value


def _header(tensors: Mapping[str, Tensor], kv: Mapping[str, Any], types: Mapping[str, str], alignment: int) -> bytes:
    values = [(key, packed_value(key, value)) for key, value in kv.items()]
    kept = [packed_text(key) + value for key, value in values if value is not None]
    parts = [MAGIC, _integer(_VERSION, 4), _integer(len(tensors), 8), _integer(len(kept), 8), *kept]
    place = 0
    for name, tensor in tensors.items():
        _check(name, tensor, types[name])
        parts += [packed_text(name), _integer(len(tensor.shape), 4)]
        parts += [_integer(length, 8) for length in reversed(tensor.shape)]  # the innermost axis first
        parts += [_integer(CODES[types[name]], 4), _integer(place, 8)]
        place += padded(_num_bytes(tensor, types[name]), alignment)
    header = b"".join(parts)
    return header + bytes(-len(header) % alignment)


def _check(name: str, tensor: Tensor, type_name: str) -> None:
    if type_name != NAMES.get(tensor.dtype) and (type_name not in TYPES or not DTYPES[tensor.dtype].is_float):
        fix = "write floating tensors as one of " + ", ".join(TYPES)
        raise InputError(f"{name} is of {tensor.dtype} and can't be written as {type_name}", fix=fix)
    if len(tensor.shape) > MAX_AXES:
        raise InputError(
            f"{name} has {len(tensor.shape)} axes, and tensors of GGUF files at most {MAX_AXES}", fix=OTHER_FORMAT
        )
    if len(name.encode()) > MAX_NAME:
        raise InputError(f"the name {name!r} is too long for llama.cpp: at most {MAX_NAME} bytes", fix=OTHER_FORMAT)
    block = ELEMENTS[CODES[type_name]].block
    if (tensor.shape[-1] if tensor.shape else 1) % block:
        fix = "write it as F16"
        raise InputError(f"{name}: rows of {tensor.shape} are not of whole blocks of {block} ({type_name})", fix=fix)


def _write_tensor(file: HashedFile, name: str, tensor: Tensor, type_name: str) -> int:
    """Write the bytes of a tensor; return how many."""
    written = 0
    for box in tensor.blocks():  # of whole blocks of 32, as rows are, and steps within a row a power of two
        raw = tensor.read(box)
        if type_name != NAMES.get(tensor.dtype):
            raw = _converted(name, raw, tensor.dtype, type_name)
        flat = np.ascontiguousarray(raw).reshape(-1)
        data = flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
        file.write(data)
        written += len(data)
    return written


def _converted(name: str, raw: Array, source: str, type_name: str) -> Array:
    if type_name == "Q8_0":
        values = np.ascontiguousarray(to_float32(raw, source))
        # The scale is a float16: 127 times its largest number is the end.
        finite = bool((np.abs(values) <= 127 * 65504.0).all())
        converted = quantised_q8_0(values) if finite else raw
    else:
        target = ELEMENTS[CODES[type_name]].dtype or ""
        converted = cast(raw, source, target)
        finite = is_finite(converted, target)
    if not finite:
        raise WorkError(
            f"{name} holds NaN, infinity or too large numbers as {type_name}: nothing is saved",
            fix="write it as F32 or BF16, which hold larger numbers, if they are finite there",
        )
    return converted


def _num_bytes(tensor: Tensor, type_name: str) -> int:
    element = ELEMENTS[CODES[type_name]]
    return math.prod(tensor.shape) // element.block * element.num_bytes


def _integer(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")
