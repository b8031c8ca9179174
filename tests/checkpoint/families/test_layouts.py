"""Promise: what only some folders and files hold is understood too; nothing in a config.json crashes a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.modeling_gguf_pytorch_utils import Gemma2TensorProcessor

from outlive.checkpoint.families.family import Family
from outlive.checkpoint.families.operations import Tensors
from outlive.checkpoint.families.table import FAMILIES, family_of
from outlive.checkpoint.tensors.dtypes import to_float32
from outlive.checkpoint.tensors.views import Cast, Given, Part, Unstacked
from outlive.run.errors import InputError
from tests.checkpoint.families.folders import assert_equal, saved
from tests.checkpoint.families.test_families import CASES, config_of


def in_float8(tensors: Tensors, block: int) -> tuple[Tensors, Tensors]:
    """Matrices of layers as float8 with scales, and what they stand for."""
    rng = np.random.default_rng(0)
    stored, meant = dict(tensors), dict(tensors)
    for name, tensor in tensors.items():
        if ".layers." in name and name.endswith("_proj.weight"):
            codes = rng.integers(0, 0x70, tensor.shape).astype(np.uint8)
            scale = rng.uniform(0.5, 2, [-(-length // block) for length in tensor.shape]).astype(np.float32)
            wide = scale.repeat(block, 0).repeat(block, 1)[: tensor.shape[0], : tensor.shape[1]]
            stored[name], stored[name + "_scale_inv"] = Given(codes, "float8_e4m3fn"), Given(scale)
            meant[name] = Given(to_float32(codes, "float8_e4m3fn") * wide)
    return stored, meant


@pytest.mark.parametrize("case", ["deepseek-v3", "qwen3"])
def test_float8_with_scales_becomes_float32(tmp_path: Path, case: str) -> None:
    tensors, config = saved(tmp_path, config_of(case))
    stored, meant = in_float8(tensors, 8)
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [8, 8]}
    assert_equal(family_of(config).canonical(stored, config), meant)
    config["quantization_config"]["weight_block_size"] = [8, "8"]
    with pytest.raises(InputError, match="weight_block_size"):
        family_of(config).canonical(stored, config)


def test_layers_that_predict_later_tokens_are_left_out(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("deepseek-v3"))
    extra = {"model.layers.3.eh_proj.weight": Given(np.ones((2, 2), np.float32))}
    family = family_of(config)
    assert family.ignored("model.layers.3.eh_proj.weight", config)
    assert not any(family.ignored(name, config) for name in tensors)
    assert_equal(family.to_gguf({**tensors, **extra}, config), family.to_gguf(tensors, config))


def test_a_text_model_out_of_a_folder_with_a_vision_tower(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("qwen3.5 text"))
    nested = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()}
    assert_equal(family_of(config).canonical(nested, config), tensors)


def test_gemma3_folders_of_transformers_4(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("gemma3"))
    old = {name.replace("vision_tower.", "vision_tower.vision_model."): tensor for name, tensor in tensors.items()}
    assert_equal(family_of(config).canonical(old, config), tensors)


def test_mixtral_files_with_a_tensor_for_each_expert(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("mixtral"))
    family, old = family_of(config), {}
    for name, tensor in family.to_gguf(tensors, config).items():
        if "_exps" in name:
            names = [name.replace("_exps", f".{expert}") for expert in range(3)]
            old.update({one: Unstacked(tensor, expert) for expert, one in enumerate(names)})
        else:
            old[name] = tensor
    assert_equal(family.from_gguf(old, config), tensors)


def test_deepseek_files_with_keys_and_values_in_one(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("deepseek-v2"))
    family = family_of(config)
    old = {
        name: tensor
        for name, tensor in family.to_gguf(tensors, config).items()
        if "attn_k_b" not in name and "attn_v_b" not in name
    }
    for layer in range(3):
        old[f"blk.{layer}.attn_kv_b.weight"] = tensors[f"model.layers.{layer}.self_attn.kv_b_proj.weight"]
    assert_equal(family.from_gguf(old, config), tensors)


def test_latent_keys_are_turned_and_values_are_not(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("deepseek-v2"))
    in_gguf = family_of(config).to_gguf(tensors, config)
    by_head = tensors["model.layers.1.self_attn.kv_b_proj.weight"].array().reshape(6, 6 + 7, 9)
    assert np.array_equal(in_gguf["blk.1.attn_k_b.weight"].array(), by_head[:, :6].swapaxes(1, 2))
    assert np.array_equal(in_gguf["blk.1.attn_v_b.weight"].array(), by_head[:, 6:])


@pytest.mark.parametrize("case", ["gemma2", "gemma3 text"])
def test_gemmas_norms_are_what_transformers_undoes(tmp_path: Path, case: str) -> None:
    tensors, config = saved(tmp_path, config_of(case))
    in_gguf = family_of(config).to_gguf(tensors, config)
    own = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}
    own |= {"pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    own |= {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"} if case == "gemma3 text" else {}
    for name, short in own.items():
        given = in_gguf[f"blk.2.{short}.weight"].array()
        undone = Gemma2TensorProcessor().process(given, f"blk.2.{short}.weight").weights
        assert np.array_equal(undone, tensors[f"model.layers.2.{name}.weight"].array())


def test_norms_in_bfloat16_come_back_exactly(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("gemma2"))
    narrow = {name: Cast(tensor, "bfloat16") for name, tensor in tensors.items()}
    family = family_of(config)
    back = family.from_gguf(family.to_gguf(narrow, config), config)
    assert_equal({name: Cast(tensor, "bfloat16") for name, tensor in back.items()}, dict(narrow))


def test_value_heads_of_linear_attention_are_tiled(tmp_path: Path) -> None:
    """As llama.cpp's converter orders them: value head v of key head k comes to v · keys + k."""
    tensors, config = saved(tmp_path, config_of("qwen3.5 text"))
    in_gguf = family_of(config).to_gguf(tensors, config)
    tiled = [0, 3, 1, 4, 2, 5]  # 2 key heads, 3 value heads of each
    parent = "model.layers.0.linear_attn."

    def rows(name: str, start: int, size: int) -> Any:
        whole = torch.from_numpy(tensors[parent + name].array())
        heads = whole[start:].reshape(6, size, *whole.shape[1:])[tiled].reshape(-1, *whole.shape[1:])
        return torch.cat([whole[:start], heads]).numpy()

    assert np.array_equal(in_gguf["blk.0.attn_qkv.weight"].array(), rows("in_proj_qkv.weight", 20, 7))
    assert np.array_equal(in_gguf["blk.0.attn_gate.weight"].array(), rows("in_proj_z.weight", 0, 7))
    assert np.array_equal(in_gguf["blk.0.ssm_conv1d.weight"].array(), rows("conv1d.weight", 20, 7)[:, 0])
    assert np.array_equal(in_gguf["blk.0.ssm_dt.bias"].array(), rows("dt_bias", 0, 1))
    assert np.array_equal(in_gguf["blk.0.ssm_beta.weight"].array(), rows("in_proj_b.weight", 0, 1))
    np.testing.assert_allclose(in_gguf["blk.0.ssm_a"].array(), -np.exp(rows("A_log", 0, 1)), rtol=1e-6)
    columns = tensors[parent + "out_proj.weight"].array().reshape(-1, 6, 7)[:, tiled].reshape(-1, 42)
    assert np.array_equal(in_gguf["blk.0.ssm_out.weight"].array(), columns)
    plain = tensors[parent + "norm.weight"].array()
    assert np.array_equal(in_gguf["blk.0.ssm_norm.weight"].array(), plain)  # its norm has no + 1


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("mixtral"))
    del tensors["model.layers.1.block_sparse_moe.experts.1.w3.weight"]
    with pytest.raises(InputError, match=r"layers\.1\.block_sparse_moe\.experts\.\d\.w3.*number 1 is missing"):
        family_of(config).to_gguf(tensors, config)


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    tensors, config = saved(tmp_path, config_of("llama"))
    name = "model.layers.1.self_attn.q_proj.weight"
    tensors[name] = Part.along(tensors[name], 0, 0, 59)
    with pytest.raises(InputError, match="q_proj"):
        family_of(config).to_gguf(tensors, config)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
FULL = {case: config_of(case).to_dict() for case in CASES if " " not in case}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FULL)), st.data())
def test_nothing_in_a_config_crashes_a_table(case: str, data: st.DataObject) -> None:
    config = dict(FULL[case])
    for outer in ("text_config", "vision_config"):
        if isinstance(config.get(outer), dict):
            config[outer] = dict(config[outer])
    places = [
        config,
        *(config[outer] for outer in ("text_config", "vision_config") if isinstance(config.get(outer), dict)),
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places))
        place[data.draw(st.sampled_from(sorted(set(place) | {"rope_scaling", "quantization_config"})))] = data.draw(
            JUNK
        )
    one = Given(np.zeros((2, 0), np.float32))
    try:
        family = family_of(config)
        some = dict.fromkeys(list(family.expected(config))[:20], one)
        family.canonical({**some, "x.weight_scale_inv": one}, config)
        family.to_gguf(some, config)
    except InputError:
        pass


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_an_empty_config_is_refused(family: Family) -> None:
    with pytest.raises(InputError, match=r"config\.json has no"):
        family.expected({})
    huge = dict.fromkeys(["vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers"], 10_000)
    with pytest.raises(InputError):
        family.expected({**huge, "num_hidden_layers": 1 << 39})
