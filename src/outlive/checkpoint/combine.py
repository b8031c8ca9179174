"""Models of the same names and shapes made into one, a block at a time: average, task arithmetic, TIES, DARE.

Each tensor of the result is computed when it is read, from the same box of the models' tensors, in float64 where the
result is float32 and in float32 else, and is rounded once. Tensors that hold no reals are the base's or first model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from outlive.checkpoint.adapters.lowrank import Floats, floats, rounded
from outlive.checkpoint.tensors.dtypes import DTYPES, Array
from outlive.checkpoint.tensors.tensor import Box, Tensor, blocks_of, extent, slices, within
from outlive.run.errors import InputError

Tensors = Mapping[str, Tensor]
Take = Callable[[int, Floats, Box], Floats]
_PRECISE = ("float32", "float64")
_PART = 1 << 20  # bytes of a result that are computed at once


def average(models: Sequence[Tensors], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Σ wᵢ·Wᵢ / Σ wᵢ, all alike without `weights` (model soups: https://arxiv.org/abs/2203.05482, uniform soup).

    Raises InputError where the models' names or shapes differ, or the weights are no finite numbers with a sum.
    """
    factors = _weights(weights, len(models), 1.0)
    if sum(factors) == 0:
        raise InputError("the weights of an average sum to 0", fix="give weights whose sum is not 0")
    total = sum(factors)

    def make(name: str, tensors: Sequence[Tensor]) -> Tensor:
        return _Sum(None, tensors, [factor / total for factor in factors])

    return _each(models, make)


def task_arithmetic(
    base: Tensors, models: Sequence[Tensors], weights: Sequence[float] | None = None, scale: float = 1.0
) -> dict[str, Tensor]:
    """base + scale · Σ wᵢ·(Wᵢ - base), each wᵢ 1 without `weights` (https://arxiv.org/abs/2212.04089, section 2).

    Raises InputError as `average` does.
    """
    factors = [scale * weight for weight in _weights(weights, len(models), 1.0)]
    return _each([base, *models], lambda _, tensors: _Sum(tensors[0], tensors[1:], factors))


def ties(
    base: Tensors,
    models: Sequence[Tensors],
    weights: Sequence[float] | None = None,
    *,
    density: float = 0.2,
    scale: float = 1.0,
) -> dict[str, Tensor]:
    """TIES (https://arxiv.org/abs/2306.01708, algorithm 1): of each model's difference to the base only the share
    `density` of largest size is kept, in each tensor; the sign of each element is that of the sum of what is kept; the
    result is base + scale · the mean of those that have that sign, weighted by wᵢ.

    The paper trims over all tensors at once, this over each by itself. Elements that are as large as the smallest kept
    one are kept too. Raises InputError as `average` does, and for a density that is not in (0, 1].
    """
    factors = _weights(weights, len(models), 1.0)
    _check_density(density)
    return _each([base, *models], lambda _, tensors: _Ties(tensors[0], tensors[1:], factors, density, scale))


def dare(
    base: Tensors,
    models: Sequence[Tensors],
    weights: Sequence[float] | None = None,
    *,
    density: float = 0.5,
    scale: float = 1.0,
    seed: int = 0,
) -> dict[str, Tensor]:
    """DARE (https://arxiv.org/abs/2311.03099, equations 2 and 3): each element of a model's difference to the base is
    kept with probability `density`, divided by it then, and else dropped; base + scale · Σ wᵢ·that.

    What is kept is a function of the seed, the tensor's name, the model's place and the element's, and so the same
    however the tensor is read. Raises InputError as `ties` does.
    """
    factors = [scale * weight / density if density else 0.0 for weight in _weights(weights, len(models), 1.0)]
    _check_density(density)

    def make(name: str, tensors: Sequence[Tensor]) -> Tensor:
        keys = [_key(seed, name, place) for place in range(len(models))]

        def kept(place: int, values: Floats, box: Box) -> Floats:
            is_kept = _uniform(_places(box, tensors[0].shape), keys[place]) < density
            return np.where(is_kept, values, np.zeros((), values.dtype))

        return _Sum(tensors[0], tensors[1:], factors, kept)

    return _each([base, *models], make)


