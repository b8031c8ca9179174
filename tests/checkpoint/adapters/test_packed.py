"""Promise: packed bases (bitsandbytes, GPTQ, AWQ) are read as the numbers that their libraries make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.adapters.quantised import dequantised
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

Packed = tuple[dict[str, Tensor], dict[str, Any]]
MADE = np.random.default_rng(0)
BOX = ((3, 8), (1, 5))

# What bitsandbytes 0.50.2 makes of ((arange(128) * 37 % 101 - 50) / 40) as [4, 32] in blocks of 64.
NF4_BYTES = bytes.fromhex(
    "04c16e29f3b05d17e29f3c05d18e2af4c16e18e3b05d17e29f3b05d18e2af4c16d18e3b04c17e29f3b05d17e2af4c06d18e2a04c16e29f3b05"
    "d17e29f3c05d18"
)
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip
NF4_ROW = [0.5508872866630554, -0.8702409863471985, -0.11381254345178604, 0.9036960601806641, -0.8702409863471985]


def _bytes(state: dict[str, Any]) -> Tensor:
    return Given(np.frombuffer(json.dumps(state).encode(), np.uint8))


def _nf4() -> Packed:
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [4, 32]}
    tensors: dict[str, Tensor] = {
        "m.weight": Given(np.frombuffer(NF4_BYTES, np.uint8).reshape(-1, 1)),
        "m.weight.absmax": Given(np.full(2, 1.25, np.float32)),
        "m.weight.quant_map": Given(np.array(NF4, np.float32)),
        "m.weight.quant_state.bitsandbytes__nf4": _bytes(state),
    }
    return tensors, {"quant_method": "bitsandbytes", "load_in_4bit": True}


def test_four_bits_are_those_of_bitsandbytes() -> None:
    tensors, about = _nf4()
    config = {"quantization_config": about, "dtype": "float32"}
    found, config = dequantised({**tensors, "norm.weight": Given(np.ones(3, np.float32))}, config)
    assert found.keys() == {"m.weight", "norm.weight"}
    assert "quantization_config" not in config
    assert found["m.weight"].array()[1, :5].tolist() == NF4_ROW


def _nested() -> tuple[Packed, Any]:
    """Scales packed in their turn; blocks end inside rows, and a byte holds the end of one row and the next's begin."""
    codes = MADE.integers(0, 16, 9 * 7)
    packed = np.concatenate([codes, [0]]).reshape(-1, 2)
    scales, inner, outer = MADE.integers(0, 256, 16).astype(np.uint8), MADE.normal(size=256), MADE.normal(size=4)
    inner, outer = inner.astype(np.float32), outer.astype(np.float32)
    state = {"quant_type": "nf4", "blocksize": 4, "shape": [9, 7], "nested_blocksize": 4, "nested_offset": 0.25}
    tensors: dict[str, Tensor] = {
        "m.weight": Given((packed[:, 0] << 4 | packed[:, 1]).astype(np.uint8).reshape(-1, 1)),
        "m.weight.absmax": Given(scales),
        "m.weight.quant_map": Given(np.array(NF4, np.float32)),
        "m.weight.nested_absmax": Given(outer),
        "m.weight.nested_quant_map": Given(inner),
        "m.weight.quant_state.bitsandbytes__nf4": _bytes(state),
    }
    wanted = [NF4[code] * (inner[scales[i // 4]] * outer[i // 16] + 0.25) for i, code in enumerate(codes)]
    return (tensors, {"quant_method": "bitsandbytes"}), np.reshape(wanted, (9, 7))


def _int8() -> tuple[Packed, Any]:
    codes, scales = MADE.integers(-127, 128, (9, 6)).astype(np.int8), MADE.random(9).astype(np.float32)
    tensors: dict[str, Tensor] = {"m.weight": Given(codes), "m.SCB": Given(scales)}
    tensors["m.weight_format"] = Given(np.zeros((), np.uint8))
    return (tensors, {"quant_method": "bitsandbytes", "load_in_8bit": True}), codes * scales[:, None] / 127


def _words(codes: Any, bits: int, order: list[int]) -> Any:
    """int32 [rows, columns · bits / 32]: in each word the code of column `order[i]` of its own in the i-th place."""
    per_word = 32 // bits
    rows = []
    for row in codes:
        words = row.reshape(-1, per_word)
        rows.append([sum(int(word[column]) << (bits * place) for place, column in enumerate(order)) for word in words])
    return np.array(rows, np.uint32).view(np.int32)


def _gptq(bits: int, version: str, shuffled: bool) -> tuple[Packed, Any]:
    """W[o, i] = scale[g(i), o] · (code[i, o] - zero[g(i), o]); the first version stores zeros less one."""
    inputs, outputs, length = 64, 48, 16
    codes, zeros = MADE.integers(0, 1 << bits, (inputs, outputs)), MADE.integers(1, 1 << bits, (4, outputs))
    scales = MADE.random((4, outputs)).astype(np.float16)
    group = np.arange(inputs) // length
    plain = list(range(32 // bits))
    tensors: dict[str, Tensor] = {
        "m.qweight": Given(np.ascontiguousarray(_words(codes.T, bits, plain).T)),
        "m.qzeros": Given(_words(zeros - (version == "gptq"), bits, plain)),
        "m.scales": Given(scales),
    }
    if shuffled:
        group = MADE.permutation(group)
        tensors["m.g_idx"] = Given(group.astype(np.int32))
    about = {"quant_method": "gptq", "bits": bits, "group_size": length, "checkpoint_format": version}
    return (tensors, about), ((codes - zeros[group]) * scales.astype(np.float32)[group]).T


def _awq() -> tuple[Packed, Any]:
    codes, zeros = MADE.integers(0, 16, (64, 48)), MADE.integers(0, 16, (4, 48))
    scales, order = MADE.random((4, 48)).astype(np.float16), [0, 2, 4, 6, 1, 3, 5, 7]
    tensors: dict[str, Tensor] = {
        "m.qweight": Given(_words(codes, 4, order)),
        "m.qzeros": Given(_words(zeros, 4, order)),
        "m.scales": Given(scales),
    }
    group = np.arange(64) // 16
    wanted = ((codes - zeros[group]) * scales.astype(np.float32)[group]).T
    return (tensors, {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm"}), wanted


@pytest.mark.parametrize(
    "make",
    [
        _nested, _int8, _awq, lambda: _gptq(4, "gptq", False), lambda: _gptq(4, "gptq_v2", True),
        lambda: _gptq(8, "gptq", True), lambda: _gptq(2, "gptq", False),
    ],
)  # fmt: skip
def test_the_numbers_are_those_of_the_formula(make: Callable[[], tuple[Packed, Any]]) -> None:
    (tensors, about), wanted = make()
    found, _ = dequantised(tensors, {"quantization_config": about, "dtype": "float32"})
    assert found.keys() == {"m.weight"}
    assert found["m.weight"].shape == wanted.shape
    assert found["m.weight"].array() == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert found["m.weight"].read(BOX) == pytest.approx(wanted[3:8, 1:5], rel=1e-5, abs=1e-6)


FAULTS: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "no state": lambda tensors: tensors.pop("m.weight.quant_state.bitsandbytes__nf4"),
    "no scales": lambda tensors: tensors.pop("m.weight.absmax"),
    "no levels": lambda tensors: tensors.pop("m.weight.quant_map"),
    "no weight": lambda tensors: tensors.pop("m.weight"),
    "too few scales": lambda tensors: tensors.update({"m.weight.absmax": Given(np.ones(1, np.float32))}),
    "too few bytes": lambda tensors: tensors.update({"m.weight": Given(np.zeros((63, 1), np.uint8))}),
    "another shape": lambda tensors: tensors.update(
        {"m.weight.quant_state.bitsandbytes__nf4": _bytes({"shape": [1 << 40, 1 << 40], "blocksize": 64})}
    ),
    "a state that is none": lambda tensors: tensors.update(
        {"m.weight.quant_state.bitsandbytes__nf4": Given(np.frombuffer(b"[[[[", np.uint8))}
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_ones_are_refused(fault: str) -> None:
    tensors, about = _nf4()
    FAULTS[fault](tensors)
    with pytest.raises(InputError) as caught:
        dequantised(tensors, {"quantization_config": about})
    assert "bf16 base" in str(caught.value.fix) or "bf16" in str(caught.value.fix)


@pytest.mark.parametrize("change", [{"bits": 3}, {"bits": None}, {"group_size": "all"}, {"bits": True}])
def test_packings_that_are_not_known(change: dict[str, Any]) -> None:
    (tensors, about), _ = _gptq(4, "gptq", False)
    with pytest.raises(InputError, match="not read"):
        dequantised(tensors, {"quantization_config": {**about, **change}})


def test_groups_that_are_not_there() -> None:
    (tensors, about), _ = _gptq(4, "gptq", True)
    tensors["m.g_idx"] = Given(np.full(64, 4, np.int32))
    with pytest.raises(InputError, match="do not fit"):
        dequantised(tensors, {"quantization_config": about})


MAKES: list[Callable[[], Packed]] = [
    _nf4, lambda: _nested()[0], lambda: _int8()[0], lambda: _awq()[0], lambda: _gptq(4, "gptq", True)[0],
]  # fmt: skip
ODD: list[Any] = [0, -1, 1, 2.5, 1 << 40, None, "x", [], {}, True, [4, 32, 1], float("nan")]


def _harm(tensors: dict[str, Tensor], about: dict[str, Any], generator: Any) -> None:
    """One change: a tensor that is gone, or of another shape, dtype or content, or another value of a setting."""
    name = sorted(tensors)[generator.integers(len(tensors))]
    odd = ODD[generator.integers(len(ODD))]
    values = tensors[name].array()
    match generator.integers(7):
        case 0:
            del tensors[name]
        case 1:
            tensors[name] = Given(values.reshape(-1)[: generator.integers(values.size + 1)])
        case 2:
            tensors[name] = Given(values.T.reshape(1, *values.T.shape))
        case 3:
            kinds = ["uint8", "int8", "int32", "float32", "int64", "bool", "float64"]
            tensors[name] = Given(values.astype(kinds[generator.integers(len(kinds))]))
        case 4:
            raw = bytearray(np.ascontiguousarray(values).tobytes() or b"\0")
            raw[generator.integers(len(raw))] ^= 1 << int(generator.integers(8))
            if values.size:
                tensors[name] = Given(np.frombuffer(bytes(raw), values.dtype).reshape(values.shape))
        case 5:
            about[["bits", "group_size", "checkpoint_format", "version"][generator.integers(4)]] = odd
        case 6:
            key = ["shape", "blocksize", "nested_blocksize", "nested_offset"][generator.integers(4)]
            state = {"blocksize": 64, "shape": [4, 32], "nested_blocksize": 4, "nested_offset": 0.25, key: odd}
            if (place := "m.weight.quant_state.bitsandbytes__nf4") in tensors:
                tensors[place] = _bytes(state)


@pytest.mark.parametrize("make", MAKES)
def test_any_harm_is_an_error_or_numbers(make: Callable[[], Packed]) -> None:
    refused = 0
    for seed in range(400):
        tensors, about = make()
        _harm(tensors, about, np.random.default_rng(seed))
        try:
            found, _ = dequantised(tensors, {"quantization_config": about, "dtype": "float32"})
            with np.errstate(all="ignore"):
                for tensor in found.values():
                    assert tensor.array().shape == tensor.shape
        except InputError:
            refused += 1
    assert refused > 100
