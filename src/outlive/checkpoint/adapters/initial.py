"""What some ways to begin an adapter took out of the base's weights: it has to be taken out again before merging.

PiSSA (https://arxiv.org/abs/2404.02948, equations 2 to 4) begins with A and B as the r largest singular parts of W, and
OLoRA (https://arxiv.org/abs/2406.01775) with the first r columns of Q and rows of R of W = QR; both train on W - W_r.
So the weight that was trained is W - scale·B₀·A₀ + scale·B·A, where W is the weight as it was published.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outlive.checkpoint.adapters.lowrank import Floats, Held, Term, floats
from outlive.checkpoint.adapters.settings import PLAIN_STARTS, Settings
from outlive.checkpoint.tensors.dtypes import Array
from outlive.checkpoint.tensors.tensor import BLOCK, Box, Tensor, slices
from outlive.checkpoint.tensors.views import Transposed
from outlive.run.errors import InputError
from outlive.run.machine import available_memory

_LEAST_GAP = 1e-6  # of two singular values: PEFT finds them in float32, which can't tell closer ones apart


def taken_out(settings: Settings) -> str | None:
    """What the adapter's start took out of the base: "pissa", "olora", None for nothing.

    Raises InputError for starts of which the config does not tell what they took (CorDA, LoftQ, LoRA-GA, PiSSA by a
    random method).
    """
    start = settings.start.lower() if isinstance(settings.start, str) else settings.start
    if any(start is plain or start == plain for plain in PLAIN_STARTS):
        return None
    if start in ("pissa", "olora"):
        return str(start)
    raise InputError(
        f"the adapter began as {str(settings.start)[:100]!r}, which changes the base by what its config does not tell",
        where=settings.where,
        fix="name the adapter as it was before the first step with --initial; or save it with PEFT's "
        "path_initial_model_for_weight_conversion; or merge it into the base that was saved after the start, with "
        "init_lora_weights true in adapter_config.json",
    )


def start_term(
    kind: str, base: Tensor, transposed: bool, rank: int, scale: float, held: Held, factor: float = 1.0
) -> Term:
    """The term that takes the start out of `base`, a matrix [out, in], stored as [in, out] where `transposed`, `factor`
    times (`scale` has that in it).

    It is found from the base itself when it is first read: for PiSSA from the eigenvectors of W·Wᵀ or Wᵀ·W in float64
    (the smaller of them is held in memory), for OLoRA from an orthonormal basis of the first r columns. Raises
    InputError at once where the memory does not suffice for that.
    """
    weight: Tensor = Transposed(base, (1, 0)) if transposed else base
    out, width = weight.shape
    _check_memory(kind, out, width, rank, base)
    find = _principal if kind == "pissa" else _leading
    key = object()

    def factors() -> tuple[Floats, Floats]:
        found: tuple[Floats, Floats] = held.get(key, lambda: find(weight, min(rank, out, width)))
        return found

    count = min(rank, out, width)
    left, right = _Lazy((out, count), lambda: factors()[0]), _Lazy((count, width), lambda: factors()[1])
    taken = -factor if kind == "pissa" else -scale  # PiSSA divides its singular values by the scale, OLoRA does not
    if transposed:
        return Term(taken, Transposed(right, (1, 0)), Transposed(left, (1, 0)))
    return Term(taken, left, right)


def _check_memory(kind: str, out: int, width: int, rank: int, base: Tensor) -> None:
    """A square of float64 is held four times over: itself, its eigenvectors, and twice as much to work in."""
    side = min(out, width)
    needed, there = (32 * side * side if kind == "pissa" else 32 * out * rank), available_memory()
    if there and needed > there:
        raise InputError(
            f"to find what {kind} took out of a weight of {base.shape} takes {needed / 1e9:.1f} GB of memory, and "
            f"{there / 1e9:.1f} GB are free",
            where="init_lora_weights",
            fix="name the adapter as it was before the first step with --initial: then blocks of 1 MiB suffice",
        )


class _Lazy(Tensor):
    """A matrix in float64 that is made when it is first read."""

    dtype = "float64"

    def __init__(self, shape: tuple[int, int], make: Callable[[], Floats]) -> None:
        self.shape, self.make = shape, make

    def read(self, box: Box) -> Array:
        return self.make()[slices(box)]


def _principal(weight: Tensor, rank: int) -> tuple[Floats, Floats]:
    """left [out, r] and right [r, in] whose product is the best approximation of rank r."""
    out, width = weight.shape
    by_rows = width < out
    gram = np.zeros((min(out, width),) * 2)
    for box in _stripes(weight, 0 if by_rows else 1):
        block = floats(weight, box)
        gram += block.T @ block if by_rows else block @ block.T
    squares, all_vectors = np.linalg.eigh(gram)
    _check_gap(np.sqrt(np.maximum(squares[::-1], 0)), rank, weight.shape)
    vectors = all_vectors[:, ::-1][:, :rank]
    if not by_rows:
        return vectors, _projected(weight, vectors)
    left = np.concatenate([floats(weight, box) @ vectors for box in _stripes(weight, 0)])
    return left, np.ascontiguousarray(vectors.T)


def _check_gap(values: Floats, rank: int, shape: tuple[int, ...]) -> None:
    """Raise InputError where the singular value after the last that was taken out is as large: either may be meant."""
    matters = rank < len(values) and values[rank - 1] > _LEAST_GAP * values[0]
    if matters and values[rank - 1] - values[rank] < _LEAST_GAP * values[rank - 1]:
        raise InputError(
            f"the singular values {rank} and {rank + 1} of a weight of {shape} are {values[rank - 1]:.9g} and "
            f"{values[rank]:.9g}: what PiSSA took out of it can't be told",
            where="init_lora_weights",
            fix="name the adapter as it was before the first step with --initial",
        )


def _leading(weight: Tensor, rank: int) -> tuple[Floats, Floats]:
    basis = np.linalg.qr(floats(weight, (weight.whole[0], (0, rank))))[0]
    return basis, _projected(weight, basis)


def _projected(weight: Tensor, basis: Floats) -> Floats:
    """basisᵀ · W, a block of rows at a time."""
    total = np.zeros((basis.shape[1], weight.shape[1]))
    for box in _stripes(weight, 0):
        total += basis[slice(*box[0])].T @ floats(weight, box)
    return total


def _stripes(weight: Tensor, axis: int) -> list[Box]:
    """Boxes of whole rows (`axis` 0) or columns (1)."""
    step = max(1, BLOCK // (8 * max(1, weight.shape[1 - axis])))
    parts = [(begin, min(begin + step, weight.shape[axis])) for begin in range(0, weight.shape[axis], step)]
    return [(part, weight.whole[1]) if axis == 0 else (weight.whole[0], part) for part in parts]
