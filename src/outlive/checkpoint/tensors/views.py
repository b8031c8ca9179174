"""What can be made of tensors, box by box: parts, joins, permutations, casts. Nothing is read before it is asked for.

Each view says in its docstring what undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.checkpoint.tensors.dtypes import DTYPES, Array, cast, to_float32
from outlive.checkpoint.tensors.tensor import Box, Tensor, common, extent, slices, within
from outlive.run.errors import InputError

_NEAR = 16  # rows between two that are read together


class Given(Tensor):
    """A tensor in memory; `dtype` where numpy lacks it."""

    def __init__(self, array: Array, dtype: str | None = None) -> None:
        self.values, self.dtype, self.shape = array, dtype or array.dtype.name, array.shape

    def read(self, box: Box) -> Array:
        return self.values[slices(box)]


class Part(Tensor):
    """A box of a tensor. Undone by joining the parts."""

    def __init__(self, base: Tensor, box: Box) -> None:
        self.base, self.box, self.dtype, self.shape = base, box, base.dtype, extent(box)

    @classmethod
    def along(cls, base: Tensor, axis: int, begin: int, end: int) -> Part:
        """The indices begin … end - 1 of one axis."""
        if not 0 <= begin <= end <= base.shape[axis]:
            raise InputError(
                f"indices {begin} to {end} of axis {axis} do not exist in a tensor of shape {base.shape}",
                fix=OWN_CONFIG,
            )
        return cls(base, (*base.whole[:axis], (begin, end), *base.whole[axis + 1 :]))

    def read(self, box: Box) -> Array:
        moved = [(begin + first, end + first) for (begin, end), (first, _) in zip(box, self.box, strict=True)]
        return self.base.read(tuple(moved))


class Joined(Tensor):
    """Tensors one after the other along an axis. Undone by their parts."""

    def __init__(self, parts: Sequence[Tensor], axis: int = 0) -> None:
        first = parts[0]
        for part in parts:
            others = [part.shape[:axis] + part.shape[axis + 1 :], first.shape[:axis] + first.shape[axis + 1 :]]
            if part.dtype != first.dtype or others[0] != others[1]:
                one, other = (f"{tensor.dtype} {tensor.shape}" for tensor in (first, part))
                raise InputError(f"tensors of {one} and {other} can't be joined on axis {axis}", fix=OWN_CONFIG)
        self.parts, self.axis, self.dtype = list(parts), axis, first.dtype
        length = sum(part.shape[axis] for part in parts)
        self.shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])

    def read(self, box: Box) -> Array:
        found, begin = [], 0
        for part in self.parts:
            end = begin + part.shape[self.axis]
            place = (*self.whole[: self.axis], (begin, end), *self.whole[self.axis + 1 :])
            if (shared := common(box, place)) is not None:
                found.append(part.read(within(shared, place)))
            begin = end
        if len(found) == 1:
            return found[0]
        return np.concatenate(found, self.axis) if found else np.empty(extent(box), DTYPES[self.dtype].raw)


class Stacked(Tensor):
    """Tensors of one shape on a new first axis. Undone by `Unstacked`."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        first = parts[0]
        for part in parts:
            if part.dtype != first.dtype or part.shape != first.shape:
                raise InputError(
                    f"{part.dtype} {part.shape} can't be stacked on {first.dtype} {first.shape}", fix=OWN_CONFIG
                )
        self.parts, self.dtype, self.shape = list(parts), first.dtype, (len(parts), *first.shape)

    def read(self, box: Box) -> Array:
        begin, end = box[0]
        found = [self.parts[place].read(box[1:]) for place in range(begin, end)]
        return np.stack(found) if found else np.empty(extent(box), DTYPES[self.dtype].raw)


class Unstacked(Tensor):
    """One index of the first axis, which is gone then. Undone by `Stacked`."""

    def __init__(self, base: Tensor, index: int) -> None:
        if not 0 <= index < base.shape[0]:
            raise InputError(
                f"index {index} does not exist on the first axis of a tensor of shape {base.shape}", fix=OWN_CONFIG
            )
        self.base, self.index, self.dtype, self.shape = base, index, base.dtype, base.shape[1:]

    def read(self, box: Box) -> Array:
        return np.asarray(self.base.read(((self.index, self.index + 1), *box))[0])


