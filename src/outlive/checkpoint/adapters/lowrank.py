"""The weights that an adapter makes of a base's, computed for the rows that are asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from outlive.checkpoint.tensors.dtypes import Array, cast, to_float32
from outlive.checkpoint.tensors.tensor import BLOCK, Box, Tensor, extent

Floats = npt.NDArray[np.floating[Any]]
_PRECISE = ("float32", "float64")  # bases whose sums are made in float64, since float32 would round twice


class Held:
    """The few arrays that were used last: the parts of one adapted weight, which its blocks share."""

    def __init__(self, most: int = 4) -> None:
        self._most, self._held = most, OrderedDict[int, tuple[object, Any]]()

    def get(self, key: object, make: Callable[[], Any]) -> Any:
        """What `make` made for this very key, or makes now."""
        if id(key) not in self._held:
            self._held[id(key)] = (key, make())
            if len(self._held) > self._most:
                self._held.popitem(last=False)
        self._held.move_to_end(id(key))
        return self._held[id(key)][1]


class Kept(Tensor):
    """A small tensor, which is read as a whole and kept for the next reads."""

    def __init__(self, base: Tensor, held: Held) -> None:
        self.base, self.held, self.dtype, self.shape = base, held, base.dtype, base.shape

    def read(self, box: Box) -> Array:
        whole: Array = self.held.get(self, self.base.array)
        return whole[tuple(slice(begin, end) for begin, end in box)]


class Every(Tensor):
    """The columns `first`, `first` + `step` … of a matrix."""

    def __init__(self, base: Tensor, first: int, step: int) -> None:
        self.base, self.first, self.step, self.dtype = base, first, step, base.dtype
        self.shape = (base.shape[0], len(range(first, base.shape[1], step)))

    def read(self, box: Box) -> Array:
        rows, (begin, end) = box
        if begin == end:
            return self.base.read((rows, (0, 0)))
        columns = (self.first + begin * self.step, self.first + (end - 1) * self.step + 1)
        return self.base.read((rows, columns))[:, :: self.step]


@dataclass(frozen=True)
class Term:
    """scale · left @ right, a matrix of the weight's shape: left [rows, r], right [r, columns]."""

    scale: float
    left: Tensor
    right: Tensor


@dataclass(frozen=True)
class Magnitude:
    """DoRA's magnitudes, of the weight's rows (`axis` 0) or of its columns (1: weights that are stored transposed)."""

    values: Tensor
    axis: int


class Merged(Tensor):
    """W + Σ scale · left @ right, as LoRA has it (https://arxiv.org/abs/2106.09685, equation 3); with `magnitude` m
    it is m · V / ‖V‖ of that sum V, where the norm is taken over each output's inputs (DoRA:
    https://arxiv.org/abs/2402.09353, equation 5). A matrix, in the base's dtype, rounded to it once.

    Sums are made in float64 where the base is float32, else in float32, some megabytes of rows at a time.
    """

    def __init__(self, base: Tensor, terms: Sequence[Term], magnitude: Magnitude | None = None) -> None:
        self.base, self.terms, self.magnitude = base, list(terms), magnitude
        self.dtype, self.shape = base.dtype, base.shape
        self._number: type[np.floating[Any]] = np.float64 if base.dtype in _PRECISE else np.float32
        self._column_factors: Floats | None = None

    def read(self, box: Box) -> Array:
        (begin, end), columns = box
        rows = self._rows(columns)
        parts = [
            rounded(self.exact((first, min(first + rows, end)), columns), self.dtype)
            for first in range(begin, end, rows)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else self.base.read(box)

    def _rows(self, columns: tuple[int, int]) -> int:
        width = self.shape[1] if self.magnitude else columns[1] - columns[0]
        return max(1, BLOCK // max(1, width * 8))

    def exact(self, rows: tuple[int, int], columns: tuple[int, int]) -> Floats:
        """The numbers of a box, which is held as a whole, before they are rounded to the dtype."""
        if self.magnitude is None:
            return self.sums(rows, columns)
        if self.magnitude.axis == 0:
            whole = self.sums(rows, (0, self.shape[1]))
            wanted = floats(self.magnitude.values, (rows,), self._number)
            return np.asarray(whole[:, slice(*columns)] * (wanted / np.linalg.norm(whole, axis=1))[:, None])
        return self.sums(rows, columns) * self._factors()[slice(*columns)]

    def sums(self, rows: tuple[int, int], columns: tuple[int, int]) -> Floats:
        """W + Σ scale · left @ right of a box, without magnitudes."""
        values = floats(self.base, (rows, columns), self._number)
        for term in self.terms:
            rank = (0, term.left.shape[1])
            left = floats(term.left, (rows, rank), self._number)
            right = floats(term.right, (rank, columns), self._number)
            values = values + self._number(term.scale) * (left @ right)
        return values

    def _factors(self) -> Floats:
        """Of each column its magnitude over its norm, which takes all rows: they are read once for it."""
        assert self.magnitude is not None
        if self._column_factors is None:
            squares = np.zeros(self.shape[1], np.float64)
            step = self._rows((0, self.shape[1]))
            for begin in range(0, self.shape[0], step):
                block = self.sums((begin, min(begin + step, self.shape[0])), (0, self.shape[1]))
                squares += np.square(block, dtype=np.float64).sum(axis=0)
            wanted = floats(self.magnitude.values, self.magnitude.values.whole, self._number)
            self._column_factors = (wanted / np.sqrt(squares)).astype(self._number)
        return self._column_factors


def added(base: Tensor, terms: Sequence[Term], magnitude: Magnitude | None = None) -> Merged:
    """`base` with terms added; to those that it has already, so that the sum of all is rounded once."""
    if isinstance(base, Merged) and base.magnitude is None:
        return Merged(base.base, [*base.terms, *terms], magnitude)
    return Merged(base, terms, magnitude)


class RowsReplaced(Tensor):
    """A matrix some of whose rows are those of another: row `index[i]` is row i of `rows`."""

    def __init__(self, base: Tensor, index: Sequence[int], rows: Tensor) -> None:
        self.base, self.index, self.rows = base, np.asarray(index, np.int64), rows
        self.dtype, self.shape = base.dtype, base.shape

    def read(self, box: Box) -> Array:
        (begin, end), columns = box
        out = np.array(self.base.read(box))
        for place in np.flatnonzero((self.index >= begin) & (self.index < end)):
            row = self.rows.read(((int(place), int(place) + 1), columns))
            out[self.index[place] - begin] = cast(row, self.rows.dtype, self.dtype)[0]
        return out


class Shifted(Tensor):
    """base + scale · by, a vector, in the base's dtype."""

    def __init__(self, base: Tensor, scale: float, by: Tensor) -> None:
        self.base, self.scale, self.by, self.dtype, self.shape = base, scale, by, base.dtype, base.shape

    def read(self, box: Box) -> Array:
        values = floats(self.base, box, np.float64) + self.scale * floats(self.by, box, np.float64)
        return rounded(values, self.dtype)


def floats(tensor: Tensor, box: Box, number: type[np.floating[Any]] = np.float64) -> Floats:
    """A box of a tensor of any floating dtype, as `number`."""
    raw = tensor.read(box)
    wide = raw if tensor.dtype == "float64" else to_float32(raw, tensor.dtype)
    return wide.astype(number, copy=False).reshape(extent(box))


def rounded(values: Floats, dtype: str) -> Array:
    """Numbers in a tensor's dtype."""
    if dtype == "float64":
        return values.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        return cast(values.astype(np.float32, copy=False), "float32", dtype)
