"""Operations on named tensors, each with its inverse: what a family's table is made of.

An operation works on every name that its pattern stands for, and leaves all others as they are: it does nothing where
there is none. Nothing is read. One that finds a part of what it needs, or a wrong shape, raises InputError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from outlive.checkpoint.families.names import Places, filled, matching, places_of
from outlive.checkpoint.families.values import Inverse, Order, Ordered, Squeezed, Unsqueezed, index_of
from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Cast, Padded, Part, Taken
from outlive.run.errors import InputError

Tensors = dict[str, Tensor]
_LONGEST = 1 << 24  # of an axis that is reordered


class Operation(ABC):
    """A step from one layout to another."""

    @abstractmethod
    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        """The tensors in the other layout. InputError where they are not in the one that it starts from."""

    @property
    @abstractmethod
    def inverse(self) -> Operation:
        """The step back."""


def applied(operations: Iterable[Operation], tensors: Mapping[str, Tensor]) -> Tensors:
    """What the operations make of tensors, one after the other."""
    result = dict(tensors)
    for operation in operations:
        result = operation.apply(result)
    return result


def inverted(operations: Sequence[Operation]) -> list[Operation]:
    """The way back: the inverses, last first."""
    return [operation.inverse for operation in reversed(operations)]


def put(tensors: Tensors, name: str, tensor: Tensor) -> None:
    """Add a tensor. InputError where there is one of that name."""
    if name in tensors:
        raise InputError(f"two tensors would both be {name}", fix="remove the one that is left from another layout")
    tensors[name] = tensor


def found(tensors: Mapping[str, Tensor], patterns: Sequence[str]) -> list[tuple[Places, list[str]]]:
    """Of each set of places that any of the patterns has: the names of all of them. InputError where one lacks."""
    seen = {tuple(sorted(places.items())): places for one in patterns for _, places in matching(tensors, one)}
    groups = [(places, [filled(pattern, places) for pattern in patterns]) for places in seen.values()]
    for _, names in groups:
        for name in names:
            if name not in tensors:
                there = next(other for other in names if other in tensors)
                raise InputError(f"there is {there}, but no {name} to go with it", where=name, fix=OWN_CONFIG)
    return groups


def must(condition: bool, name: str, tensor: Tensor, expected: str) -> None:
    """InputError where a tensor is not what is expected."""
    if not condition:
        raise InputError(
            f"{name} has the shape {list(tensor.shape)}, where {expected} was expected", where=name, fix=OWN_CONFIG
        )


class OnEach(Operation):
    """An operation that changes single tensors of `pattern` and keeps their names."""

    pattern: str

    @abstractmethod
    def change(self, name: str, tensor: Tensor) -> Tensor:
        """What becomes of one."""

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        names = {name for name, _ in matching(tensors, self.pattern)}
        return {name: self.change(name, tensor) if name in names else tensor for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Rename(Operation):
    """Another name, with the same places."""

    source: str
    target: str

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        new = {name: filled(self.target, places) for name, places in matching(tensors, self.source)}
        result: Tensors = {}
        for name, tensor in tensors.items():
            put(result, new.get(name, name), tensor)
        return result

    @property
    def inverse(self) -> Rename:
        return Rename(self.target, self.source)


@dataclass(frozen=True)
class Reprefix(Operation):
    """Another prefix. It is undone where no other name begins with the new one."""

    source: str
    target: str

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        result: Tensors = {}
        for name, tensor in tensors.items():
            moved = self.target + name.removeprefix(self.source) if name.startswith(self.source) else name
            put(result, moved, tensor)
        return result

    @property
    def inverse(self) -> Reprefix:
        return Reprefix(self.target, self.source)


@dataclass(frozen=True)
class Permute(OnEach):
    """The indices of an axis in another order (rotary rows, value heads, Q, K and V by group)."""

    pattern: str
    order: Order
    axis: int = 0

    def change(self, name: str, tensor: Tensor) -> Tensor:
        fits = len(tensor.shape) > self.axis and tensor.shape[self.axis] == self.order.length
        must(fits, name, tensor, f"a length of {self.order.length} on axis {self.axis}")
        if self.order.length > _LONGEST:
            raise InputError(
                f"{name} has {self.order.length} indices on axis {self.axis} to reorder: too many",
                where=name,
                fix=OWN_CONFIG,
            )
        index = index_of(self.order)
        return Taken(tensor, index) if self.axis == 0 else Ordered(tensor, index, self.axis)

    @property
    def inverse(self) -> Permute:
        inverse = self.order.of if isinstance(self.order, Inverse) else Inverse(self.order)
        return replace(self, order=inverse)


@dataclass(frozen=True)
class Resize(OnEach):
    """`after` rows where there were `before`: zeros are added, or rows cut. Back from a cut, the rows are zeros."""

    pattern: str
    before: int
    after: int

    def change(self, name: str, tensor: Tensor) -> Tensor:
        must(tensor.shape[:1] == (self.before,), name, tensor, f"{self.before} rows")
        if self.after > self.before:
            return Padded(tensor, self.after)
        return Part.along(tensor, 0, 0, self.after)

    @property
    def inverse(self) -> Resize:
        return Resize(self.pattern, self.after, self.before)


@dataclass(frozen=True)
class Untie(Operation):
    """A tensor of its own for `name`, which shares `source`'s."""

    name: str
    source: str

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        copies = {filled(self.name, places): tensors[name] for name, places in matching(tensors, self.source)}
        return {**copies, **tensors}

    @property
    def inverse(self) -> Tie:
        return Tie(self.name, self.source)


@dataclass(frozen=True)
class Tie(Operation):
    """Without `name`, where there is its `source`. Whoever ties has to know that their values are equal."""

    name: str
    source: str

    def apply(self, tensors: Mapping[str, Tensor]) -> Tensors:
        gone = {filled(self.name, places) for _, places in matching(tensors, self.source)}
        return {name: tensor for name, tensor in tensors.items() if name not in gone}

    @property
    def inverse(self) -> Untie:
        return Untie(self.name, self.source)


@dataclass(frozen=True)
class Convert(OnEach):
    """From number format `before` to `after`: without loss where that is wider."""

    pattern: str
    before: str
    after: str

    def change(self, name: str, tensor: Tensor) -> Tensor:
        if tensor.dtype != self.before:
            raise InputError(f"{name} is {tensor.dtype}, where {self.before} was expected", where=name, fix=OWN_CONFIG)
        return Cast(tensor, self.after)

    @property
    def inverse(self) -> Convert:
        return Convert(self.pattern, self.after, self.before)


@dataclass(frozen=True)
class Squeeze(OnEach):
    """Without an axis of length one, or (`back`) with it again."""

    pattern: str
    axis: int
    back: bool = False
    _what: ClassVar[str] = "a length of 1 on axis"

    def change(self, name: str, tensor: Tensor) -> Tensor:
        if self.back:
            must(len(tensor.shape) >= self.axis, name, tensor, f"at least {self.axis} axes")
            return Unsqueezed(tensor, self.axis)
        fits = len(tensor.shape) > self.axis and tensor.shape[self.axis] == 1
        must(fits, name, tensor, f"{self._what} {self.axis}")
        return Squeezed(tensor, self.axis)

    @property
    def inverse(self) -> Squeeze:
        return replace(self, back=not self.back)


def has_place(pattern: str, place: str) -> bool:
    """Whether a pattern has a place of that name."""
    return place in places_of(pattern)
