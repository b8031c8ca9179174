"""Promise: a GGUF file is read as the package gguf reads it, row by row; any other bytes are an error that says why."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.formats.gguf import Quantised, open_gguf
from outlive.checkpoint.formats.gguf_header import read_header
from outlive.checkpoint.formats.gguf_types import CODES, ELEMENTS
from outlive.checkpoint.tensors.dtypes import to_float32
from outlive.checkpoint.tensors.stored import File
from outlive.run.errors import InputError

gguf = pytest.importorskip("gguf")

QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "TQ1_0", "TQ2_0", "MXFP4"]
OTHERS = [
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M",
    "IQ4_NL", "IQ4_XS", "NVFP4",
]  # fmt: skip


def write(path: Path, tensors: dict[str, Any], fill: Any = None, **options: Any) -> Path:
    """A file that the package writes. tensors: arrays, or (bytes of blocks, the name of their type)."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    if fill is not None:
        fill(writer)
    for name, value in tensors.items():
        array, type_name = value if isinstance(value, tuple) else (value, None)
        raw = None if type_name is None else gguf.GGMLQuantizationType[type_name]
        writer.add_tensor(name, array, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "odd": rng.normal(size=(5, 3)).astype(np.float32),
        "half": rng.normal(size=(257, 101)).astype(np.float16),
        "deep": rng.normal(size=(2, 3, 5, 7)),
        "bytes": rng.integers(-9, 9, 7).astype(np.int8),
        "short": rng.integers(-9, 9, (3, 1)).astype(np.int16),
        "int": rng.integers(-9, 9, (3, 5)).astype(np.int32),
        "long": rng.integers(-9, 9, (1, 1)).astype(np.int64),
    }


def test_the_table_of_types_is_that_of_the_package() -> None:
    theirs = {int(code): (code.name, *sizes) for code, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert theirs.items() <= {code: tuple(element[:3]) for code, element in ELEMENTS.items()}.items()


def test_plain_tensors(tmp_path: Path) -> None:
    model = open_gguf(write(tmp_path / "m.gguf", arrays()))
    assert list(model.tensors) == list(arrays())
    assert model.format == "gguf"
    assert model.config == {}
    for name, array in arrays().items():
        tensor = model.tensors[name]
        assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype.name)
        assert np.array_equal(tensor.array(), array)


@pytest.mark.parametrize("type_name", QUANTISED + OTHERS)
def test_quantised_tensors(tmp_path: Path, type_name: str) -> None:
    code = gguf.GGMLQuantizationType[type_name]
    rng = np.random.default_rng(1)
    if type_name in QUANTISED:
        blocks = gguf.quants.quantize(rng.normal(size=(3, 5, 768)).astype(np.float32), code)
    else:  # any bytes are blocks of these types
        size = gguf.quants.quant_shape_to_byte_shape((3, 5, 768), code)
        blocks = rng.integers(0, 256, size).astype(np.uint8)
    path = write(tmp_path / "m.gguf", {"first": np.ones(3, np.float32), "t": (blocks, type_name)})
    read = gguf.GGUFReader(path).tensors[1]
    with np.errstate(all="ignore"):
        whole = gguf.quants.dequantize(read.data, code).reshape(3, 5, 768)
    tensor = open_gguf(path).tensors["t"]
    assert tensor.shape == (3, 5, 768)
    if type_name == "BF16":
        assert tensor.dtype == "bfloat16"
    else:
        assert isinstance(tensor, Quantised)
        assert tensor.dtype == "float32"
        assert tensor.element.name == type_name
    for box in (tensor.whole, ((1, 2), (2, 4), (0, 768)), ((0, 3), (1, 2), (7, 41)), ((2, 3), (4, 5), (300, 301))):
        found = to_float32(tensor.read(box), tensor.dtype)
        assert np.array_equal(found, whole[tuple(slice(*ends) for ends in box)], equal_nan=True)


def test_only_the_rows_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = gguf.quants.quantize(np.full((1000, 64), 127, np.float32), gguf.GGMLQuantizationType.Q8_0)
    tensor = open_gguf(write(tmp_path / "m.gguf", {"t": (blocks, "Q8_0")})).tensors["t"]
    lengths: list[int] = []
    read = File.read
    monkeypatch.setattr(File, "read", lambda file, at, length: lengths.append(length) or read(file, at, length))
    assert tensor.read(((500, 502), (0, 64))).tolist() == [[127.0] * 64] * 2
    assert sum(lengths) == 2 * 2 * 34


def every_value(writer: Any) -> None:
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{name}")(f"k.{name}", 7 if name[0] == "u" else -7)
    writer.add_float32("k.float32", 0.1)
    writer.add_float64("k.float64", 0.1)
    writer.add_bool("k.bool", True)
    writer.add_string("k.string", "Zürich 🏔")
    writer.add_array("k.texts", ["a", "", "ö"])
    writer.add_array("k.ints", [1, -2, 3])
    writer.add_array("k.flags", [True, False])
    writer.add_array("k.floats", [0.5, 1.5])
    writer.add_array("k.nested", [[1, 2], [3]])


def test_values(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {}, every_value)
    kv = open_gguf(path).metadata
    for name, field in gguf.GGUFReader(path).fields.items():
        if name.startswith("k.") and name != "k.nested":  # which the package flattens
            found = kv[name].tolist() if isinstance(kv[name], np.ndarray) else kv[name]
            assert (type(found), found) == (type(field.contents()), field.contents()), name
    assert [part.tolist() for part in kv["k.nested"]] == [[1, 2], [3]]
    assert kv["k.ints"].dtype == np.int32
    assert kv["k.flags"].dtype == np.bool_


