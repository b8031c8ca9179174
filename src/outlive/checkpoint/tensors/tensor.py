"""A tensor that is somewhere else: its shape and dtype are known, and any box of it can be read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from outlive.checkpoint.tensors.dtypes import DTYPES, Array

Box = tuple[tuple[int, int], ...]  # of each axis: the first index, and the one after the last
BLOCK = 1 << 20  # bytes that are read at once: they are still in the cache when they are hashed and written


class Tensor(ABC):
    """`shape`; `dtype`: a name such as "bfloat16". Scalars have the shape ()."""

    shape: tuple[int, ...]
    dtype: str

    @abstractmethod
    def read(self, box: Box) -> Array:
        """The elements of a box, in its shape; of dtypes that numpy lacks their bits (`dtypes`).

        May raise InputError (the file is damaged) and WorkError (it can't be read).
        """

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of all elements."""
        return self.size * DTYPES[self.dtype].width

    @property
    def whole(self) -> Box:
        """The box that is all of it."""
        return tuple((0, length) for length in self.shape)

    def array(self) -> Array:
        """All of it."""
        return self.read(self.whole)

    def blocks(self, most: int = BLOCK) -> Iterator[Box]:
        """Boxes that follow each other in row-major order, each of at most `most` bytes."""
        return blocks_of(self.whole, DTYPES[self.dtype].width, most)


def extent(box: Box) -> tuple[int, ...]:
    """The shape of a box."""
    return tuple(end - begin for begin, end in box)


def within(box: Box, outer: Box) -> Box:
    """The same box, counted from the corner of another."""
    return tuple((begin - first, end - first) for (begin, end), (first, _) in zip(box, outer, strict=True))


def common(one: Box, other: Box) -> Box | None:
    """What two boxes share; None for nothing. Boxes without axes share their one element."""
    shared = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return shared if all(begin < end for begin, end in shared) else None


def slices(box: Box) -> tuple[slice, ...]:
    """The box as an index of an array."""
    return tuple(slice(begin, end) for begin, end in box)


def blocks_of(box: Box, width: int, most: int = BLOCK) -> Iterator[Box]:
    """Parts of a box in row-major order, each of at most `most` bytes of elements of `width`; empty ones are left out.

    Each part is a range of one axis, with one index of those before it and all of those after.
    """
    shape = extent(box)
    if math.prod(shape) == 0:
        return
    axis = 0
    while axis < len(shape) and shape[axis] == 1:
        axis += 1
    if axis == len(shape):
        yield box
        return
    row = math.prod(shape[axis + 1 :]) * width
    begin, end = box[axis]
    step = max(1, most // row)
    for first in range(begin, end, step):
        part = (*box[:axis], (first, min(first + step, end)), *box[axis + 1 :])
        if row > most and axis + 1 < len(shape):
            yield from blocks_of(part, width, most)
        else:
            yield part


def read_row_major(shape: Sequence[int], box: Box, dtype: str, flat: Callable[[int, int], Array]) -> Array:
    """A box of a row-major array of `shape`, of which `flat(begin, end)` reads elements in their order.

    Reads whole rows where the box takes a part of each, a block at a time.
    """
    taken = extent(box)
    out = np.empty(taken, DTYPES[dtype].raw)
    if out.size == 0:
        return out
    axis = next((axis for axis, length in enumerate(taken) if length > 1), len(taken))
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    base = sum(begin * strides[place] for place, (begin, _) in enumerate(box[:axis]))
    if axis == len(taken):
        out[...] = flat(base, base + 1).reshape(taken)
        return out
    (begin, end), row, rest = box[axis], strides[axis], box[axis + 1 :]
    if extent(rest) == tuple(shape[axis + 1 :]):
        return flat(base + begin * row, base + end * row).reshape(taken)
    step = max(1, BLOCK // (row * DTYPES[dtype].width))
    lead: tuple[Any, ...] = (0,) * axis
    for first in range(begin, end, step):
        last = min(first + step, end)
        if step == 1 and row * DTYPES[dtype].width > BLOCK:
            own = (*box[:axis], (first, last), *rest)
            out[(*lead, slice(first - begin, last - begin))] = read_row_major(shape, own, dtype, flat)[lead]
            continue
        rows = flat(base + first * row, base + last * row).reshape(last - first, *shape[axis + 1 :])
        out[(*lead, slice(first - begin, last - begin))] = rows[(slice(None), *slices(rest))]
    return out
