"""Promise: GGUF files have the bytes that the package gguf writes, and no number in them is silently another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.formats.gguf import open_gguf
from outlive.checkpoint.formats.gguf_write import kv_for, quantised_q8_0, types_for, write_gguf
from outlive.checkpoint.tensors.dtypes import to_bfloat16
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError, WorkError

gguf = pytest.importorskip("gguf")

KV: dict[str, Any] = {
    "general.architecture": "llama",
    "general.alignment": 64,
    "k.uint32": 7,
    "k.int16": np.int16(-7),
    "k.uint64": np.uint64(1 << 40),
    "k.float32": 1e-5,
    "k.float64": np.float64(1e-5),
    "k.bool": True,
    "k.string": "Zürich 🏔",
    "k.texts": ["a", "", "ö"],
    "k.ints": [1, -2, 3],
    "k.flags": [True, False],
    "k.floats": [0.5, 1.5],
    "k.nested": [[1, 2], [3]],
}


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "token_embd.weight": rng.normal(size=(257, 64)).astype(np.float32),
        "blk.0.ffn_gate.weight": rng.normal(size=(101, 64)).astype(np.float32),
        "blk.0.ffn_down.weight": rng.normal(size=(64, 101)).astype(np.float32),
        "blk.0.ffn_gate_exps.weight": rng.normal(size=(3, 5, 32)).astype(np.float32),
        "output_norm.weight": rng.normal(size=(64,)).astype(np.float32),
        "counts": rng.integers(0, 9, (3, 5)).astype(np.int32),
    }


def written(folder: Path, tensors: dict[str, Any], kv: dict[str, Any] = KV, types: Any = None) -> Path:
    given: dict[str, Tensor] = {
        name: Given(value) if isinstance(value, np.ndarray) else value for name, value in tensors.items()
    }
    with building_checkpoint(folder, {}) as building:
        write_gguf(building, "m.gguf", given, kv, types=types)
    return folder / "m.gguf"


def theirs(path: Path, tensors: dict[str, Any], types: dict[str, str]) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_uint32("k.uint32", 7)
    writer.add_int16("k.int16", -7)
    writer.add_uint64("k.uint64", 1 << 40)
    writer.add_float32("k.float32", 1e-5)
    writer.add_float64("k.float64", 1e-5)
    writer.add_bool("k.bool", True)
    writer.add_string("k.string", "Zürich 🏔")
    for name in ("texts", "ints", "flags", "floats", "nested"):
        writer.add_array(f"k.{name}", KV[f"k.{name}"])
    for name, array in tensors.items():
        if name in types:
            code = gguf.GGMLQuantizationType[types[name]]
            writer.add_tensor(name, gguf.quants.quantize(array, code), raw_dtype=code)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("of_matrices", ["F32", "F16", "BF16", "Q8_0"])
def test_the_bytes_of_the_package(tmp_path: Path, of_matrices: Any) -> None:
    types = types_for({name: Given(array) for name, array in arrays().items()}, of_matrices)
    path = written(tmp_path / "out", arrays(), types=types)
    assert path.read_bytes() == theirs(tmp_path / "theirs.gguf", arrays(), types)
    found = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}
    small = "F16" if of_matrices == "Q8_0" else of_matrices
    assert list(found.values()) == [of_matrices, of_matrices, small, of_matrices, "F32", "I32"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tensors = {**arrays(), "scalar": np.array(2.5), "empty": np.zeros((0, 3), np.float16)}
    tensors["half"] = Given(to_bfloat16(arrays()["token_embd.weight"]), "bfloat16")
    model = open_gguf(written(tmp_path / "out", tensors))
    for name, tensor in tensors.items():
        expected = tensor.array() if isinstance(tensor, Tensor) else tensor
        assert model.tensors[name].shape == expected.shape
        assert np.array_equal(model.tensors[name].array(), expected)
    found = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in model.metadata.items()}
    found["k.nested"] = [part.tolist() for part in found["k.nested"]]
    assert found == KV | {"k.float32": float(np.float32(1e-5))}


def test_q8_0_is_the_package_s_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4000, 32)).astype(np.float32) * 10.0 ** rng.integers(-44, 6, (4000, 1))
    values = values.astype(np.float32)
    values[::7] = np.round(values[::7] * 4) / 8  # halves
    values[5], values[11, :] = 0, -0.0
    values[13, 0] = 127.0
    values[13, 1:5] = [0.49999997, -0.49999997, 0.5, -2.5]
    with np.errstate(all="ignore"):
        expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(quantised_q8_0(values), expected.reshape(-1, 34))


def test_blocks_of_a_file_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    types = dict.fromkeys(arrays(), "Q8_0") | {"blk.0.ffn_down.weight": "F16", "counts": "I32"}
    whole = written(tmp_path / "whole", arrays(), types=types).read_bytes()
    blocks = Tensor.blocks
    monkeypatch.setattr(Tensor, "blocks", lambda tensor: blocks(tensor, 128))
    assert written(tmp_path / "parts", arrays(), types=types).read_bytes() == whole


@pytest.mark.parametrize(
    ("value", "type_name"),
    [(np.nan, "Q8_0"), (np.inf, "Q8_0"), (3e38, "Q8_0"), (1e6, "F16"), (np.nan, "BF16")],
)
def test_numbers_that_the_type_cannot_hold(tmp_path: Path, value: float, type_name: str) -> None:
    array = np.zeros((2, 32), np.float32)
    array[1, 3] = value
    with pytest.raises(WorkError, match=f"t holds .* as {type_name}"):
        written(tmp_path / "out", {"t": array}, types={"t": type_name})
    assert not (tmp_path / "out").exists()


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "rows of 33": ({"t": np.zeros((2, 33), np.float32)}, {}, {"t": "Q8_0"}),
    "integers": ({"t": np.zeros((2, 32), np.int32)}, {}, {"t": "Q8_0"}),
    "another type": ({"t": np.zeros((2, 32), np.float32)}, {}, {"t": "Q4_0"}),
    "flags": ({"t": np.zeros(3, np.bool_)}, {}, {}),
    "axes": ({"t": np.zeros((1, 1, 1, 1, 1), np.float32)}, {}, {}),
    "a long name": ({"t" * 64: np.zeros(1, np.float32)}, {}, {}),
    "alignment": ({}, {"general.alignment": 48}, {}),
    "a value": ({}, {"k": object()}, {}),
    "mixed": ({}, {"k": [1, "a"]}, {}),
    "large": ({}, {"k": 1 << 64}, {}),
    "half": ({}, {"k": np.float16(1)}, {}),
    "surrogate": ({}, {"k": "\ud800"}, {}),
    "float": ({}, {"k": 1e300}, {}),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_written(tmp_path: Path, what: str) -> None:
    tensors, kv, types = BAD[what]
    with pytest.raises(InputError):
        written(tmp_path / "out", tensors, kv, types)
    assert not (tmp_path / "out").exists()


def test_integers_take_the_width_that_they_need(tmp_path: Path) -> None:
    kv = {"a": -1, "b": 1 << 32, "c": -(1 << 40), "d": [1 << 31], "e": [-1, 1 << 31], "f": [], "g": [1 << 63]}
    path = written(tmp_path / "out", {}, kv)
    types = {name: field.types[-1].name for name, field in gguf.GGUFReader(path).fields.items() if len(name) == 1}
    assert types == {"a": "INT32", "b": "UINT64", "c": "INT64", "d": "UINT32", "e": "INT64", "g": "UINT64"}


def test_what_the_header_says_of_the_types() -> None:
    assert kv_for("Q8_0") == {
        "general.file_type": int(gguf.LlamaFileType.MOSTLY_Q8_0),
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
    }
    assert kv_for("BF16")["general.file_type"] == int(gguf.LlamaFileType.MOSTLY_BF16)
