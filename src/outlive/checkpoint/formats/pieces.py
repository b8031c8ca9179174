"""Tensors of pieces that were saved one by one: whether the pieces make a whole, and the tensor of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from outlive.checkpoint.tensors.dtypes import DTYPES, Array
from outlive.checkpoint.tensors.stored import Piece, Stored
from outlive.checkpoint.tensors.tensor import Box, Tensor, common, extent, slices, within
from outlive.run.errors import InputError

_MOST_PAIRS = 1 << 28  # of pieces that are compared with each other


class Placed(Tensor):
    """Tensors at boxes of a whole. Undone by the parts."""

    def __init__(self, dtype: str, shape: Sequence[int], parts: Sequence[tuple[Box, Tensor]]) -> None:
        self.dtype, self.shape, self.parts = dtype, tuple(shape), list(parts)

    def read(self, box: Box) -> Array:
        out = np.empty(extent(box), DTYPES[self.dtype].raw)
        for place, part in self.parts:
            if (shared := common(box, place)) is not None:
                out[slices(within(shared, box))] = part.read(within(shared, place))
        return out


def whole_of(dtype: str, shape: Sequence[int], parts: Sequence[tuple[Box, Tensor]]) -> Tensor:
    """The tensor of parts, all of which are there (`fault`). Stored, where each lies in row-major order."""
    stored = [(box, part) for box, part in parts if isinstance(part, Stored) and len(part.pieces) == 1]
    if len(stored) < len(parts):
        return Placed(dtype, shape, parts)
    return Stored(dtype, shape, [Piece(box, part.pieces[0].file, part.pieces[0].offset) for box, part in stored])


def fault(shape: Sequence[int], boxes: Sequence[Box]) -> str | None:
    """What is wrong with the boxes of pieces: one reaches out of the tensor, two overlap, some elements are in none."""
    if not shape:
        return None if len(boxes) == 1 else f"its one number is there {len(boxes)} times"
    filled = [box for box in boxes if 0 not in extent(box)]
    for box in filled:
        if any(begin < 0 or end > length for (begin, end), length in zip(box, shape, strict=True)):
            return f"a piece lies at {box}, outside of its shape {tuple(shape)}"
    if (two := _overlap(filled)) is not None:
        return f"two pieces overlap: {two[0]} and {two[1]}"
    missing = math.prod(shape) - sum(math.prod(extent(box)) for box in filled)
    return f"{missing:,} of {math.prod(shape):,} numbers are in no file" if missing else None


def _overlap(boxes: Sequence[Box]) -> tuple[Box, Box] | None:
    """Two boxes that share elements. Sorted by the axis on which they differ most; each with those it may meet."""
    if len(boxes) < 2:
        return None
    corners = np.array(boxes, np.int64)  # [pieces, axes, 2]
    axis = max(range(corners.shape[1]), key=lambda place: len(np.unique(corners[:, place, 0])))
    corners = corners[np.argsort(corners[:, axis, 0], kind="stable")]
    begins, ends = corners[:, :, 0], corners[:, :, 1]
    reach = np.searchsorted(begins[:, axis], ends[:, axis])  # the first one behind each
    if int((reach - np.arange(len(boxes))).sum()) > _MOST_PAIRS:
        raise InputError(f"{len(boxes):,} pieces of a tensor lie in each other's way")
    for place in range(len(boxes)):
        others = slice(place + 1, int(reach[place]))
        meets = ((begins[others] < ends[place]) & (begins[place] < ends[others])).all(axis=1)
        if meets.any():
            other = place + 1 + int(np.argmax(meets))
            one, two = ([(int(begin), int(end)) for begin, end in corners[index]] for index in (place, other))
            return tuple(one), tuple(two)
    return None
