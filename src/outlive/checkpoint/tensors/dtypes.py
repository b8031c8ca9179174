"""Number formats by name ("bfloat16"), as arrays of numpy, which lacks some of them, and from one to another.

Elements of a format that numpy lacks are unsigned integers of the same width, with the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.run.errors import InputError

Array = npt.NDArray[Any]


class Dtype(NamedTuple):
    """code: its name in safetensors files; raw: numpy's type of an element; is_float: whether it holds reals."""

    code: str
    raw: np.dtype[Any]
    is_float: bool

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return int(self.raw.itemsize)


def _dtype(code: str, raw: str, is_float: bool = False) -> Dtype:
    return Dtype(code, np.dtype(raw), is_float)


DTYPES = {
    "bool": _dtype("BOOL", "?"),
    "uint8": _dtype("U8", "u1"),
    "int8": _dtype("I8", "i1"),
    "float8_e5m2": _dtype("F8_E5M2", "u1", True),
    "float8_e4m3fn": _dtype("F8_E4M3", "u1", True),
    "int16": _dtype("I16", "<i2"),
    "uint16": _dtype("U16", "<u2"),
    "float16": _dtype("F16", "<f2", True),
    "bfloat16": _dtype("BF16", "<u2", True),
    "int32": _dtype("I32", "<i4"),
    "uint32": _dtype("U32", "<u4"),
    "float32": _dtype("F32", "<f4", True),
    "float64": _dtype("F64", "<f8", True),
    "int64": _dtype("I64", "<i8"),
    "uint64": _dtype("U64", "<u8"),
    "complex64": _dtype("C64", "<c8"),
}
BY_CODE = {dtype.code: name for name, dtype in DTYPES.items()}
SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def to_float32(raw: Array, dtype: str) -> Array:
    """Elements of `dtype` as float32. Exact for those that are no wider."""
    if dtype == "bfloat16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if dtype == "float8_e5m2":
        return (raw.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype == "float8_e4m3fn":
        return _E4M3[raw]
    with np.errstate(over="ignore"):
        return raw.astype(np.float32, copy=False)


def cast(raw: Array, source: str, target: str) -> Array:
    """Elements of one format in another: rounded to the nearest, ties to even; too large ones become infinite."""
    if source == target:
        return raw
    if not (DTYPES[source].is_float and DTYPES[target].is_float) or target.startswith("float8"):
        raise InputError(f"{source} is not converted to {target}", fix="convert floating tensors to bf16, fp16 or fp32")
    with np.errstate(over="ignore", invalid="ignore"):
        if target == "float64":
            return to_float32(raw, source).astype(np.float64)
        if source == "float64" and target == "float16":
            return raw.astype(np.float16)  # at once: by way of float32 it would be rounded twice
        wide = to_float32(raw, source)
        return to_bfloat16(wide) if target == "bfloat16" else wide.astype(DTYPES[target].raw, copy=False)


def to_bfloat16(values: Array) -> Array:
    """The upper half of a float32, uint16, rounded to the nearest, ties to even; NaN stays NaN."""
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32, copy=False).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    if nan.any():
        rounded[nan] = 0x7FC0
    return rounded


def is_finite(raw: Array, dtype: str) -> bool:
    """Whether no element is NaN or infinite."""
    if not DTYPES[dtype].is_float:
        return True
    if dtype == "bfloat16":
        return bool(((raw & 0x7F80) != 0x7F80).all())
    if dtype == "float8_e5m2":
        return bool(((raw & 0x7C) != 0x7C).all())
    if dtype == "float8_e4m3fn":
        return bool(((raw & 0x7F) != 0x7F).all())
    return bool(np.isfinite(raw).all())


def _e4m3() -> Array:
    """float8_e4m3fn: 4 bits of exponent (bias 7), 3 of mantissa, no infinities (https://arxiv.org/abs/2209.05433)."""
    code = np.arange(256)
    sign, exponent, mantissa = np.where(code & 0x80, -1.0, 1.0), (code >> 3) & 15, code & 7
    normal = sign * np.ldexp(1 + mantissa / 8, exponent - 7)
    small = sign * np.ldexp(mantissa / 8, -6)
    values = np.where(exponent > 0, normal, small)
    return np.where((code & 0x7F) == 0x7F, np.nan, values).astype(np.float32)


_E4M3 = _e4m3()
