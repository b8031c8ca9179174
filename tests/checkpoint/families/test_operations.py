"""Promise: the inverse of every operation undoes it bit for bit, and what does not fit is an InputError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.checkpoint.families.arithmetic import Add, Dequantise, NegativeExponential, SplitHeads
from outlive.checkpoint.families.operations import (
    Convert,
    Operation,
    Permute,
    Rename,
    Resize,
    Squeeze,
    Tie,
    Untie,
    applied,
    inverted,
)
from outlive.checkpoint.families.parts import Join, Split, Stack, Unstack
from outlive.checkpoint.families.values import Grouped, Inverse, Rotary, Tiled
from outlive.checkpoint.tensors.dtypes import to_float32
from outlive.checkpoint.tensors.tensor import Box, Tensor, slices
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError
from tests.checkpoint.families.folders import assert_equal

SIZE = st.integers(1, 4)


class Hollow(Tensor):
    """A shape that no array has, as a file's header may claim it."""

    dtype = "float32"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def read(self, box: Box) -> Any:
        raise AssertionError(box)


def numbers(*shape: int, start: int = 0) -> Tensor:
    if max(shape, default=0) > 1 << 62:
        return Hollow(shape)
    count = int(np.prod(shape))
    return Given((np.arange(start, start + count, dtype=np.float32) / 8).reshape(shape))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Operation, dict[str, Tensor]]:
    """An operation, and tensors of two layers that it works on, beside one that it leaves alone."""
    a, b, c, heads, half = (draw(SIZE) for _ in range(5))
    kind = draw(st.sampled_from(sorted(KINDS)))
    operation, shapes = KINDS[kind](a, b, c, heads, half)
    tensors = {
        name.replace("{layer}", layer): numbers(*shape, start=97 * at)
        for layer in ("0", "12")
        for at, (name, shape) in enumerate(shapes.items())
    }
    return operation, {**tensors, "other": numbers(2)}


def _experts(a: int, b: int, c: int) -> dict[str, tuple[int, ...]]:
    return {f"l.{{layer}}.e.{expert}.w": (b, c) for expert in range(a)}


KINDS: dict[str, Any] = {
    "rename": lambda a, b, c, h, s: (Rename("l.{layer}.w", "m.{layer}"), {"l.{layer}.w": (a, b)}),
    "split": lambda a, b, c, h, s: (Split("l.{layer}", ("q.{layer}", "k.{layer}"), (a, b)), {"l.{layer}": (a + b, c)}),
    "split axis 1": lambda a, b, c, h, s: (
        Split("l.{layer}", ("q.{layer}", "k.{layer}", "v.{layer}"), (a, b, a), 1),
        {"l.{layer}": (c, a + b + a)},
    ),
    "join": lambda a, b, c, h, s: (
        Join(("l.{layer}.a", "l.{layer}.b"), "m.{layer}", (a, b)),
        {"l.{layer}.a": (a, c), "l.{layer}.b": (b, c)},
    ),
    "unstack": lambda a, b, c, h, s: (Unstack("l.{layer}.e", "l.{layer}.e.{expert}.w", a), {"l.{layer}.e": (a, b, c)}),
    "stack": lambda a, b, c, h, s: (Stack("l.{layer}.e.{expert}.w", "l.{layer}.e", a), _experts(a, b, c)),
    "rotary": lambda a, b, c, h, s: (Permute("l.{layer}", Rotary(h, 2 * s)), {"l.{layer}": (2 * h * s, c)}),
    "rotary back": lambda a, b, c, h, s: (Permute("l.{layer}", Inverse(Rotary(h, 2 * s))), {"l.{layer}": (2 * h * s,)}),
    "by group": lambda a, b, c, h, s: (Permute("l.{layer}", Grouped(a, b, s)), {"l.{layer}": (a * (b + 2) * s, c)}),
    "tiled": lambda a, b, c, h, s: (Permute("l.{layer}", Tiled(c, a, a * b, s)), {"l.{layer}": (c + a * b * s, 3)}),
    "columns": lambda a, b, c, h, s: (Permute("l.{layer}", Tiled(0, a, a * b, s), 1), {"l.{layer}": (c, a * b * s)}),
    "pad": lambda a, b, c, h, s: (Resize("l.{layer}", a, a + b), {"l.{layer}": (a, c)}),
    "untie": lambda a, b, c, h, s: (Untie("m.{layer}", "l.{layer}"), {"l.{layer}": (a, c)}),
    "widen": lambda a, b, c, h, s: (Convert("l.{layer}", "float32", "float64"), {"l.{layer}": (a, c)}),
    "squeeze": lambda a, b, c, h, s: (Squeeze("l.{layer}", 1), {"l.{layer}": (a, 1, c)}),
    "unsqueeze": lambda a, b, c, h, s: (Squeeze("l.{layer}", 1, back=True), {"l.{layer}": (a, c)}),
    "add": lambda a, b, c, h, s: (Add("l.{layer}", 1.0), {"l.{layer}": (a, c)}),
    "heads": lambda a, b, c, h, s: (
        SplitHeads("l.{layer}", ("k.{layer}", "v.{layer}"), h, a, b),
        {"l.{layer}": (h * (a + b), c)},
    ),
}


@settings(max_examples=400, deadline=None)
@given(cases())
def test_the_inverse_undoes(case: tuple[Operation, dict[str, Tensor]]) -> None:
    operation, tensors = case
    there = operation.apply(tensors)
    assert there["other"] is tensors["other"]
    assert_equal(operation.inverse.apply(there), tensors)
    assert_equal(applied(inverted([operation]), there), tensors)
    assert_equal(operation.inverse.inverse.apply(tensors), there)


