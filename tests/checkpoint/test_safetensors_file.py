"""Promise: our safetensors files are those that the format's own library writes, from numpy alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from outlive.checkpoint.arrays import chunks
from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.manifest import read_manifest, verify_manifest
from outlive.run.errors import InputError, WorkError

TYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


def _written(folder: Path, tensors: dict[str, Any], **options: Any) -> Path:
    with building_checkpoint(folder / "c", {}) as building:
        building.tensors("model/a.safetensors", tensors, **options)
    verify_manifest(folder / "c")
    return folder / "c" / "model" / "a.safetensors"


def test_byte_for_byte_the_librarys_own(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tensors = {
        f"{place % 3}.{name}": (10 * random.normal(size=(3, 5))).astype(name) for place, name in enumerate(TYPES)
    }
    tensors |= {"scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 4), np.float16), "é.ü": np.ones(3, np.int8)}
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})
    ours = _written(tmp_path, dict(reversed(tensors.items())))
    assert ours.read_bytes() == (tmp_path / "theirs").read_bytes()
    assert int.from_bytes(ours.read_bytes()[:8], "little") % 8 == 0


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_tensors_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    one = st.sampled_from(TYPES).flatmap(lambda name: arrays.arrays(name, shapes))
    tensors = data.draw(st.dictionaries(st.text(min_size=1, max_size=8).filter(_name), one, max_size=5))
    found = load_file(_written(tmp_path_factory.mktemp("any"), tensors))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name], tensor)


def _name(text: str) -> bool:
    return text != "__metadata__" and not any(0xD800 <= ord(character) < 0xE000 for character in text)


def test_memory_orders_and_views(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensors = {"transposed": base.T, "strided": base[::2, 1::3], "big": base.astype(">f4")}
    found = load_file(_written(tmp_path, tensors))
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor)


def test_tensors_longer_than_a_piece(tmp_path: Path) -> None:
    tensor = np.random.default_rng(0).normal(size=(3, 700_001)).astype(np.float32)
    assert len(list(chunks(tensor))) == 9  # of up to 1 MiB: three in each row
    np.testing.assert_array_equal(load_file(_written(tmp_path, {"a": tensor}))["a"], tensor)


@pytest.mark.parametrize("cast", ["fp16", "fp32"])
def test_casts(tmp_path: Path, cast: str) -> None:
    tensors = {"a": np.array([1.1, -2e-8, 3e4]), "b": np.array([1, 2])}
    found = load_file(_written(tmp_path, tensors, dtype=cast))
    wanted = np.float16 if cast == "fp16" else np.float32
    np.testing.assert_array_equal(found["a"], tensors["a"].astype(wanted))
    assert (found["a"].dtype, found["b"].dtype) == (wanted, np.int64)


def test_metadata(tmp_path: Path) -> None:
    path = _written(tmp_path, {"a": np.zeros(2)}, metadata={"format": "pt", "note": "é"})
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt", "note": "é"}


def test_what_must_be_finite(tmp_path: Path) -> None:
    tensors = {"w": np.array([1.0, np.inf], np.float32), "mask": np.array([-np.inf], np.float32)}
    with pytest.raises(WorkError, match="w holds NaN or infinity as float32"):
        _written(tmp_path, tensors, finite={"w"})
    assert list(tmp_path.iterdir()) == []
    for cast in ("fp16", "bf16"):  # a number in fp32, infinite when cast
        with pytest.raises(WorkError, match="w holds NaN or infinity as "):
            _written(tmp_path, {"w": np.array([3.4e38], np.float32)}, finite={"w"}, dtype=cast)
    _written(tmp_path, {**tensors, "w": np.array([1.0])}, finite={"w"})


def test_types_without_a_code_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="complex128"):
        _written(tmp_path, {"a": np.zeros(2, complex)})


def test_names_sizes_and_hashes_are_in_the_manifest(tmp_path: Path) -> None:
    with building_checkpoint(tmp_path / "c", {"loss": float("nan"), "deep": [{"x": float("inf")}]}) as building:
        building.text("a/b/c.txt", "é")
        building.text("top.txt", "")
    manifest = read_manifest(tmp_path / "c")
    assert {name: entry["size"] for name, entry in manifest["files"].items()} == {"a/b/c.txt": 2, "top.txt": 0}
    assert manifest["files"]["top.txt"]["xxh3_128"] == "99aa06d3014798d86001c324468d497f"
    text = (tmp_path / "c" / "manifest.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["deep"] == [{"x": None}]
