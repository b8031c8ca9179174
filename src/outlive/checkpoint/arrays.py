"""Tensors as bytes, of torch or of numpy, without importing torch: a tensor is asked for what it can do itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from outlive.run.errors import InputError

# dtype → (the code in a safetensors file, bytes of an element), in the order in which safetensors ranks them.
_DTYPES = {
    "bool": ("BOOL", 1), "uint8": ("U8", 1), "int8": ("I8", 1), "float8_e5m2": ("F8_E5M2", 1),
    "float8_e4m3fn": ("F8_E4M3", 1), "int16": ("I16", 2), "uint16": ("U16", 2), "float16": ("F16", 2),
    "bfloat16": ("BF16", 2), "int32": ("I32", 4), "uint32": ("U32", 4), "float32": ("F32", 4), "float64": ("F64", 8),
    "int64": ("I64", 8), "uint64": ("U64", 8),
}  # fmt: skip
_RANKS = {name: rank for rank, name in enumerate(_DTYPES)}
FULL_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_CHUNK = 1 << 20  # elements that are converted at once: what a save needs beside the tensors themselves


def dtype_of(tensor: Any, cast: str | None = None) -> str:
    """The dtype that a tensor has in the file ("bfloat16"): its own, or `cast` (bf16, fp16, fp32) where floating."""
    name = getattr(tensor.dtype, "name", None) or str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise InputError(f"tensors of type {name} can't be saved", fix="save them as float32")
    return FULL_NAMES[cast] if cast is not None and "float" in name else name


def code(dtype: str) -> str:
    """The dtype's name in a safetensors file."""
    return _DTYPES[dtype][0]


def rank(dtype: str) -> int:
    """Where the dtype stands in a file: wide ones first, so that every tensor begins at a multiple of its width."""
    return -_RANKS[dtype]


def num_bytes(tensor: Any, cast: str | None = None) -> int:
    """The tensor's size in the file."""
    return int(math.prod(tensor.shape)) * _DTYPES[dtype_of(tensor, cast)][1]


def chunks(tensor: Any, cast: str | None = None, *, check: bool = False) -> Iterator[tuple[memoryview, bool]]:
    """The tensor's bytes in row-major order, little end first, in pieces.

    With `check` each comes with whether all numbers in it are finite, as they are written; else that is True.
    """
    if isinstance(tensor, np.ndarray):
        pieces = np.ascontiguousarray(tensor).reshape(-1)
        convert = _from_numpy
    else:
        pieces = tensor.detach().reshape(-1)
        convert = _from_torch
    name = dtype_of(tensor, cast)
    for start in range(0, len(pieces), _CHUNK):
        yield convert(pieces[start : start + _CHUNK], name, check)


def _from_torch(flat: Any, dtype: str, check: bool) -> tuple[memoryview, bool]:
    flat = flat.cpu()
    if str(flat.dtype) != f"torch.{dtype}":
        flat = {"bfloat16": flat.bfloat16, "float16": flat.half, "float32": flat.float}[dtype]()
    finite = True
    if check and flat.is_floating_point() and not dtype.startswith("float8"):
        finite = all(math.isfinite(end) for end in flat.aminmax())  # NaN is its own least and largest
    data = flat.contiguous().view(flat[:0].byte().dtype).numpy()  # numpy has no bfloat16; bytes it has
    return _little(data, _DTYPES[dtype][1]).data, finite


def _from_numpy(flat: np.ndarray[Any, Any], dtype: str, check: bool) -> tuple[memoryview, bool]:
    finite = True
    if dtype == "bfloat16":
        flat = _bfloat16(flat)
        if check:
            finite = bool(((flat & 0x7F80) != 0x7F80).all())  # an exponent of ones alone means NaN or infinity
    else:
        with np.errstate(over="ignore"):  # what gets infinite is told by `finite`
            flat = flat.astype(dtype, copy=False)
        if check and flat.dtype.kind == "f":
            finite = bool(np.isfinite(flat).all())
    return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data, finite


def _bfloat16(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The upper half of a float32, rounded to the nearest, ties to even; NaN stays NaN."""
    with np.errstate(over="ignore"):
        bits = flat.astype(np.float32).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, np.uint16(0x7FC0), rounded)


def _little(data: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Bytes in this machine's order as little-endian ones."""
    if np.little_endian or width == 1:
        return data
    return np.ascontiguousarray(data.reshape(-1, width)[:, ::-1]).reshape(-1)
