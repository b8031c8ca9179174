"""Promise: what is written from torch's tensors is read by torch's own tools, equal bit by bit; the same from numpy."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint import load as load_distributed

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.manifest import verify_manifest, write_manifest
from outlive.checkpoint.state import read_trainer, state_files, write_state
from outlive.run.errors import InputError, WorkError

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16)
TYPES = (*TYPES, torch.int8, torch.uint8, torch.bool)
OTHERS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64)


def _tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = {f"{dtype}".removeprefix("torch."): (10 * torch.randn(3, 5)).to(dtype) for dtype in TYPES}
    tensors |= {"step": torch.tensor(7.0), "empty": torch.zeros(0, 4), "long": torch.randn(2_100_001)}
    tensors |= {"transposed": torch.randn(4, 6).T, "grad": torch.randn(2, requires_grad=True)}
    return tensors | {"slice": torch.randn(100)[10:20], "none": torch.tensor(float("nan"))}


def _same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        bits = [one.detach().contiguous().reshape(-1).view(torch.uint8) for one in (found[name], tensor)]
        assert torch.equal(*bits), name


def test_files_equal_the_librarys_own(tmp_path: Path) -> None:
    tensors = {name: tensor.detach().contiguous() for name, tensor in _tensors().items()}
    tensors |= {str(dtype): torch.arange(6).view(2, 3).to(dtype) for dtype in OTHERS}
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})
    with building_checkpoint(tmp_path / "c", {}) as building:
        building.tensors("ours", tensors)
    assert (tmp_path / "c" / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize("cast", ["bf16", "fp16", "fp32"])
def test_casts_round_as_torch_does(tmp_path: Path, cast: str) -> None:
    values = torch.cat([torch.randn(10_000), torch.randn(10_000) * 1e-40, torch.randn(1000) * 1e38])
    ties = (torch.arange(2000, dtype=torch.int32) * 0x8000 + 0x3F800000).view(torch.float32)
    values = torch.cat([values, ties, torch.tensor([float("nan"), float("inf"), -0.0, 3.4e38])])
    wanted = values.to({"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[cast])
    with building_checkpoint(tmp_path / "c", {}) as building:
        building.tensors("torch", {"a": values, "n": torch.arange(3)}, dtype=cast)
        building.tensors("numpy", {"a": values.numpy(), "n": np.arange(3)}, dtype=cast)
    for name in ("torch", "numpy"):
        found = load_file(tmp_path / "c" / name)
        assert torch.equal(found["a"].isnan(), wanted.isnan())
        assert torch.equal(found["a"].nan_to_num(0, 1, 2), wanted.nan_to_num(0, 1, 2))
        assert found["n"].dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_none_is_found_anywhere(tmp_path: Path, dtype: torch.dtype, value: float) -> None:
    for size, place in ((1, 0), (37, 0), (37, 36), (37, 20), (1_100_000, 1_099_999)):
        tensor = torch.zeros(size, dtype=dtype)
        tensor[place] = value
        with pytest.raises(WorkError, match="w holds NaN"), building_checkpoint(tmp_path / "c", {}) as building:
            building.tensors("a", {"w": tensor}, finite={"w"})


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_state_opens_in_torch_distributed_and_plainly(tmp_path: Path) -> None:
    tensors = _tensors()
    trainer = {"step": 3, "loss": 0.1 + 0.2, "seeds": [2**63], "é": None}
    with building_checkpoint(tmp_path / "c", {}) as building:
        write_state(building, tensors, trainer)
    verify_manifest(tmp_path / "c")
    found = {name: torch.empty_like(tensor).detach() for name, tensor in tensors.items()}
    load_distributed(found, storage_reader=HuggingFaceStorageReader(str(tmp_path / "c" / "state")), no_dist=True)
    _same(found, tensors)
    (path,) = state_files(tmp_path / "c")
    with safe_open(path, "pt") as file:
        _same({name: file.get_tensor(name) for name in file.keys()}, tensors)  # noqa: SIM118  (it is no dict)
        assert file.metadata()["DCP_VERSION"] == "1.0"
    assert read_trainer(tmp_path / "c") == trainer


def test_no_file_is_a_pickle(tmp_path: Path) -> None:
    with building_checkpoint(tmp_path / "c", {}) as building:
        write_state(building, _tensors(), {"step": 3})
    torch.save({"a": torch.zeros(2)}, tmp_path / "a.pt")
    files = [path for path in (tmp_path / "c").rglob("*") if path.is_file()]
    assert len(files) == 3
    assert _may_be_pickle(tmp_path / "a.pt")
    assert not any(_may_be_pickle(path) for path in files)


def _may_be_pickle(path: Path) -> bool:
    """By what is in the file: a zip (torch's form), or a pickle's first byte; ours begin as JSON or as safetensors."""
    if path.suffix == ".json":
        return not path.read_bytes().startswith(b"{")
    return zipfile.is_zipfile(path) or path.read_bytes()[8:9] != b"{"


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "\x00\x00"])
def test_a_damaged_trainer_record_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "trainer.json").write_text(text)
    with pytest.raises(InputError, match=r"state/trainer\.json is (missing|damaged)"):
        read_trainer(tmp_path)
    write_manifest(tmp_path)
    assert state_files(tmp_path) == []


def test_numbers_that_json_lacks_are_refused_in_the_trainer_record(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"), building_checkpoint(tmp_path / "c", {}) as building:
        write_state(building, {}, {"best": float("inf")})
    assert list(tmp_path.iterdir()) == []


def test_a_save_needs_little_memory_beside_the_tensors(tmp_path: Path) -> None:
    """160 MB of tensors, cast, in a save that may take 24 MB more than what was there: not even one more tensor."""
    code = (
        "import resource, sys, torch; from pathlib import Path\n"
        "from outlive.checkpoint.building import building_checkpoint\n"
        "def save(name, tensors):\n"
        "  with building_checkpoint(Path(sys.argv[1]) / name, {}) as building:\n"
        "    building.tensors('a', tensors, dtype='bf16', finite=tensors)\n"
        "  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "save('warm', {'a': torch.ones(2_000_000)})\n"
        "tensors = {str(number): torch.ones(10_000_000) for number in range(4)}\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(save('c', tensors) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 24 * 1024
