"""Adapters merged into their base: the same function of the input, without the adapters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from outlive.checkpoint.adapters.adapter import Adapter
from outlive.checkpoint.adapters.merging import Merging, Result
from outlive.checkpoint.adapters.quantised import dequantised
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

__all__ = ["Result", "all_merged", "merged"]


def merged(
    base: Mapping[str, Tensor],
    adapter: Adapter,
    config: Mapping[str, Any],
    *,
    initial: Adapter | None = None,
    blockwise_experts: bool = False,
) -> Result:
    """The base's tensors, by their names on disk, with the adapter in them, and the config that fits them.

    `initial`: the adapter before its first step, of one whose start changed the base (PiSSA, OLoRA, CorDA …): then the
    sum is W + scale·(B·A - B₀·A₀). Without it PiSSA's and OLoRA's start is found from the base. Where a tied embedding
    or head was changed alone, the head is written and `tie_word_embeddings` false. Raises InputError for tensors that
    fit nothing in the base, or not in shape; and for bases that are quantised in a way that is not read.
    """
    return all_merged(base, [adapter], config, initial=initial, blockwise_experts=blockwise_experts)


def all_merged(
    base: Mapping[str, Tensor],
    adapters: Sequence[Adapter],
    config: Mapping[str, Any],
    *,
    weights: Sequence[float] | None = None,
    initial: Adapter | None = None,
    blockwise_experts: bool = False,
) -> Result:
    """Several adapters merged into one base: W + Σ wᵢ·scaleᵢ·Bᵢ·Aᵢ, each wᵢ 1 without `weights`, summed before it is
    rounded (what PEFT's add_weighted_adapter makes with combination_type "cat").

    Else as `merged`, which is this of one. Raises InputError too where two of them bring the same weight as a whole, or
    have magnitudes (DoRA) of it, and where one that is weighted does: those are no sums.
    """
    factors = [1.0] * len(adapters) if weights is None else list(weights)
    if len(factors) != len(adapters) or not all(math.isfinite(factor) for factor in factors):
        what = f"there are {len(adapters)} adapters and the weights are {', '.join(map(str, factors))}"
        raise InputError(what, where="--weights", fix="give each adapter one finite number")
    if initial is not None and len(adapters) > 1:
        fix = "convert it to plain LoRA first, with PEFT's path_initial_model_for_weight_conversion"
        raise InputError("an initial adapter goes with one adapter only", where="--initial", fix=fix)
    tensors, plain = dequantised(base, config)
    notes = []
    if plain.keys() != config.keys():
        about = config["quantization_config"]
        method = about.get("quant_method", "float8") if isinstance(about, Mapping) else "float8"
        notes = [f"the base is quantised ({str(method)[:50]}): its weights are read as the numbers they stand for"]
    result, first = Result(tensors, plain, notes), dict(tensors)
    for adapter, factor in zip(adapters, factors, strict=True):
        work = Merging(result, first, adapter, initial, blockwise_experts, factor)
        work.lay_below()
        work.add_low_rank()
        work.replace_rows()
        work.replace_whole()
        result = work.result()
    return result
