"""Promise: several adapters are summed exactly as their weights say, or refused where they are no sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.adapters import Adapter, adapter_of, all_merged
from outlive.checkpoint.adapters.settings import settings_of
from outlive.checkpoint.tensors.dtypes import cast, to_float32
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

MADE = np.random.default_rng(0)
Q = "model.layers.0.self_attn.q_proj"
EXPERTS = "model.layers.0.mlp.experts"


def _normal(*shape: int) -> Any:
    return MADE.normal(size=shape).astype(np.float32)


def _adapter(tensors: dict[str, Any], **config: Any) -> Adapter:
    settings = settings_of({"peft_type": "LORA", "r": 3, "lora_alpha": 6, **config}, "adapter_config.json")
    return adapter_of(settings, {f"base_model.model.{name}": Given(each) for name, each in tensors.items()}, "adapter")


def _lora(path: str, out: int, width: int) -> dict[str, Any]:
    return {f"{path}.lora_A.weight": _normal(3, width), f"{path}.lora_B.weight": _normal(out, 3)}


def test_the_sum_is_rounded_once() -> None:
    """In bfloat16: four adapters, each of which changes less than its rounding, change the weight together."""
    base = Given(cast(np.full((8, 6), 100, np.float32), "float32", "bfloat16"), "bfloat16")
    one = {
        f"{Q}.lora_A.weight": np.full((3, 6), 0.2, np.float32),
        f"{Q}.lora_B.weight": np.full((8, 3), 0.1, np.float32),
    }
    result = all_merged({f"{Q}.weight": base}, [_adapter(one)] * 4, {}, weights=[1, 2, 1, 1])
    assert 2 * 3 * 0.2 * 0.1 < 0.25  # half of the distance of two numbers near 100
    wanted = cast(np.full((8, 6), 100 + 5 * 0.12, np.float32), "float32", "bfloat16")
    assert (result.tensors[f"{Q}.weight"].array() == wanted).all()


@pytest.mark.parametrize("fused", [True, False])
def test_experts(fused: bool) -> None:
    """B of the experts' parameters is interleaved; both layouts give the same sum."""
    weights, parts = _normal(4, 6, 5), []
    tensors: dict[str, Tensor] = {f"{EXPERTS}.down_proj": Given(weights)}
    if not fused:
        tensors = {f"{EXPERTS}.{number}.down_proj.weight": Given(each) for number, each in enumerate(weights)}
    wanted = weights.astype(np.float64)
    for factor in (0.5, -2.0):
        a, b = _normal(12, 5), _normal(6, 12)
        parts.append(_adapter({f"{EXPERTS}.lora_A.weight": a, f"{EXPERTS}.lora_B.weight": b}))
        for expert in range(4):
            wanted[expert] += factor * 2 * b[:, expert::4].astype(np.float64) @ a[3 * expert : 3 * expert + 3]
    found = all_merged(tensors, parts, {}, weights=[0.5, -2.0]).tensors
    for expert in range(4):
        name = f"{EXPERTS}.down_proj" if fused else f"{EXPERTS}.{expert}.down_proj.weight"
        one = found[name].array()[expert] if fused else found[name].array()
        assert one == pytest.approx(wanted[expert], abs=1e-5)


def _dora() -> Adapter:
    return _adapter({**_lora(Q, 8, 6), f"{Q}.lora_magnitude_vector": np.ones(8, np.float32)}, use_dora=True)


@pytest.mark.parametrize(
    ("adapters", "weights"),
    [
        ([_dora(), _adapter(_lora(Q, 8, 6))], None),
        ([_adapter(_lora(Q, 8, 6)), _dora()], None),
        ([_dora()], [0.5]),
        ([_adapter({f"{Q}.weight": _normal(8, 6)})], [0.5]),
        ([_adapter({f"{Q}.weight": _normal(8, 6)}), _adapter({f"{Q}.weight": _normal(8, 6)})], None),
        ([_adapter(_lora(Q, 8, 6)), _adapter({f"{Q}.weight": _normal(8, 6)})], None),
    ],
)
def test_what_is_no_sum(adapters: list[Adapter], weights: list[float] | None) -> None:
    with pytest.raises(InputError, match="no sum") as caught:
        all_merged({f"{Q}.weight": Given(_normal(8, 6))}, adapters, {}, weights=weights)
    assert caught.value.fix


def test_a_whole_and_a_sum_of_others() -> None:
    """An adapter that replaces one weight, and one that adds to another, go together."""
    other, whole = Q.replace("q_proj", "k_proj"), _normal(8, 6)
    low = _lora(other, 8, 6)
    base: dict[str, Tensor] = {
        f"{Q}.weight": Given(_normal(8, 6)),
        f"{other}.weight": Given(np.zeros((8, 6), np.float32)),
    }
    found = all_merged(base, [_adapter({f"{Q}.weight": whole}), _adapter(low)], {}, weights=[1.0, 0.25]).tensors
    assert (found[f"{Q}.weight"].array() == whole).all()
    b, a = low[f"{other}.lora_B.weight"], low[f"{other}.lora_A.weight"]
    assert found[f"{other}.weight"].array() == pytest.approx(0.25 * 2 * b @ a, abs=1e-6)


def test_numbers_are_those_of_float32() -> None:
    """One adapter merged twice by halves is the adapter."""
    base, low = {f"{Q}.weight": Given(_normal(8, 6))}, _lora(Q, 8, 6)
    once = all_merged(base, [_adapter(low)], {}).tensors[f"{Q}.weight"].array()
    halves = all_merged(base, [_adapter(low), _adapter(low)], {}, weights=[0.5, 0.5]).tensors[f"{Q}.weight"].array()
    assert to_float32(halves, "float32") == pytest.approx(once, abs=1e-6)