def _each(models: Sequence[Tensors], make: Any) -> dict[str, Tensor]:
    if len(models) < 2:
        raise InputError("at least two models are combined", fix="name another one")
    first = models[0]
    for place, other in enumerate(models[1:], start=2):
        _check_alike(first, other, place)
    return {
        name: make(name, [model[name] for model in models]) if DTYPES[tensor.dtype].is_float else tensor
        for name, tensor in first.items()
    }


def _check_alike(first: Tensors, other: Tensors, place: int) -> None:
    fix = "combine models of one architecture and vocabulary, whose embeddings are all tied or all not"
    if differ := sorted(first.keys() ^ other.keys()):
        holder = "first" if differ[0] in first else f"{place}."
        more = f", and {len(differ) - 1} others differ" if len(differ) > 1 else ""
        raise InputError(f"only the {holder} of the models has {differ[0]}{more}", where=differ[0], fix=fix)
    for name, tensor in first.items():
        if tensor.shape != other[name].shape:
            what = f"{name} has the shape {tensor.shape} in the first model and {other[name].shape} in the {place}."
            raise InputError(what, where=name, fix=fix)
        dtypes = (tensor.dtype, other[name].dtype)
        if any(each.startswith("float8") for each in dtypes) or len({DTYPES[each].is_float for each in dtypes}) > 1:
            what = f"{name} is {tensor.dtype} in the first model and {other[name].dtype} in the {place}."
            raise InputError(what, where=name, fix="combine models in bf16, fp16 or fp32")


def _weights(weights: Sequence[float] | None, number: int, default: float) -> list[float]:
    if weights is None:
        return [default] * number
    if len(weights) != number or not all(np.isfinite(weights)):
        what = f"there are {number} models and the weights are {', '.join(map(str, weights))}"
        raise InputError(what, where="weights", fix="give each model one finite number")
    return list(weights)


def _check_density(density: float) -> None:
    if not 0 < density <= 1:
        raise InputError(
            f"the density is {density}", where="density", fix="give the share that is kept: 0 < density ≤ 1"
        )


def _in_parts(tensor: Tensor, box: Box, values: Callable[[Box], Floats]) -> Array:
    """A box of a tensor, from the values of parts of it that fit a processor's cache, each rounded once."""
    out = np.empty(extent(box), DTYPES[tensor.dtype].raw)
    for part in blocks_of(box, DTYPES[tensor.dtype].width, _PART):
        out[slices(within(part, box))] = rounded(values(part), tensor.dtype)
    return out


def _number(dtype: str) -> type[np.floating[Any]]:
    """In what a tensor of this dtype is computed."""
    return np.float64 if dtype in _PRECISE else np.float32


class _Sum(Tensor):
    """base + Σ factor · (part - base); without a base Σ factor · part. `take`, of the place of a part, its difference
    to the base and the box that this is of: what is taken of the difference."""

    def __init__(
        self, base: Tensor | None, parts: Sequence[Tensor], factors: Sequence[float], take: Take | None = None
    ) -> None:
        self.base, self.parts, self.factors, self.take = base, list(parts), list(factors), take
        like = parts[0] if base is None else base
        self.dtype, self.shape, self.number = like.dtype, like.shape, _number(like.dtype)

    def read(self, box: Box) -> Array:
        return _in_parts(self, box, self._values)

    def _values(self, box: Box) -> Floats:
        base = None if self.base is None else floats(self.base, box, self.number)
        total: Floats = np.zeros(extent(box), self.number) if base is None else base.copy()
        for place, (factor, part) in enumerate(zip(self.factors, self.parts, strict=True)):
            values = floats(part, box, self.number)
            if base is not None:
                values = values - base
            total += self.number(factor) * (values if self.take is None else self.take(place, values, box))
        return total


