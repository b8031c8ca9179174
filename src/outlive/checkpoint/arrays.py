"""Tensors as bytes, of torch, of numpy or on disk, without importing torch: each is asked for what it can do itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from outlive.checkpoint.tensors.dtypes import DTYPES, SHORT, is_finite
from outlive.checkpoint.tensors.dtypes import cast as convert
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

_RANKS = {name: rank for rank, name in enumerate(DTYPES)}
_CHUNK = 1 << 20  # elements that are converted at once: what a save needs beside the tensors themselves


def dtype_of(tensor: Any, cast: str | None = None) -> str:
    """The dtype that a tensor has in the file ("bfloat16"): its own, or `cast` (bf16, fp16, fp32) where floating."""
    name = getattr(tensor.dtype, "name", None) or str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InputError(f"tensors of type {name} can't be saved", fix="save them as float32")
    return SHORT[cast] if cast is not None and "float" in name else name


def code(dtype: str) -> str:
    """The dtype's name in a safetensors file."""
    return DTYPES[dtype].code


def rank(dtype: str) -> int:
    """Where the dtype stands in a file: wide ones first, so that every tensor begins at a multiple of its width."""
    return -_RANKS[dtype]


def num_bytes(tensor: Any, cast: str | None = None) -> int:
    """The tensor's size in the file."""
    return int(math.prod(tensor.shape)) * DTYPES[dtype_of(tensor, cast)].width


def chunks(tensor: Any, cast: str | None = None, *, check: bool = False) -> Iterator[tuple[memoryview, bool]]:
    """The tensor's bytes in row-major order, little end first, in pieces.

    With `check` each comes with whether all numbers in it are finite, as they are written; else that is True.
    """
    name = dtype_of(tensor, cast)
    if isinstance(tensor, np.ndarray):
        tensor = Given(tensor)
    if isinstance(tensor, Tensor):
        for box in tensor.blocks():
            raw = convert(tensor.read(box), tensor.dtype, name)
            yield _bytes(raw), not check or is_finite(raw, name)
        return
    pieces = tensor.detach().reshape(-1)
    for start in range(0, len(pieces), _CHUNK):
        yield _from_torch(pieces[start : start + _CHUNK], name, check)


def _from_torch(flat: Any, dtype: str, check: bool) -> tuple[memoryview, bool]:
    flat = flat.cpu()
    if str(flat.dtype) != f"torch.{dtype}":
        flat = {"bfloat16": flat.bfloat16, "float16": flat.half, "float32": flat.float}[dtype]()
    finite = True
    if check and flat.is_floating_point() and not dtype.startswith("float8"):
        finite = all(math.isfinite(end) for end in flat.aminmax())  # NaN is its own least and largest
    data = flat.contiguous().view(flat[:0].byte().dtype).numpy()  # numpy has no bfloat16; bytes it has
    return _little(data, DTYPES[dtype].width).data, finite


def _bytes(raw: np.ndarray[Any, Any]) -> memoryview:
    """Elements as bytes, row-major, little end first."""
    flat = np.ascontiguousarray(raw).reshape(-1)
    return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


def _little(data: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Bytes in this machine's order as little-endian ones."""
    if np.little_endian or width == 1:
        return data
    return np.ascontiguousarray(data.reshape(-1, width)[:, ::-1]).reshape(-1)