class Taken(Tensor):
    """Rows of a tensor in another order: row i is row `index[i]`. Undone by the inverse permutation."""

    def __init__(self, base: Tensor, index: npt.NDArray[np.int64]) -> None:
        self.base, self.index, self.dtype = base, index, base.dtype
        self.shape = (len(index), *base.shape[1:])

    def read(self, box: Box) -> Array:
        begin, end = box[0]
        wanted = self.index[begin:end]
        out = np.empty(extent(box), DTYPES[self.dtype].raw)
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        for run in np.split(np.arange(len(ordered)), np.flatnonzero(np.diff(ordered) > _NEAR) + 1):
            if len(run):
                first, last = int(ordered[run[0]]), int(ordered[run[-1]]) + 1
                out[order[run]] = self.base.read(((first, last), *box[1:]))[ordered[run] - first]
        return out


class Transposed(Tensor):
    """Axes in another order: axis i is axis `axes[i]` of the base. Undone by the inverse permutation of the axes."""

    def __init__(self, base: Tensor, axes: Sequence[int]) -> None:
        self.base, self.axes, self.dtype = base, tuple(axes), base.dtype
        self.shape = tuple(base.shape[axis] for axis in axes)

    def read(self, box: Box) -> Array:
        turned = [(0, 0)] * len(box)
        for place, axis in enumerate(self.axes):
            turned[axis] = box[place]
        return self.base.read(tuple(turned)).transpose(self.axes)


class Cast(Tensor):
    """In another number format. A wider one is undone without loss."""

    def __init__(self, base: Tensor, dtype: str) -> None:
        self.base, self.dtype, self.shape = base, dtype, base.shape

    def read(self, box: Box) -> Array:
        return cast(self.base.read(box), self.base.dtype, self.dtype)


def widened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The 16-bit floating ones as float32, so that what is made of them is not rounded to less on the way."""
    narrow = ("bfloat16", "float16")
    return {name: Cast(each, "float32") if each.dtype in narrow else each for name, each in tensors.items()}


class Padded(Tensor):
    """With rows of zeros behind, `length` in all. Undone by the part without them."""

    def __init__(self, base: Tensor, length: int) -> None:
        self.base, self.dtype, self.shape = base, base.dtype, (length, *base.shape[1:])

    def read(self, box: Box) -> Array:
        out = np.zeros(extent(box), DTYPES[self.dtype].raw)
        if (shared := common(box, self.base.whole)) is not None:
            out[slices(within(shared, box))] = self.base.read(shared)
        return out


class Scaled(Tensor):
    """float32: elements of a matrix times the scale of their block of `block` rows and columns (DeepSeek-V3's float8
    weights and their `weight_scale_inv`: https://arxiv.org/abs/2412.19437, section 3.3)."""

    dtype = "float32"

    def __init__(self, base: Tensor, scale: Tensor, block: tuple[int, int] = (128, 128)) -> None:
        blocks = tuple(-(-length // size) for length, size in zip(base.shape, block, strict=True))
        if scale.shape != blocks:
            raise InputError(
                f"scales of shape {scale.shape} do not fit a matrix of {base.shape} in blocks of {block}",
                fix=OWN_CONFIG,
            )
        self.base, self.scale, self.block, self.shape = base, scale, block, base.shape

    def read(self, box: Box) -> Array:
        values = to_float32(self.base.read(box), self.base.dtype)
        of_blocks = tuple((begin // size, -(-end // size)) for (begin, end), size in zip(box, self.block, strict=True))
        scales = to_float32(self.scale.read(of_blocks), self.scale.dtype)
        places = [
            np.arange(begin, end) // size - begin // size for (begin, end), size in zip(box, self.block, strict=True)
        ]
        return np.asarray(values * scales[np.ix_(*places)])


class Computed(Tensor):
    """What a function makes of the same box of several tensors of one shape."""

    def __init__(self, parts: Sequence[Tensor], make: Callable[[Sequence[Array]], Array], dtype: str) -> None:
        for part in parts:
            if part.shape != parts[0].shape:
                raise InputError(
                    f"tensors of shapes {part.shape} and {parts[0].shape} can't be combined", fix=OWN_CONFIG
                )
        self.parts, self.make, self.dtype, self.shape = list(parts), make, dtype, parts[0].shape

    def read(self, box: Box) -> Array:
        return self.make([part.read(box) for part in self.parts])
