"""Operations that make several tensors of one, or one of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from outlive.checkpoint.families.names import filled, matching
from outlive.checkpoint.families.operations import Operation, Tensors, found, must, put
from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Joined, Part, Stacked, Unstacked
from outlive.run.errors import InputError


@dataclass(frozen=True)
class Split(Operation):
    """One tensor as several, of `sizes` along an axis (gate|up, q|k|v one after the other)."""

    source: str
    targets: tuple[str, ...]
    sizes: tuple[int, ...]
    axis: int = 0

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result = dict(tensors)
        for name, places in matching(tensors, self.source):
            whole = result.pop(name)
            fits = len(whole.shape) > self.axis and whole.shape[self.axis] == sum(self.sizes)
            must(fits, name, whole, f"a length of {sum(self.sizes)} on axis {self.axis}")
            bounds = pairwise(accumulate(self.sizes, initial=0))
            for target, (begin, end) in zip(self.targets, bounds, strict=True):
                put(result, filled(target, places), Part.along(whole, self.axis, begin, end))
        return result

    @property
    def inverse(self) -> Join:
        return Join(self.targets, self.source, self.sizes, self.axis)


@dataclass(frozen=True)
class Join(Operation):
    """Several tensors as one, of `sizes` along an axis."""

    sources: tuple[str, ...]
    target: str
    sizes: tuple[int, ...]
    axis: int = 0

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result = dict(tensors)
        for places, names in found(tensors, self.sources):
            parts = [result.pop(name) for name in names]
            for name, part, size in zip(names, parts, self.sizes, strict=True):
                fits = len(part.shape) > self.axis and part.shape[self.axis] == size
                must(fits, name, part, f"a length of {size} on axis {self.axis}")
            put(result, filled(self.target, places), Joined(parts, self.axis))
        return result

    @property
    def inverse(self) -> Split:
        return Split(self.target, self.sources, self.sizes, self.axis)


@dataclass(frozen=True)
class Unstack(Operation):
    """One tensor as `count` of them, along its first axis; `place` of the target is the index."""

    source: str
    target: str
    count: int
    place: str = "expert"

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result = dict(tensors)
        for name, places in matching(tensors, self.source):
            whole = result.pop(name)
            must(whole.shape[:1] == (self.count,), name, whole, f"a length of {self.count} on axis 0")
            for index in range(self.count):
                put(result, filled(self.target, {**places, self.place: str(index)}), Unstacked(whole, index))
        return result

    @property
    def inverse(self) -> Stack:
        return Stack(self.target, self.source, self.count, self.place)


@dataclass(frozen=True)
class Stack(Operation):
    """`count` tensors as one, on a new first axis; `place` of the source is the index."""

    source: str
    target: str
    count: int
    place: str = "expert"

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result, groups = dict(tensors), dict[str, dict[int, str]]()
        for name, places in matching(tensors, self.source):
            groups.setdefault(filled(self.target, places), {})[int(places[self.place])] = name
        for target, names in groups.items():
            if sorted(names) != list(range(self.count)):
                lacking = next((index for index in range(self.count) if index not in names), self.count)
                some = next(iter(names.values()))
                what = f"{some} is one of {len(names)} of its kind; {self.count} are expected, number {lacking} "
                raise InputError(
                    what + ("is missing" if lacking < self.count else "is too many"), where=some, fix=OWN_CONFIG
                )
            put(result, target, Stacked([result.pop(names[index]) for index in range(self.count)]))
        return result

    @property
    def inverse(self) -> Unstack:
        return Unstack(self.target, self.source, self.count, self.place)
