"""Rotary angles: `rope_parameters` of a config.json as values of a GGUF header, and back.

llama.cpp computes YaRN as transformers does where nothing but `factor` and the original context is set
(llama-context.cpp; https://arxiv.org/abs/2309.00071); its other keys are read for few architectures, so other values
are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from outlive.checkpoint.families.rope import NAMES, llama3_scaling
from outlive.checkpoint.formats.gguf_fields import Fields
from outlive.checkpoint.tensors.tensor import Tensor

_TYPE, _FACTOR, _OLD = "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length"
_LOG, _ATTENTION = "rope.scaling.yarn_log_multiplier", "rope.scaling.attn_factor"
_YARN = {
    "beta_fast": ("rope.scaling.yarn_beta_fast", 32.0),
    "beta_slow": ("rope.scaling.yarn_beta_slow", 1.0),
    "extrapolation_factor": ("rope.scaling.yarn_ext_factor", 1.0),
    "attn_factor": ("rope.scaling.yarn_attn_factor", 1.0),
}
_MOST = 1 << 16


def rope_of(config: Fields, theta: float) -> Fields:
    """The rope parameters of a config in the spelling of transformers 4 or 5, with rope_theta and rope_type."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise config.refused("rope_parameters", rope, "should be a JSON object")
    found = Fields(rope, config.where, config.fix, "rope_parameters.")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    found.values["rope_type"] = "longrope" if kind == "su" else kind
    for key, default in (("rope_theta", theta), ("partial_rotary_factor", None)):
        if found.get(key) is None:
            found.values[key] = config.get(key, default)
    return found


def rope_kv(rope: Fields, kinds: tuple[str, ...], *, latent: bool = False) -> dict[str, Any]:
    """Keys without the architecture in front. kinds: the types that its readers compute; latent: DeepSeek's YaRN."""
    can = "is not computed by readers of this architecture"
    kind = rope.must("rope_type", "default", kinds, f"{can} (computed: {', '.join(kinds)})")
    kv: dict[str, Any] = {"rope.freq_base": rope.real("rope_theta")}
    if kind == "linear":
        kv |= {_TYPE: "linear", _FACTOR: rope.real("factor")}
    if kind == "yarn":
        for key, (_, usual) in _YARN.items():
            rope.must(key, usual, (usual,), can)
        rope.must("truncate", True, (True,), can)
        factor = rope.real("factor")
        kv |= {_TYPE: "yarn", _FACTOR: factor, _OLD: rope.count("original_max_position_embeddings")}
        given = rope.get("attention_factor")
        usual = 0.1 * math.log(max(factor, 1.0)) + 1.0
        if given is not None and (latent or not math.isclose(rope.real("attention_factor"), usual, rel_tol=1e-5)):
            raise rope.refused("attention_factor", given, f"{can}, which take {usual:.6g}")
        if latent:
            scale = rope.real("mscale_all_dim")
            rope.must("mscale", None, (scale, rope.values["mscale_all_dim"]), "should be mscale_all_dim: " + can)
            kv[_LOG] = 0.1 * scale
        else:
            for key in ("mscale", "mscale_all_dim"):
                rope.must(key, 0, (0,), can)
    return kv


def longrope_kv(rope: Fields, config: Fields) -> dict[str, Any]:
    """Phi-3's: the factors are tensors (families/rope.py), and the header has what cosine and sine are scaled by
    (https://arxiv.org/abs/2402.13753; transformers, _compute_longrope_parameters)."""
    key, longrope = "original_max_position_embeddings", rope.get("rope_type") == "longrope"
    if not longrope and config.get(key) is None:
        return {}
    old = config.count(key) if config.get(key) is not None else rope.count(key)
    if not longrope:
        return {_OLD: old}
    return {_OLD: old, _ATTENTION: rope.real("attention_factor", usual_attention(rope, config, old))}


def usual_attention(rope: Fields, config: Fields, old: int) -> float:
    """What transformers scales by where the config says nothing."""
    factor = rope.real("factor", config.count("max_position_embeddings") / old)
    if factor <= 1 or old < 2:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(old))


