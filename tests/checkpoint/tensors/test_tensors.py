"""Promise: any box of a stored tensor or of a view is what numpy gives for the whole, however its pieces lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.checkpoint.tensors import tensor as tensor_module
from outlive.checkpoint.tensors.dtypes import DTYPES, cast, is_finite, to_float32
from outlive.checkpoint.tensors.stored import File, Piece, Ragged, Run, Stored
from outlive.checkpoint.tensors.tensor import Box, Tensor, blocks_of, extent, slices
from outlive.checkpoint.tensors.views import (
    Cast,
    Computed,
    Given,
    Joined,
    Padded,
    Part,
    Scaled,
    Stacked,
    Taken,
    Transposed,
    Unstacked,
)
from outlive.run.errors import InputError

SHAPES = st.lists(st.integers(1, 6), min_size=0, max_size=4).map(tuple)


def boxes(shape: tuple[int, ...]) -> st.SearchStrategy[Box]:
    ranges = [st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted).map(tuple) for n in shape]
    return st.tuples(*ranges)


def values(shape: tuple[int, ...]) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


@settings(max_examples=300, deadline=None)
@given(st.data(), SHAPES, st.integers(0, 40), st.sampled_from([4, 16, 64, 1 << 20]))
def test_a_box_of_a_stored_tensor(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shape: tuple[int, ...], offset: int, block: int
) -> None:
    whole = values(shape)
    path = tmp_path_factory.mktemp("stored") / "file"
    path.write_bytes(b"x" * offset + whole.tobytes())
    stored = Stored.in_file("int32", shape, File(path), offset)
    box = data.draw(boxes(shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_module, "BLOCK", block)
        assert np.array_equal(stored.read(box), whole[slices(box)])
        assert stored.read(box).shape == extent(box)


@settings(max_examples=200, deadline=None)
@given(st.data(), SHAPES.filter(bool), st.sampled_from([8, 1 << 20]))
def test_pieces_on_a_grid_and_runs_of_any_length(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shape: tuple[int, ...], block: int
) -> None:
    folder, whole = tmp_path_factory.mktemp("pieces"), values(shape)
    cuts = [sorted([*data.draw(st.lists(st.integers(0, n), max_size=2)), 0, n]) for n in shape]
    grid: list[Box] = [()]
    for own in cuts:
        grid = [(*box, pair) for box in grid for pair in pairwise(own)]
    pieces = []
    for number, box in enumerate(grid):
        (folder / str(number)).write_bytes(whole[slices(box)].tobytes())
        pieces.append(Piece(box, File(folder / str(number)), 0))
    stored = Stored("int32", shape, data.draw(st.permutations(pieces)))
    ends = sorted({0, whole.size, *data.draw(st.lists(st.integers(0, whole.size), max_size=4))})
    runs = []
    for begin, end in pairwise(ends):
        (folder / f"run{begin}").write_bytes(b"abc" + whole.reshape(-1)[begin:end].tobytes())
        runs.append(Run(begin, end, File(folder / f"run{begin}"), 3))
    ragged = Ragged("int32", shape, data.draw(st.permutations(runs)))
    box = data.draw(boxes(shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_module, "BLOCK", block)
        assert stored.fault() is None
        assert np.array_equal(stored.read(box), whole[slices(box)])
        assert np.array_equal(ragged.read(box), whole[slices(box)])
    real = [place for place, piece in enumerate(stored.pieces) if 0 not in extent(piece.box)]
    lost = data.draw(st.sampled_from(real))
    assert "in no file" in str(Stored("int32", shape, stored.pieces[:lost] + stored.pieces[lost + 1 :]).fault())
    assert "overlap" in str(Stored("int32", shape, [*stored.pieces, stored.pieces[lost]]).fault())


VIEWS: dict[str, Callable[[Tensor, Any], tuple[Tensor, Any]]] = {
    "part": lambda t, a: (Part.along(t, 1, 1, 3), a[:, 1:3]),
    "joined": lambda t, a: (Joined([t, t, Part.along(t, 0, 0, 1)]), np.concatenate([a, a, a[:1]])),
    "joined on 1": lambda t, a: (Joined([t, Part.along(t, 1, 1, 2)], 1), np.concatenate([a, a[:, 1:2]], 1)),
    "stacked": lambda t, a: (Stacked([t, t]), np.stack([a, a])),
    "unstacked": lambda t, a: (Unstacked(t, 2), a[2]),
    "taken": lambda t, a: (Taken(t, np.array([3, 0, 3, 1])), a[[3, 0, 3, 1]]),
    "transposed": lambda t, a: (Transposed(t, (2, 0, 1)), a.transpose(2, 0, 1)),
    "padded": lambda t, a: (Padded(t, 6), np.concatenate([a, np.zeros((2, 3, 2), a.dtype)])),
    "computed": lambda t, a: (Computed([t, t], lambda pair: pair[0] + 2 * pair[1], "int32"), 3 * a),
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_box_of_a_view(name: str) -> None:
    array = values((4, 3, 2))
    view, expected = VIEWS[name](Given(array), array)
    assert view.shape == expected.shape
    assert np.array_equal(view.array(), expected)
    for axis, length in enumerate(view.shape):
        for begin in range(length + 1):
            for end in range(begin, length + 1):
                box = (*view.whole[:axis], (begin, end), *view.whole[axis + 1 :])
                assert np.array_equal(view.read(box), expected[slices(box)])


def test_far_rows_are_not_read_together() -> None:
    read: list[Box] = []

    class Watched(Given):
        def read(self, box: Box) -> Any:
            read.append(box)
            return super().read(box)

    index = np.array([500, 3, 1, 501, 2])
    found = Taken(Watched(values((1000, 2))), index).array()
    assert np.array_equal(found, values((1000, 2))[index])
    assert read == [((1, 4), (0, 2)), ((500, 502), (0, 2))]


def test_scales_of_blocks() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 0x7F, (9, 7), dtype=np.uint8)
    scale = rng.random((3, 2), dtype=np.float32)
    view = Scaled(Given(codes, "float8_e4m3fn"), Given(scale), (4, 4))
    expected = to_float32(codes, "float8_e4m3fn") * np.repeat(np.repeat(scale, 4, 0), 4, 1)[:9, :7]
    assert np.array_equal(view.array(), expected)
    assert np.array_equal(view.read(((3, 6), (2, 7))), expected[3:6, 2:7])
    with pytest.raises(InputError, match="do not fit"):
        Scaled(Given(codes, "float8_e4m3fn"), Given(scale[:2]), (4, 4))


@settings(max_examples=100, deadline=None)
@given(st.data(), SHAPES, st.integers(1, 100))
def test_blocks_are_all_of_a_tensor_in_order(data: st.DataObject, shape: tuple[int, ...], most: int) -> None:
    whole = values(shape)
    found = [whole[slices(box)].reshape(-1) for box in blocks_of(Given(whole).whole, 4, most)]
    assert np.array_equal(np.concatenate([np.empty(0, np.int32), *found]), whole.reshape(-1))
    assert all(len(part) * 4 <= max(most, 4) for part in found)


def test_what_does_not_fit_is_refused() -> None:
    one = Given(values((4, 3)))
    for make in (
        lambda: Joined([one, Given(values((4, 2)))]),
        lambda: Joined([one, Cast(Given(values((4, 3)).astype(np.float32)), "float16")]),
        lambda: Stacked([one, Given(values((3, 3)))]),
        lambda: Unstacked(one, 4),
        lambda: Part.along(one, 0, 2, 5),
        lambda: Computed([one, Given(values((4, 2)))], lambda pair: pair[0], "int32"),
    ):
        with pytest.raises(InputError):
            make()


def test_a_file_that_ends_too_early_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(values((3, 3)).tobytes())
    stored = Stored.in_file("int32", (4, 3), File(tmp_path / "cut"), 0)
    assert stored.read(((0, 3), (0, 3))).shape == (3, 3)
    with pytest.raises(InputError, match="ends at byte 36") as caught:
        stored.array()
    assert caught.value.where == str(tmp_path / "cut")


def test_casts_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 2**32, 50_000, dtype=np.uint32).view(np.float32)
    wide[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 65504, 65520, 1e-8]
    every16, every8 = np.arange(2**16, dtype=np.uint16), np.arange(256, dtype=np.uint8)
    given = {
        "float32": wide,
        "float16": every16.view(np.float16),
        "bfloat16": every16,
        "float64": np.nan_to_num(wide[4:]).astype(np.float64) * 1.0000001,
        "float8_e4m3fn": every8,
        "float8_e5m2": every8,
    }
    for source, raw in given.items():
        tensor = torch.from_numpy(raw.view(f"i{raw.itemsize}")).view(getattr(torch, source))
        for target in ("float32", "float16", "bfloat16", "float64"):
            expected = tensor.to(getattr(torch, target))
            found = cast(raw, source, target)
            mine = torch.from_numpy(found.view(f"i{found.itemsize}").copy()).view(getattr(torch, target))
            same = (mine == expected) | (mine.isnan() & expected.isnan())
            assert bool(same.all()), (source, target)
            assert DTYPES[target].raw == found.dtype
        finite = raw[torch.isfinite(tensor.to(torch.float64)).numpy()]
        assert source == "float64" or not is_finite(raw, source)
        assert is_finite(finite, source)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(InputError, match="no file of bytes"):
            File(tmp_path / name).read(0, 1)
