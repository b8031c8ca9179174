"""Promise: a merge is exact but for one rounding to the base's dtype, whatever box of it is read, in bounded memory;
and float8 bases are read as numbers, others that are quantised are refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.adapters import adapter_of, merged, rounding_note
from outlive.checkpoint.adapters.rounding import kept_share
from outlive.checkpoint.adapters.settings import settings_of
from outlive.checkpoint.tensors.dtypes import cast, to_float32
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

NAME = "model.layers.0.mlp.up_proj"
MADE = np.random.default_rng(0)


def _bf16(values: np.ndarray[Any, Any]) -> Given:
    return Given(cast(values.astype(np.float32), "float32", "bfloat16"), "bfloat16")


def _adapter(out: int, width: int, **config: Any) -> tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    a, b = MADE.normal(size=(3, width)).astype(np.float32), MADE.normal(size=(out, 3)).astype(np.float32)
    tensors: dict[str, Tensor] = {f"{NAME}.lora_A.weight": Given(a), f"{NAME}.lora_B.weight": Given(b)}
    if config.get("use_dora"):
        tensors[f"{NAME}.lora_magnitude_vector"] = Given(np.linspace(1, 2, out, dtype=np.float32))
    settings = settings_of({"peft_type": "LORA", "r": 3, "lora_alpha": 3, **config}, "adapter_config.json")
    return adapter_of(settings, tensors, "adapter"), a, b


def test_rounded_once_to_bfloat16() -> None:
    base = _bf16(MADE.normal(size=(31, 17)))
    adapter, a, b = _adapter(31, 17)
    result = merged({f"{NAME}.weight": base}, adapter, {}).tensors[f"{NAME}.weight"]
    exact = to_float32(base.values, "bfloat16").astype(np.float64) + b.astype(np.float64) @ a
    assert result.dtype == "bfloat16"
    assert (result.array() == cast(exact.astype(np.float32), "float32", "bfloat16")).mean() > 0.99


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_any_box_is_that_of_the_whole(dora: bool, turned: bool) -> None:
    values = MADE.normal(size=(17, 31) if turned else (31, 17)).astype(np.float32)
    adapter, _, _ = _adapter(31, 17, use_dora=dora, fan_in_fan_out=turned)
    result = merged({f"{NAME}.weight": Given(values)}, adapter, {}).tensors[f"{NAME}.weight"]
    whole = result.array()
    for box in (((0, 5), (2, 9)), ((16, 17), (0, 17)), ((3, 3), (0, 4)), ((1, 9), (5, 6))):
        assert result.read(box) == pytest.approx(whole[tuple(slice(*ends) for ends in box)], abs=1e-6)


@pytest.mark.parametrize("dora", [False, True])
def test_memory_does_not_grow_with_the_weight(dora: bool) -> None:
    """64 MB are computed block by block; a fraction of that is held."""
    base = _bf16(np.zeros((1, 1)))
    base.values = np.lib.stride_tricks.as_strided(np.full(1, 0x3F80, np.uint16), (16_384, 2048), (0, 0))
    base.shape = base.values.shape
    adapter, _, _ = _adapter(16_384, 2048, use_dora=dora)
    result = merged({f"{NAME}.weight": base}, adapter, {}).tensors[f"{NAME}.weight"]
    tracemalloc.start()
    for box in result.blocks():
        result.read(box)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 << 20


def test_float8_is_read_as_numbers() -> None:
    codes = MADE.integers(0, 0x7E, size=(130, 200)).astype(np.uint8)
    scale = MADE.random(size=(2, 2)).astype(np.float32)
    base: dict[str, Tensor] = {
        f"{NAME}.weight": Given(codes, "float8_e4m3fn"),
        f"{NAME}.weight_scale_inv": Given(scale),
        "model.norm.weight": _bf16(np.ones(3)),
    }
    adapter, a, b = _adapter(130, 200)
    about = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    result = merged(base, adapter, {"quantization_config": about, "dtype": "float32"})
    wanted = to_float32(codes, "float8_e4m3fn") * np.kron(scale, np.ones((128, 128)))[:130, :200] + b @ a
    assert result.tensors.keys() == {f"{NAME}.weight", "model.norm.weight"}
    assert result.tensors[f"{NAME}.weight"].array() == pytest.approx(wanted, rel=1e-5, abs=1e-4)
    assert "quantization_config" not in result.config


@pytest.mark.parametrize("method", ["compressed-tensors", "hqq", "torchao", "mxfp4"])
def test_other_quantisations_are_refused(method: str) -> None:
    base = {f"{NAME}.weight": Given(np.zeros((300, 1), np.uint8))}
    with pytest.raises(InputError, match=method) as caught:
        merged(base, _adapter(31, 17)[0], {"quantization_config": {"quant_method": method}})
    assert "bf16" in str(caught.value.fix)


@pytest.mark.parametrize("size", [1.0, 0.02, 1e-4])
def test_what_rounding_takes_back_is_told(size: float) -> None:
    """In bfloat16 most of a small change is below half of the distance to the next number."""
    base = _bf16(MADE.normal(size=(64, 48)))
    adapter, a, b = _adapter(64, 48, lora_alpha=3 * 0.02 * size)
    tensors = merged({f"{NAME}.weight": base}, adapter, {}).tensors
    wanted, change = to_float32(base.array(), "bfloat16").astype(np.float64), 0.02 * size * b.astype(np.float64) @ a
    left = to_float32(cast((wanted + change).astype(np.float32), "float32", "bfloat16"), "bfloat16") - wanted
    share = (left * change).sum() / np.square(change).sum()
    found = kept_share(tensors)
    assert found == pytest.approx(share, abs=1e-3)
    assert kept_share(tensors, "float32") == pytest.approx(1, abs=1e-4)
    note = rounding_note(tensors, [adapter])
    assert (note is None) == (share >= 0.9) == (size == 1.0)
    if note:
        assert f"{found:.0%}" in note
        assert "--dtype fp32" in note


def test_experts_are_rounded_too() -> None:
    base = _bf16(np.ones((4, 6, 5)))
    a, b = MADE.normal(size=(12, 5)), 1e-5 * MADE.normal(size=(6, 12))
    path = "model.layers.0.mlp.experts"
    parts = {f"{path}.lora_{name}.weight": Given(each.astype(np.float32)) for name, each in (("A", a), ("B", b))}
    settings = settings_of({"peft_type": "LORA", "r": 3, "lora_alpha": 3}, "adapter_config.json")
    result = merged({f"{path}.down_proj": base}, adapter_of(settings, parts, "adapter"), {})
    assert kept_share(result.tensors) == 0