def read_rope(
    own: Fields, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, interleaved: bool, latent: bool = False
) -> dict[str, Any]:
    """rope_parameters of a header's values. config: what is known of it; interleaved: of the architecture llama, which
    may have the factors of Llama 3 as a tensor; latent: DeepSeek's YaRN. Raises InputError for other scalings."""
    found: dict[str, Any] = {"rope_theta": own.real("rope.freq_base", 10000.0), "rope_type": "default"}
    known = "is no rope scaling that is known here"
    kind = own.must(_TYPE, "none", ("none", "linear", "yarn"), known)
    own.get("rope.scaling.finetuned")  # how the model was trained: nothing is computed with it
    if kind != "none":
        found |= {"rope_type": kind, "factor": own.real(_FACTOR)}
    else:
        own.must(_FACTOR, 1.0, (1.0,), known)
    if kind == "yarn":
        found["original_max_position_embeddings"] = own.count(_OLD)
        for key, (name, usual) in _YARN.items():
            if own.must(name, None, (None, usual), known) is not None and key.startswith("beta"):
                found[key] = usual
        if latent:
            scale = float(f"{own.real(_LOG) * 10:.6g}")
            found |= {"mscale": scale, "mscale_all_dim": scale}
    if any(name in tensors for name in NAMES):
        found |= _of_tensors(own, {**config, "rope_parameters": found}, tensors, interleaved)
    return found


def _of_tensors(
    own: Fields, config: Mapping[str, Any], tensors: Mapping[str, Tensor], interleaved: bool
) -> dict[str, Any]:
    """The scaling that the file's tensors of factors stand for: those of Llama 3 and of Phi-3."""
    short = NAMES[2] in tensors
    if config["model_type"] == "phi3" and short and NAMES[1] in tensors:
        lists = [tensors[name] for name in NAMES[1:]]
        if all(one.size <= _MOST and one.dtype == "float32" for one in lists):
            names = ("long_factor", "short_factor")
            read = {name: [float(str(value)) for value in one.array()] for name, one in zip(names, lists, strict=True)}
            old = own.count(_OLD)
            usual = usual_attention(Fields({}, own.where, own.fix), Fields(config, own.where, own.fix), old)
            scale = own.real(_ATTENTION, usual)
            given = {} if math.isclose(scale, usual, rel_tol=1e-5) else {"attention_factor": scale}
            return {"rope_type": "longrope", **read, "original_max_position_embeddings": old, **given}
    found = None
    if interleaved and NAMES[0] in tensors and config["rope_parameters"]["rope_type"] == "default":
        found = llama3_scaling(tensors[NAMES[0]], config)
    if found is None:
        name = next(name for name in NAMES if name in tensors)
        raise own.refused(name, "there", "it scales the rotary angles in a way that is not known here")
    return found


def local_rope_of(config: Fields) -> Fields:
    """Gemma 3's rope of full attention, in either spelling; that of windows has to be the one that readers take."""
    nested = config.get("rope_parameters") or {}
    kinds = {"full_attention", "sliding_attention"}
    if not isinstance(nested, dict) or (nested and not kinds & nested.keys()):
        raise config.refused("rope_parameters", nested, "should have full_attention and sliding_attention")
    whole, local = ({**(nested.get(kind) or {})} for kind in ("full_attention", "sliding_attention"))
    whole = whole or dict(config.get("rope_scaling") or {})
    whole.setdefault("rope_theta", config.get("rope_theta", 1e6))
    whole["rope_type"] = whole.get("rope_type") or whole.get("type") or "default"
    window = Fields(local, config.where, config.fix, "rope_parameters.sliding_attention.")
    window.must("rope_type", "default", ("default",), "readers scale no angles in layers with windows")
    same = "llama.cpp takes 10000 for layers with windows"
    if window.get("rope_theta") is None:
        config.must("rope_local_base_freq", 10000.0, (10000, 10000.0), same)
    window.must("rope_theta", 10000.0, (10000, 10000.0), same)
    window.must("partial_rotary_factor", 1.0, (1, 1.0), "readers turn whole heads here")
    return Fields(whole, config.where, config.fix, "rope_parameters.full_attention.")
