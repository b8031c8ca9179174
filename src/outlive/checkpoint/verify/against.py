"""Two checkpoints, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from outlive.checkpoint.tensors.dtypes import DTYPES, to_float32
from outlive.checkpoint.tensors.tensor import Tensor


class Difference(NamedTuple):
    """One tensor: `what` differs, and by how much at most (None where numbers can't be compared)."""

    name: str
    what: str
    largest: float | None


def differences(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[Difference]:
    """The tensors that are not the same in both. Numbers of different formats are compared as float32."""
    found = [Difference(name, "only in the first", None) for name in sorted(one.keys() - other.keys())]
    found += [Difference(name, "only in the second", None) for name in sorted(other.keys() - one.keys())]
    for name in sorted(one.keys() & other.keys()):
        a, b = one[name], other[name]
        if a.shape != b.shape:
            found.append(Difference(name, f"shape {list(a.shape)} and {list(b.shape)}", None))
        elif (largest := _largest(a, b)) is not None:
            formats = "" if a.dtype == b.dtype else f" ({a.dtype} and {b.dtype})"
            found.append(Difference(name, f"numbers{formats}", largest))
    return found


def _largest(one: Tensor, other: Tensor) -> float | None:
    """The largest difference of two elements; None where all bits are the same (or all numbers, in two formats)."""
    largest = None
    for box in one.blocks():
        a, b = np.ascontiguousarray(one.read(box)).reshape(-1), np.ascontiguousarray(other.read(box)).reshape(-1)
        if one.dtype == other.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8)):
            continue
        if not (DTYPES[one.dtype].is_float and DTYPES[other.dtype].is_float):
            equal = one.dtype == other.dtype and np.array_equal(a, b)
            largest = largest if equal else float("inf")
            continue
        with np.errstate(invalid="ignore"):
            apart = np.abs(to_float32(a, one.dtype) - to_float32(b, other.dtype))
        here = float("inf") if np.isnan(apart).any() else float(apart.max(initial=0.0))
        if here > 0 or one.dtype == other.dtype:
            largest = max(largest or 0.0, here)
    return largest
