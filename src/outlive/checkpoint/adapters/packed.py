"""Weights that are packed into integers, read as the numbers that they stand for, a box at a time.

* bitsandbytes, 4 bits: blocks of a row-major matrix with a scale each, two codes in a byte, the first in its upper half
  (QLoRA: https://arxiv.org/abs/2305.14314, section 3); 8 bits: a scale for each row
  (https://arxiv.org/abs/2208.07339, section 2.1).
* GPTQ (https://arxiv.org/abs/2210.17323) and AWQ (https://arxiv.org/abs/2306.00978): groups of inputs with a scale
  and a zero for each output, codes in 32-bit words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outlive.checkpoint.tensors.dtypes import Array, to_float32
from outlive.checkpoint.tensors.tensor import Box, Tensor, extent

Codes = npt.NDArray[np.int64]
_AWQ_ORDER = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # where in its word the code of each of eight columns is


class Blocks(Tensor):
    """float32 [rows, columns]: codes of 4 bits, `levels[code]` · the scale of the code's block of `length` elements.

    packed: uint8 [elements / 2, 1] or [elements / 2]; scales: float32 [blocks].
    """

    dtype = "float32"

    def __init__(self, packed: Tensor, levels: Array, scales: Array, length: int, shape: tuple[int, ...]) -> None:
        self.packed, self.levels, self.scales, self.length, self.shape = packed, levels, scales, length, shape

    def read(self, box: Box) -> Array:
        (begin, end), columns = box
        width = self.shape[1]
        first, last = begin * width, end * width
        if first == last:
            return np.empty(extent(box), np.float32)
        lower, upper = first // 2, -(-last // 2)
        rest = ((0, 1),) if len(self.packed.shape) == 2 else ()
        packed = self.packed.read(((lower, upper), *rest)).reshape(-1)
        codes = np.stack([packed >> 4, packed & 15], 1).reshape(-1)[first - 2 * lower : last - 2 * lower]
        scales = self.scales[np.arange(first, last) // self.length]
        values = (self.levels[codes] * scales).reshape(end - begin, width)
        return np.asarray(values[:, slice(*columns)])


class Rows(Tensor):
    """float32 [out, in]: int8 codes · the scale of their row / 127."""

    dtype = "float32"

    def __init__(self, codes: Tensor, scales: Tensor) -> None:
        self.codes, self.scales, self.shape = codes, scales, codes.shape

    def read(self, box: Box) -> Array:
        scales = to_float32(self.scales.read((box[0],)), self.scales.dtype)
        return np.asarray(self.codes.read(box).view(np.int8).astype(np.float32) * (scales / 127)[:, None])


class Groups(Tensor):
    """float32 [in, out]: (code - zero) · scale, zero and scale those of an output in the group of an input.

    words: int32, of GPTQ [in · bits / 32, out], of AWQ [in, out · bits / 32]; zeros: int32 [groups, out · bits / 32];
    scales: [groups, out]; group: of each input its group. `offset` is added to the zeros, which older files store
    less one.
    """

    dtype = "float32"

    def __init__(
        self, words: Tensor, zeros: Tensor, scales: Tensor, group: Codes, bits: int, offset: int, awq: bool
    ) -> None:
        self.words, self.zeros, self.scales, self.group = words, zeros, scales, group
        self.bits, self.offset, self.awq, self.per_word = bits, offset, awq, 32 // bits
        self.shape = (len(group), scales.shape[1])

    def read(self, box: Box) -> Array:
        (begin, end), columns = box
        if begin == end or columns[0] == columns[1]:
            return np.empty(extent(box), np.float32)
        groups = self.group[begin:end]
        least, most = int(groups.min()), int(groups.max()) + 1
        zeros = self._across(self.zeros, (least, most), columns) + self.offset
        scales = to_float32(self.scales.read(((least, most), columns)), self.scales.dtype)
        codes = self._across(self.words, (begin, end), columns) if self.awq else self._down((begin, end), columns)
        values = (codes - zeros[groups - least]).astype(np.float32) * scales[groups - least]
        return np.asarray(values, np.float32)

    def _across(self, words: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Codes:
        """Codes of which each word holds those of `per_word` columns."""
        begin, end = columns
        lower, upper = begin // self.per_word, -(-end // self.per_word)
        read = _unsigned(words.read((rows, (lower, upper))))
        shifts = (_AWQ_ORDER if self.awq else np.arange(self.per_word)) * self.bits
        codes = (read[:, :, None] >> shifts) & ((1 << self.bits) - 1)
        flat: Codes = codes.reshape(len(read), -1)[:, begin - lower * self.per_word : end - lower * self.per_word]
        return flat

    def _down(self, rows: tuple[int, int], columns: tuple[int, int]) -> Codes:
        """Codes of which each word holds those of `per_word` rows."""
        begin, end = rows
        lower, upper = begin // self.per_word, -(-end // self.per_word)
        read = _unsigned(self.words.read(((lower, upper), columns)))
        shifts = np.arange(self.per_word)[None, :, None] * self.bits
        codes = (read[:, None, :] >> shifts) & ((1 << self.bits) - 1)
        flat: Codes = codes.reshape(-1, read.shape[1])[begin - lower * self.per_word : end - lower * self.per_word]
        return flat


def _unsigned(words: Array) -> Codes:
    return np.ascontiguousarray(words).view(np.uint32).astype(np.int64)
