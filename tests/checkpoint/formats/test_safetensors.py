"""Promise: a safetensors file is read as its library reads it; any other bytes are an error that says what is wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from outlive.checkpoint.formats.huggingface import open_model
from outlive.checkpoint.formats.safetensors import open_tensors, read_header
from outlive.checkpoint.tensors.stored import File
from outlive.run.errors import InputError


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "a": rng.normal(size=(5, 3)).astype(np.float32),
        "b": rng.integers(0, 9, (2, 3, 4)),
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 4), np.float16),
        "flags": np.array([True, False, True]),
    }


def test_what_the_library_wrote(tmp_path: Path) -> None:
    save_file(arrays(), tmp_path / "m.safetensors", {"format": "pt"})
    found = open_tensors(tmp_path / "m.safetensors")
    assert found.keys() == arrays().keys()
    for name, array in arrays().items():
        assert found[name].dtype == array.dtype.name
        assert np.array_equal(found[name].array(), array)
    assert read_header(File(tmp_path / "m.safetensors")).metadata == {"format": "pt"}


def made(tmp_path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "made.safetensors"
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def one(**changes: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        (one(), b"1234567", "cut"),
        (one(), b"123456789", "9 are there"),
        (one(data_offsets=[4, 12]), b"x" * 12, "a hole"),
        (one() | {"v": one()["w"]}, b"x" * 8, "overlaps"),
        (one(shape=[3]), b"x" * 8, "takes 12 bytes"),
        (one(shape=[-2, -1]), b"x" * 8, "the shape is"),
        (one(shape=[1 << 40, 1 << 40]), b"x" * 8, "takes"),
        (one(shape=[True, 2]), b"x" * 8, "the shape is"),
        (one(shape=[1] * 65), b"x" * 8, "the shape is"),
        (one(data_offsets=[8, 0]), b"x" * 8, "data_offsets are"),
        (one(data_offsets=[0]), b"x" * 8, "are expected"),
        (one(dtype="F99"), b"x" * 8, "dtype 'F99'"),
        (one(dtype=None), b"x" * 8, "dtype"),
        ({"w": 3}, b"", "are expected"),
        ({"__metadata__": {"a": 1}}, b"", "__metadata__"),
        ([], b"", "no JSON object"),
        (b"{", b"", "no JSON"),
        (b"[" * 100_000, b"", "no JSON"),
        (b"\xff", b"", "no JSON"),
        (b'{"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}',
         b"1234", "'w' twice"),
    ],
)  # fmt: skip
def test_a_header_that_can_not_be(tmp_path: Path, header: Any, data: bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        open_tensors(made(tmp_path, header, data))
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value.where)
    assert caught.value.fix


@pytest.mark.parametrize("length", [0, 3, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_the_length_of_a_header_is_no_reason_to_take_memory(tmp_path: Path, length: int) -> None:
    with pytest.raises(InputError):
        open_tensors(made(tmp_path, one(), b"x" * 8, length))
    (tmp_path / "short").write_bytes(b"1234")
    with pytest.raises(InputError, match="4 bytes"):
        open_tensors(tmp_path / "short")


def test_bytes_that_flip_are_an_error_or_another_value(tmp_path: Path) -> None:
    rng = random.Random(0)
    good, path, fixes = save(arrays()), tmp_path / "m.safetensors", list[str | None]()
    for _ in range(1500):
        bad = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 8])):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        path.write_bytes(bad[: rng.randrange(len(bad))] if rng.random() < 0.2 else bad)
        try:
            for tensor in open_tensors(path).values():
                tensor.array()
        except InputError as error:
            fixes.append(error.fix)
    assert len(fixes) > 700
    assert all(fixes)


def folder(tmp_path: Path, weight_map: dict[str, Any], **files: dict[str, Any]) -> Path:
    for name, tensors in files.items():
        save_file(tensors, tmp_path / f"{name}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_a_folder_of_several_files(tmp_path: Path) -> None:
    a, b = {"a": np.arange(3)}, {"b": np.arange(4), "c": np.arange(5)}
    model = open_model(folder(tmp_path, {"a": "x.safetensors", "b": "y.safetensors", "c": "y.safetensors"}, x=a, y=b))
    assert {name: tensor.array().tolist() for name, tensor in model.tensors.items()} == {
        "a": [0, 1, 2], "b": [0, 1, 2, 3], "c": [0, 1, 2, 3, 4]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"a": "x.safetensors", "b": "x.safetensors"}, "has no tensor b"),
        ({}, "no weight_map"),
        ({"a": "../x.safetensors"}, "no file of this folder"),
        ({"a": "/etc/passwd"}, "no file of this folder"),
        ({"a": "sub\\x.safetensors"}, "no file of this folder"),
        ({"a": 3}, "no file of this folder"),
    ],
)
def test_an_index_that_does_not_belong_to_its_files(tmp_path: Path, weight_map: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_model(folder(tmp_path, weight_map, x={"a": np.arange(3)}))
    with pytest.raises(InputError, match="does not name it"):
        open_model(folder(tmp_path, {"a": "x.safetensors"}, x={"a": np.arange(3), "more": np.arange(2)}))


def test_no_model_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is neither"):
        open_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="no JSON"):
        open_model(tmp_path)
