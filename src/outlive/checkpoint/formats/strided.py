"""Tensors of a flat storage in a file, with the strides that they had in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from outlive.checkpoint.remedies import COPY_AGAIN
from outlive.checkpoint.tensors.dtypes import DTYPES, Array
from outlive.checkpoint.tensors.stored import File, Stored
from outlive.checkpoint.tensors.tensor import Box, Tensor, extent
from outlive.run.errors import InputError

MAX_AXES = 32  # what every numpy can do
_MAX_ELEMENTS = 1 << 56  # with 16 bytes each they can still be counted in 63 bits
_NEAR = 1 << 16  # bytes that are read at once, even if most of them are not wanted
_LAVISH = 4  # or this many times what is wanted
_EXPANDED = 1 << 24  # elements that a tensor may have beyond those that its storage has


def checked_shape(shape: object, what: str, where: str) -> tuple[int, ...]:
    """`shape` as a tuple, if it can be one. InputError else; `what` names the tensor."""
    if not isinstance(shape, (tuple, list)) or len(shape) > MAX_AXES or not all(type(size) is int for size in shape):
        raise InputError(f"{what} has no shape", where=where, fix=COPY_AGAIN)
    if any(size < 0 for size in shape) or math.prod(max(size, 1) for size in shape) > _MAX_ELEMENTS:
        raise InputError(f"{what} has a shape that no tensor has", where=where, fix=COPY_AGAIN)
    return tuple(shape)


class Strided(Tensor):
    """Element (i, j, …) lies `i·strides[0] + j·strides[1] + …` elements behind byte `offset` of a file."""

    def __init__(self, dtype: str, shape: Sequence[int], strides: Sequence[int], file: File, offset: int) -> None:
        self.dtype, self.shape, self.strides = dtype, tuple(shape), tuple(strides)
        self.file, self.offset = file, offset

    def read(self, box: Box) -> Array:
        out = np.empty(extent(box), DTYPES[self.dtype].raw)
        if out.size:
            first = sum(begin * stride for (begin, _), stride in zip(box, self.strides, strict=True))
            self._fill(out, first)
        return out

    def _fill(self, out: Array, first: int) -> None:
        """Read `out`, whose first element is the element `first` of the storage."""
        reach = [(length - 1) * stride for length, stride in zip(out.shape, self.strides, strict=True)]
        span, width = sum(reach) + 1, out.itemsize
        if span * width <= max(_NEAR, _LAVISH * out.nbytes):
            flat = self.file.read(self.offset + first * width, span * width).view(out.dtype)
            steps = [stride * width for stride in self.strides]
            out[...] = np.lib.stride_tricks.as_strided(flat, out.shape, steps)
            return
        axis = reach.index(max(reach))
        half = out.shape[axis] // 2
        before = (slice(None),) * axis
        self._fill(out[(*before, slice(0, half))], first)
        self._fill(out[(*before, slice(half, None))], first + half * self.strides[axis])


def of_storage(
    dtype: str, shape: Sequence[int], strides: Sequence[int], file: File, begin: int, elements: int, first: int
) -> Tensor:
    """A tensor whose first element is element `first` of the `elements` from byte `begin` of a file on.

    InputError where it reaches out of them, and where repeated elements would make it huge.
    """
    size = math.prod(shape)
    offset = begin + first * DTYPES[dtype].width
    if size == 0:
        return Stored.in_file(dtype, shape, file, begin)
    last = first + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if first < 0 or min(strides, default=0) < 0 or last >= elements:
        raise InputError(
            f"a tensor of shape {tuple(shape)} reaches out of its {elements:,} numbers",
            where=str(file.path),
            fix=COPY_AGAIN,
        )
    if size > elements + _EXPANDED:
        what = f"a tensor repeats {elements:,} numbers until it has {size:,}"
        raise InputError(what, where=str(file.path), fix="save it without expanded tensors")
    dense = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != dense:
            return Strided(dtype, shape, strides, file, offset)
        dense *= length
    return Stored.in_file(dtype, shape, file, offset)
