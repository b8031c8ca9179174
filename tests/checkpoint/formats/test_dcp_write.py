"""Promise: what write_dcp writes, torch.distributed.checkpoint loads bit for bit, and memory stays small."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.formats.dcp import open_dcp
from outlive.checkpoint.formats.dcp_write import write_dcp
from outlive.checkpoint.formats.pickle_write import pickled
from outlive.checkpoint.manifest import verify_manifest
from outlive.checkpoint.tensors.dtypes import DTYPES, Array
from outlive.checkpoint.tensors.stored import File, Stored
from outlive.checkpoint.tensors.tensor import Box, Tensor, extent
from outlive.checkpoint.tensors.views import Given, Transposed
from outlive.run.errors import InputError, WorkError
from tests.fixtures import cases

SAMPLE = cases() / "checkpoints" / "dcp_fsdp2"
random = np.random.default_rng(5)


def a_tensor(dtype: str, *shape: int) -> Tensor:
    raw = DTYPES[dtype].raw
    size = int(np.prod(shape, dtype=int))
    if dtype == "bool":
        return Given(random.integers(0, 2, shape).astype(bool), dtype)
    return Given(np.frombuffer(random.bytes(size * raw.itemsize), raw).reshape(shape).copy(), dtype)


def write(folder: Path, tensors: dict[str, Any], **more: Any) -> Path:
    with building_checkpoint(folder, {}) as building:
        write_dcp(building, tensors, folder="state", **more)
    verify_manifest(folder)
    return folder / "state"


@pytest.mark.parametrize("most", [1 << 28, 64, 1], ids=["whole", "rows", "elements"])
def test_torch_loads_every_dtype_and_shape(tmp_path: Path, most: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import FileSystemReader, load

    from tests.checkpoint.formats.same import assert_same

    tensors = {dtype: a_tensor(dtype, 3, 5) for dtype in DTYPES}
    tensors |= {
        "scalar": a_tensor("float32"),
        "empty": a_tensor("bfloat16", 0, 3),
        "empty too": a_tensor("float32", 3, 0),
        "one": a_tensor("int64", 1, 1, 1),
        "vector": a_tensor("float32", 101),
        "deep": a_tensor("float32", 2, 3, 2, 5),
        "turned": Transposed(a_tensor("float32", 7, 3), (1, 0)),
        "δ/ \\ name": a_tensor("float32", 2),
    }
    state = write(
        tmp_path / "out", {**tensors, "numpy": np.arange(6.0).reshape(2, 3)}, max_piece_bytes=most, max_file_bytes=3000
    )
    own = {name: torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype)) for name, tensor in tensors.items()}
    load(own, storage_reader=FileSystemReader(state), no_dist=True)
    assert_same(tensors, own)
    read = open_dcp(state).tensors
    assert_same({name: read[name] for name in tensors}, own)
    assert np.array_equal(read["numpy"].array(), np.arange(6.0).reshape(2, 3))


def test_torch_loads_nested_states_of_optimizers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import load
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.125)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optim": optimizer.state_dict(), "step": 4, "name": "δ", "big": 1 << 80}
    torch.distributed.checkpoint.save(state, checkpoint_id=tmp_path / "torch", no_dist=True)
    read = open_dcp(tmp_path / "torch")
    items = dict(read.metadata["items"])
    written = write(tmp_path / "out", dict(read.tensors), items=items, paths=read.metadata["paths"])

    def zeroed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.zeros_like(value)
        if isinstance(value, dict):
            return {key: zeroed(item) for key, item in value.items()}
        return [zeroed(item) for item in value] if isinstance(value, list) else None

    loaded = zeroed(state)
    load(loaded, checkpoint_id=written, no_dist=True)
    assert plain(loaded) == plain(state)
    whole = []
    for folder in (written, tmp_path / "torch"):
        dcp_to_torch_save(folder, tmp_path / "whole.pt")
        whole.append(plain(torch.load(tmp_path / "whole.pt", weights_only=False)))
    assert whole[0] == whole[1]


def plain(value: Any) -> Any:
    """Without tensors, and without the order of dicts."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="no cases: set OUTLIVE_CASES")
def test_a_sample_written_again_is_the_same(tmp_path: Path) -> None:
    model = open_dcp(SAMPLE)
    items, paths = model.metadata["items"], model.metadata["paths"]
    again = open_dcp(write(tmp_path / "out", dict(model.tensors), items=items, paths=paths, max_piece_bytes=3000))
    assert list(again.tensors) == list(model.tensors)
    for name, tensor in model.tensors.items():
        assert again.tensors[name].array().tobytes() == tensor.array().tobytes()
    assert dict(again.metadata["items"]) == dict(items)
    assert again.metadata["paths"] == paths


def test_a_cast_and_numbers_that_do_not_fit(tmp_path: Path) -> None:
    tensors = {"a": np.array([1.5, 70000.0], np.float32), "n": np.arange(3)}
    read = open_dcp(write(tmp_path / "bf16", tensors, dtype="bf16")).tensors
    assert (read["a"].dtype, read["n"].dtype) == ("bfloat16", "int64")
    with pytest.raises(WorkError, match="a holds NaN or infinity as float16"):
        write(tmp_path / "fp16", tensors, dtype="fp16", finite=["a"])
    assert not (tmp_path / "fp16").exists()


def test_a_name_for_two_things_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="step is both"):
        write(tmp_path / "out", {"step": np.zeros(2)}, items={"step": 1})
    with pytest.raises(InputError, match="set is not written"):
        write(tmp_path / "out", {}, items={"x": {1}})


class Huge(Tensor):
    """128 MiB that are made when they are read."""

    shape, dtype = (1 << 12, 1 << 13), "float32"

    def read(self, box: Box) -> Array:
        return np.full(extent(box), 1.5, np.float32)


def test_memory_is_that_of_a_block(tmp_path: Path) -> None:
    tracemalloc.start()
    state = write(tmp_path / "out", {"huge": Huge()}, max_piece_bytes=1 << 25)
    read = open_dcp(state).tensors["huge"]
    assert sum(float(read.read(box).sum()) for box in read.blocks()) == 1.5 * Huge().size
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    assert isinstance(read, Stored)
    assert len(read.pieces) == 4
    assert all(piece.offset % 64 == 0 for piece in read.pieces)
    assert all(isinstance(piece.file, File) for piece in read.pieces)


def test_plain_values_are_what_pickle_reads() -> None:
    value = {
        "a": [0, 255, 256, -1, -128, 1 << 31, -(1 << 31), -(1 << 63), 1 << 200, -(1 << 200)],
        "b": (1.5, -0.0, float("inf"), True, False, None, "", "δ\U0001f600", "a" * 70_000),
        "c": [{}, [], (), {1: {"a": ()}}],
        "many": {str(number): str(number) for number in range(700)},
    }
    assert pickle.loads(pickled(value)) == value