class _Ties(Tensor):
    """base + scale · the mean of the models' largest differences that have the elected sign."""

    def __init__(
        self, base: Tensor, parts: Sequence[Tensor], factors: Sequence[float], density: float, scale: float
    ) -> None:
        self.dtype, self.shape, self.number = base.dtype, base.shape, _number(base.dtype)
        self.base, self.parts, self.factors, self.density, self.scale = base, list(parts), factors, density, scale
        self._least: list[np.float32] | None = None

    def read(self, box: Box) -> Array:
        return _in_parts(self, box, self._values)

    def _values(self, box: Box) -> Floats:
        base = floats(self.base, box, self.number)
        if self._least is None:
            self._least = [_least_kept(self.base, part, self.density) for part in self.parts]
        trimmed = []
        for part, least, factor in zip(self.parts, self._least, self.factors, strict=True):
            difference = floats(part, box, self.number) - base
            kept = np.abs(difference).astype(np.float32) >= least
            trimmed.append(np.where(kept, difference * self.number(factor), self.number(0)))
        elected = np.sign(np.sum(trimmed, axis=0))
        total, weight = np.zeros_like(base), np.zeros_like(base)
        for values, factor in zip(trimmed, self.factors, strict=True):
            agrees = (np.sign(values) == elected) & (values != 0)
            total += np.where(agrees, values, self.number(0))
            weight += np.where(agrees, self.number(abs(factor)), self.number(0))
        mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
        return np.asarray(base + self.number(self.scale) * mean)


def _least_kept(base: Tensor, part: Tensor, density: float) -> np.float32:
    """The size of the smallest difference that is among the share `density` of largest ones.

    Sizes are counted by the upper half of their float32 bits, then by the lower: bits of positive floats are ordered as
    the numbers are. It takes two readings and some kilobytes.
    """
    kept = max(1, round(density * base.size))
    upper = np.zeros(1 << 16, np.int64)
    for bits in _sizes(base, part):
        upper += np.bincount(bits >> 16, minlength=1 << 16)
    above = np.cumsum(upper[::-1])
    bucket = (1 << 16) - 1 - int(np.searchsorted(above, kept))
    rest = kept - int(upper[bucket + 1 :].sum())
    lower = np.zeros(1 << 16, np.int64)
    for bits in _sizes(base, part):
        lower += np.bincount(bits[bits >> 16 == bucket] & 0xFFFF, minlength=1 << 16)
    low = (1 << 16) - 1 - int(np.searchsorted(np.cumsum(lower[::-1]), rest))
    return np.float32(np.array([(bucket << 16) | low], np.uint32).view(np.float32)[0])


def _sizes(base: Tensor, part: Tensor) -> Any:
    number = _number(base.dtype)
    for box in base.blocks(_PART):
        sizes = np.abs(floats(part, box, number) - floats(base, box, number)).astype(np.float32)
        yield sizes.reshape(-1).view(np.uint32)


def _key(seed: int, name: str, place: int) -> int:
    return xxhash.xxh3_64_intdigest(f"{seed} {place} {name}".encode())


def _places(box: Box, shape: Sequence[int]) -> npt.NDArray[np.uint64]:
    """Of each element of a box its place in the whole tensor, row by row."""
    places: npt.NDArray[np.uint64] = np.zeros((), np.uint64)
    for (begin, end), length in zip(box, shape, strict=True):
        inner: npt.NDArray[np.uint64] = np.arange(begin, end).astype(np.uint64)
        places = np.add(np.multiply(places[..., None], np.uint64(length)), inner)
    return places


def _uniform(places: npt.NDArray[np.uint64], key: int) -> Floats:
    """A number in [0, 1) for each place: splitmix64 (https://doi.org/10.1145/2714064.2660195) of place and key."""
    with np.errstate(over="ignore"):
        state = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + _mix(np.array([key], np.uint64))[0]
        return (_mix(state) >> np.uint64(11)).astype(np.float64) / 2.0**53


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))