@settings(max_examples=200, deadline=None)
@given(cases(), st.data())
def test_any_box_of_the_result_is_that_of_the_whole(
    case: tuple[Operation, dict[str, Tensor]], data: st.DataObject
) -> None:
    for tensor in case[0].apply(case[1]).values():
        box = tuple(tuple(sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in tensor.shape)
        assert np.array_equal(tensor.read(box), tensor.array()[slices(box)])


def test_a_cut_is_undone_with_zeros() -> None:
    cut = Resize("w", 5, 3)
    assert np.array_equal(cut.inverse.apply(cut.apply({"w": numbers(5, 2)}))["w"].array()[3:], np.zeros((2, 2)))


def test_a_tie_is_undone_from_its_source() -> None:
    tie = Tie("head", "embedding")
    tensors = {"embedding": numbers(3, 2), "head": numbers(3, 2)}
    assert list(tie.apply(tensors)) == ["embedding"]
    assert_equal(tie.inverse.apply(tie.apply(tensors)), tensors)
    assert list(tie.apply({"head": numbers(3, 2)})) == ["head"]


def test_groups_of_queries_are_megatrons() -> None:
    """Two groups of two queries, a key and a value each, of one row: q0 q1 k0 v0, q2 q3 k1 v1."""
    assert Grouped(2, 2, 1).index().tolist() == [0, 1, 4, 6, 2, 3, 5, 7]


def test_float8_is_dequantised_by_block() -> None:
    codes = np.arange(0, 96, dtype=np.uint8).reshape(8, 12)
    scale = np.array([[1, 2, 4], [8, 16, 32]], np.float32)
    tensors = {"l.0.weight": Given(codes, "float8_e4m3fn"), "l.0.scale": Given(scale)}
    operation = Dequantise("l.{layer}.weight", "l.{layer}.scale", (4, 5))
    result = operation.apply(tensors)
    assert list(result) == ["l.0.weight"]
    wanted = to_float32(codes, "float8_e4m3fn") * scale.repeat(4, 0).repeat(5, 1)[:, :12]
    assert np.array_equal(result["l.0.weight"].array(), wanted)
    with pytest.raises(InputError, match="float8"):
        _ = operation.inverse


def test_an_exponential_comes_back_within_a_rounding() -> None:
    values = np.random.default_rng(0).uniform(-4, 3, 1000).astype(np.float32)
    operation = NegativeExponential("a")
    there = operation.apply({"a": Given(values)})
    assert (there["a"].array() < 0).all()
    np.testing.assert_allclose(operation.inverse.apply(there)["a"].array(), values, atol=2e-7)


@pytest.mark.parametrize(
    ("operation", "names", "said"),
    [
        (Split("w", ("a", "b"), (2, 2)), {"w": (5, 2)}, "w has the shape"),
        (Split("w", ("a", "b"), (2, 2), 1), {"w": (4,)}, "w has the shape"),
        (Split("w", ("a", "b"), (2, 2)), {"w": (4, 1), "a": (2,)}, "would both be a"),
        (Join(("a", "b"), "w", (2, 2)), {"a": (2, 1)}, "no b to go with"),
        (Join(("a", "b"), "w", (2, 2)), {"a": (2, 1), "b": (2, 2)}, "joined"),
        (Unstack("e", "e.{expert}", 3), {"e": (2, 1)}, "e has the shape"),
        (Unstack("e", "e.{expert}", 3), {"e": ()}, "e has the shape"),
        (Stack("e.{expert}", "e", 3), {"e.0": (1,), "e.2": (1,)}, "number 1 is missing"),
        (Stack("e.{expert}", "e", 1), {"e.0": (1,), "e.9999999": (1,)}, "too many"),
        (Stack("e.{expert}", "e", 2), {"e.0": (1,), "e.1": (2,)}, "stacked"),
        (Permute("w", Rotary(1 << 40, 1 << 40)), {"w": (4, 1)}, "w has the shape"),
        (Permute("w", Rotary(2, 2), 1), {"w": (4,)}, "w has the shape"),
        (Permute("w", Rotary(2, 3)), {"w": (6, 1)}, "two halves"),
        (Permute("w", Rotary(1 << 40, 1 << 40)), {"w": (1 << 80, 0)}, "too many"),
        (Resize("w", 4, 8), {"w": (5,)}, "w has the shape"),
        (Squeeze("w", 1), {"w": (4, 2)}, "w has the shape"),
        (Rename("l.{layer}", "w"), {"l.1": (1,), "l.2": (1,)}, "would both be w"),
        (Convert("w", "float64", "float32"), {"w": (1,)}, "float64 was expected"),
        (Dequantise("w", "s"), {"s": (1, 1)}, "no w to go with"),
        (SplitHeads("w", ("k", "v"), 2, 3, 4), {"w": (13, 2)}, "w has the shape"),
        (SplitHeads("w", ("k", "v"), 2, 3, 4).inverse, {"k": (2, 5, 3), "v": (2, 4, 6)}, "v has the shape"),
    ],
)
def test_what_does_not_fit_is_named(operation: Operation, names: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        operation.apply({name: numbers(*shape) for name, shape in names.items()})


def test_numbers_with_leading_zeros_are_other_names() -> None:
    tensors = {"l.01": numbers(1), "l.12345678": numbers(1), "l.x": numbers(1)}
    assert Rename("l.{layer}", "m.{layer}").apply(tensors) == tensors
