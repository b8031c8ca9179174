"""Views that model families need beside those of `tensors.views`: an axis of one, another order along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from outlive.checkpoint.tensors.dtypes import Array
from outlive.checkpoint.tensors.tensor import Box, Tensor
from outlive.run.errors import InputError

Index = npt.NDArray[np.int64]


class Order(Protocol):
    """An order of the indices of an axis, made only when one is known to be as long."""

    def __hash__(self) -> int: ...

    @property
    def length(self) -> int:
        """How long the axis is."""

    def index(self) -> Index:
        """Place i holds what was at index[i]."""


@dataclass(frozen=True)
class Rotary:
    """Rows of `heads` heads, the two halves of each (as Hugging Face rotates them) interleaved (as RoFormer, Meta's
    Llama and GGUF's architecture llama do: https://arxiv.org/abs/2104.09864, equation 34)."""

    heads: int
    size: int

    @property
    def length(self) -> int:
        return self.heads * self.size

    def index(self) -> Index:
        if self.size % 2:
            raise InputError(f"heads of {self.size} have no two halves to rotate", fix="check head_dim in config.json")
        rows = np.arange(self.length).reshape(self.heads, 2, self.size // 2)
        return rows.swapaxes(1, 2).reshape(-1)


@dataclass(frozen=True)
class Tiled:
    """After `start` elements that stay: value heads of linear attention, grouped by their key head, as tiles of one
    value head of each key head, the order in which ggml broadcasts keys over values."""

    start: int
    keys: int
    values: int
    size: int

    @property
    def length(self) -> int:
        return self.start + self.values * self.size

    def index(self) -> Index:
        heads = np.arange(self.values * self.size).reshape(self.keys, -1, self.size)
        return np.concatenate([np.arange(self.start), self.start + heads.swapaxes(0, 1).reshape(-1)])


@dataclass(frozen=True)
class Grouped:
    """Rows of all queries, all keys, all values, as groups of the queries of a key head, that key, that value
    (Megatron's linear_qkv)."""

    groups: int
    queries: int
    size: int

    @property
    def length(self) -> int:
        return self.groups * (self.queries + 2) * self.size

    def index(self) -> Index:
        rows = np.arange(self.length).reshape(-1, self.size)
        own, groups = rows[: self.groups * self.queries], self.groups
        queries = own.reshape(groups, self.queries, self.size)
        keys, values = rows[len(own) :].reshape(2, groups, 1, self.size)
        return np.concatenate([queries, keys, values], 1).reshape(-1)


@dataclass(frozen=True)
class Inverse:
    """The order that undoes another."""

    of: Order

    @property
    def length(self) -> int:
        return self.of.length

    def index(self) -> Index:
        return np.argsort(self.of.index())


@lru_cache(64)
def index_of(order: Order) -> Index:
    """The index of an order, made once."""
    return order.index()


class Ordered(Tensor):
    """Another order along an axis; reads what spans the wanted indices. Undone by the inverse order."""

    def __init__(self, base: Tensor, index: Index, axis: int) -> None:
        self.base, self.index, self.axis, self.dtype, self.shape = base, index, axis, base.dtype, base.shape

    def read(self, box: Box) -> Array:
        wanted = self.index[slice(*box[self.axis])]
        if not len(wanted):
            return self.base.read(box)
        first, last = int(wanted.min()), int(wanted.max()) + 1
        span = self.base.read((*box[: self.axis], (first, last), *box[self.axis + 1 :]))
        return np.asarray(span.take(wanted - first, self.axis))


class Squeezed(Tensor):
    """Without an axis of length one. Undone by `Unsqueezed`."""

    def __init__(self, base: Tensor, axis: int) -> None:
        self.base, self.axis, self.dtype = base, axis, base.dtype
        self.shape = base.shape[:axis] + base.shape[axis + 1 :]

    def read(self, box: Box) -> Array:
        return self.base.read((*box[: self.axis], (0, 1), *box[self.axis :])).squeeze(self.axis)


class Unsqueezed(Tensor):
    """With a new axis of length one. Undone by `Squeezed`."""

    def __init__(self, base: Tensor, axis: int) -> None:
        self.base, self.axis, self.dtype = base, axis, base.dtype
        self.shape = (*base.shape[:axis], 1, *base.shape[axis:])

    def read(self, box: Box) -> Array:
        read = np.expand_dims(self.base.read((*box[: self.axis], *box[self.axis + 1 :])), self.axis)
        return read[(*[slice(None)] * self.axis, slice(*box[self.axis]))]