def test_version_2_and_alignment(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", arrays(), lambda writer: writer.add_custom_alignment(256))
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    path.write_bytes(data)
    model = open_gguf(path)
    assert all(np.array_equal(model.tensors[name].array(), array) for name, array in arrays().items())
    assert all(info.offset % 256 == 0 for info in read_header(File(path)).tensors.values())


def split(folder: Path) -> list[Path]:
    write(folder / "m.gguf", arrays(), every_value, split_max_tensors=3)
    return sorted(folder.glob("*.gguf"))


def test_split_files(tmp_path: Path) -> None:
    parts = split(tmp_path)
    assert [part.name for part in parts] == [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for path in (*parts, tmp_path):
        model = open_gguf(path)
        assert all(np.array_equal(model.tensors[name].array(), array) for name, array in arrays().items())
        assert model.metadata["k.string"] == "Zürich 🏔"
        assert "split.no" not in model.metadata
    third = parts[2].read_bytes()
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(InputError, match="part 1 of 3 by its header, and 2 of 3 by its name"):
        open_gguf(parts[0])
    parts[2].unlink()
    with pytest.raises(InputError, match="missing"):
        open_gguf(parts[0])
    (tmp_path / "alone.gguf").write_bytes(third)
    with pytest.raises(InputError, match="part 2 of 3 by its header, and 0 of 1"):
        open_gguf(tmp_path / "alone.gguf")


def raw(values: bytes = b"", tensors: bytes = b"", num_values: int = 0, num_tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_values) + values + tensors + bytes(64)


def key(name: bytes, code: int) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", code)


def info(name: bytes, dims: list[int], code: int, offset: int = 0) -> bytes:
    head = struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims))
    return head + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", code, offset)


HUGE = 3_000_000_000
HOSTILE = {
    "billions of values": raw(num_values=HUGE),
    "billions of tensors": raw(num_tensors=1 << 63),
    "a long key": raw(struct.pack("<Q", HUGE), num_values=1),
    "a long text": raw(key(b"a", 8) + struct.pack("<Q", 1 << 63), num_values=1),
    "a long array": raw(key(b"a", 9) + struct.pack("<IQ", 0, HUGE), num_values=1),
    "an array of texts": raw(key(b"a", 9) + struct.pack("<IQ", 8, HUGE), num_values=1),
    "deep arrays": raw(key(b"a", 9) + struct.pack("<IQ", 9, 1) * 1000 + bytes(20), num_values=1),
    "many small arrays": raw(key(b"a", 9) + struct.pack("<IQ", 9, 40_000) + bytes(12) * 40_000, num_values=1),
    "an unknown type": raw(key(b"a", 99), num_values=1),
    "a key twice": raw((key(b"a", 0) + b"\0") * 2, num_values=2),
    "no UTF-8": raw(key(b"\xff", 0) + b"\0", num_values=1),
    "no power of two": raw(key(b"general.alignment", 4) + struct.pack("<I", 48), num_values=1),
    "alignment 0": raw(key(b"general.alignment", 4) + struct.pack("<I", 0), num_values=1),
    "an array as alignment": raw(key(b"general.alignment", 9) + struct.pack("<IQB", 0, 1, 1), num_values=1),
    "a large tensor": raw(tensors=info(b"t", [HUGE, HUGE], 0), num_tensors=1),
    "a product of 2^64": raw(tensors=info(b"t", [1 << 32, 1 << 32], 24), num_tensors=1),
    "many axes": raw(tensors=info(b"t", [1] * 5, 0), num_tensors=1),
    "an unknown element": raw(tensors=info(b"t", [1], 5), num_tensors=1),
    "half a block": raw(tensors=info(b"t", [16, 2], 8), num_tensors=1),
    "an offset": raw(tensors=info(b"t", [1], 0, 32), num_tensors=1),
    "a tensor twice": raw(tensors=info(b"t", [1], 0) * 2, num_tensors=2),
    "empty but long": raw(tensors=info(b"t", [0, 1 << 62], 0), num_tensors=1),
    "an array as split": raw(key(b"split.count", 9) + struct.pack("<IQ", 0, 2) + b"12", num_values=1),
    "version 1": b"GGUF" + struct.pack("<III", 1, 0, 0),
    "the other end": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "nothing": b"",
    "another format": b"PK\3\4" + bytes(100),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_headers(tmp_path: Path, what: str) -> None:
    (tmp_path / "m.gguf").write_bytes(HOSTILE[what])
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            open_gguf(tmp_path / "m.gguf")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_random_corruptions(tmp_path: Path) -> None:
    blocks = gguf.quants.quantize(np.ones((3, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    whole = write(tmp_path / "m.gguf", {**arrays(), "q": (blocks, "Q8_0")}, every_value).read_bytes()
    end = read_header(File(tmp_path / "m.gguf")).tensors["odd"].offset
    rng = random.Random(0)
    outcomes = {"refused": 0, "read": 0}
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(end)] = rng.choice((0, 1, 8, 9, 127, 255, rng.randrange(256)))
        if rng.random() < 0.2:
            data = data[: rng.randrange(len(data))]
        (tmp_path / "m.gguf").write_bytes(data)
        try:
            model = open_gguf(tmp_path / "m.gguf")
            for tensor in model.tensors.values():
                assert tensor.array().shape == tensor.shape
            outcomes["read"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100, outcomes


def test_a_type_that_the_package_cannot_compute(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(raw(tensors=info(b"t", [32], CODES["Q8_1"]), num_tensors=1) + bytes(100))
    with pytest.raises(InputError, match="Q8_1"):
        open_gguf(tmp_path / "m.gguf").tensors["t"].array()
