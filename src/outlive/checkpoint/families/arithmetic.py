"""Operations that compute: what a format stores in another form. Their inverses are exact within a rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlive.checkpoint.families.names import filled, matching
from outlive.checkpoint.families.operations import OnEach, Operation, Tensors, found, must, put
from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.checkpoint.tensors.dtypes import DTYPES, Array, to_float32
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Computed, Joined, Part, Scaled, Stacked, Transposed, Unstacked
from outlive.run.errors import InputError


@dataclass(frozen=True)
class Add(OnEach):
    """float32: plus a number (norms that multiply by 1 + weight). Back, the error is at most that of one float32
    rounding of the sum; weights in bf16 or fp16 come back exactly, save those below 2^-16."""

    pattern: str
    number: float

    def change(self, name: str, tensor: Tensor) -> Tensor:
        number, dtype = np.float32(self.number), tensor.dtype
        must(DTYPES[dtype].is_float, name, tensor, f"a floating format, not {dtype},")

        def add(arrays: Sequence[Array]) -> Array:
            return to_float32(arrays[0], dtype) + number

        return Computed([tensor], add, "float32")

    @property
    def inverse(self) -> Add:
        return Add(self.pattern, -self.number)


@dataclass(frozen=True)
class NegativeExponential(OnEach):
    """float32: -exp(x), or (`back`) log(-x) (Mamba's A: https://arxiv.org/abs/2312.00752, section 3.6)."""

    pattern: str
    back: bool = False

    def change(self, name: str, tensor: Tensor) -> Tensor:
        dtype, back = tensor.dtype, self.back
        must(DTYPES[dtype].is_float, name, tensor, f"a floating format, not {dtype},")

        def compute(arrays: Sequence[Array]) -> Array:
            wide = to_float32(arrays[0], dtype).astype(np.float64)
            with np.errstate(all="ignore"):
                return (np.log(-wide) if back else -np.exp(wide)).astype(np.float32)

        return Computed([tensor], compute, "float32")

    @property
    def inverse(self) -> NegativeExponential:
        return replace(self, back=not self.back)


@dataclass(frozen=True)
class Dequantise(Operation):
    """float32 matrices where `weight` is float8 with a `scale` of each block. There is no exact way back."""

    weight: str
    scale: str
    block: tuple[int, int] = (128, 128)

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result = dict(tensors)
        for scale, places in matching(tensors, self.scale):
            weight = filled(self.weight, places)
            if weight not in result:
                raise InputError(f"there is {scale}, but no {weight} to go with it", where=scale, fix=OWN_CONFIG)
            tensor = result[weight]
            must(len(tensor.shape) == 2, weight, tensor, "a matrix")
            result[weight] = Scaled(tensor, result.pop(scale), self.block)
        return result

    @property
    def inverse(self) -> Operation:
        what = f"{self.weight} was float8 with a scale per block: the same numbers can't be made again of float32"
        raise InputError(what, fix="keep the original files where float8 is needed")


@dataclass(frozen=True)
class SplitHeads(Operation):
    """The rows of multi-head latent attention's kv_b, of each head first the keys, then the values, as two tensors:
    keys [heads, latent, keys], turned; values [heads, values, latent] (https://arxiv.org/abs/2405.04434, 2.1.2)."""

    source: str
    targets: tuple[str, str]
    heads: int
    keys: int
    values: int

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result, size = dict(tensors), self.keys + self.values
        for name, places in matching(tensors, self.source):
            whole = result.pop(name)
            fits = len(whole.shape) == 2 and whole.shape[0] == self.heads * size
            must(fits, name, whole, f"a matrix of {self.heads * size} rows")
            starts = range(0, self.heads * size, size)
            keys = Stacked([Part.along(whole, 0, start, start + self.keys) for start in starts])
            values = Stacked([Part.along(whole, 0, start + self.keys, start + size) for start in starts])
            put(result, filled(self.targets[0], places), Transposed(keys, (0, 2, 1)))
            put(result, filled(self.targets[1], places), values)
        return result

    @property
    def inverse(self) -> JoinHeads:
        return JoinHeads(self.targets, self.source, self.heads, self.keys, self.values)


@dataclass(frozen=True)
class JoinHeads(Operation):
    """Keys and values of latent attention as one matrix again."""

    sources: tuple[str, str]
    target: str
    heads: int
    keys: int
    values: int

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result = dict(tensors)
        for places, (of_keys, of_values) in found(tensors, self.sources):
            keys, values = result.pop(of_keys), result.pop(of_values)
            fits = len(keys.shape) == 3 and (keys.shape[0], keys.shape[2]) == (self.heads, self.keys)
            must(fits, of_keys, keys, f"[{self.heads}, latent, {self.keys}]")
            must(values.shape[:2] == (self.heads, self.values), of_values, values, f"[{self.heads}, {self.values}, …]")
            must(values.shape[2:] == keys.shape[1:2], of_values, values, f"a last axis of {keys.shape[1]}")
            turned = Transposed(keys, (0, 2, 1))
            rows = [Unstacked(one, head) for head in range(self.heads) for one in (turned, values)]
            put(result, filled(self.target, places), Joined(rows))
        return result

    @property
    def inverse(self) -> SplitHeads:
        return SplitHeads(self.target, self.sources, self.heads, self.keys, self.values)
