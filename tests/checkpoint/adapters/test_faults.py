"""Promise: what can't be merged rightly is refused with what is wrong, where, and what to do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from outlive.checkpoint.adapters import merged, open_adapter
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

Q = "base_model.model.model.layers.0.self_attn.q_proj"
BASE: dict[str, Any] = {
    "model.embed_tokens.weight": (11, 6),
    "model.layers.0.self_attn.q_proj.weight": (8, 6),
    "model.layers.0.mlp.experts.gate_up_proj": (3, 10, 6),
    "lm_head.weight": (11, 6),
}
Edit = Callable[[dict[str, Any], dict[str, Any]], None]


def _sizes(**sizes: tuple[int, ...]) -> Edit:
    return lambda _, tensors: tensors.update({f"{Q}.{name.replace('__', '.')}": size for name, size in sizes.items()})


def _config(**values: Any) -> Edit:
    return lambda config, _: config.update(values)


def _tensor(name: str, size: tuple[int, ...]) -> Edit:
    return lambda _, tensors: tensors.update({name: size})


def _without(name: str) -> Edit:
    return lambda _, tensors: tensors.pop(name)


def _emptied(config: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors.clear()


FAULTS: dict[str, tuple[Edit, str]] = {
    "A of a module without B": (_tensor(f"{Q[:-6]}k_proj.lora_A.weight", (3, 6)), "no .*lora_B"),
    "keys that fit nothing": (
        lambda _, t: t.update({f"{Q[:-6]}o_proj.lora_A.weight": (3, 8), f"{Q[:-6]}o_proj.lora_B.weight": (6, 3)}),
        "no modules for these of the adapter: model.layers.0.self_attn.o_proj",
    ),
    "a module of another model": (_tensor("base_model.model.model.layers.7.norm.weight", (6,)), "layers.7.norm"),
    "a wrong width": (_sizes(lora_A__weight=(3, 7)), r"\(8, 7\).*\(8, 6\)"),
    "a wrong height": (_sizes(lora_B__weight=(9, 3)), r"\(9, 6\).*\(8, 6\)"),
    "ranks that differ": (_sizes(lora_B__weight=(8, 4)), "3 and 4"),
    "a rank that the config does not have": (_config(r=4), "rank 3, and the config gives them 4"),
    "an unknown kind": (_config(peft_type="LORRA"), "no kind of adapter"),
    "another kind": (_config(peft_type="IA3"), "IA3"),
    "no kind": (_config(peft_type=None), "None"),
    "ZeRO-3's stubs": (_sizes(lora_A__weight=(0,), lora_B__weight=(0,)), "sharded"),
    "no tensors": (_emptied, "no tensors"),
    "A alone": (_without(f"{Q}.lora_B.weight"), "lora_B"),
    "a convolution": (_sizes(lora_A__weight=(3, 6, 1, 1)), "matrices"),
    "magnitudes that nobody announced": (_sizes(lora_magnitude_vector=(8,)), "use_dora is false"),
    "magnitudes that are missing": (_config(use_dora=True), "no magnitude"),
    "a bias for what has none": (_sizes(lora_B__bias=(8,)), "lora_bias"),
    "an activated LoRA": (_config(alora_invocation_tokens=[3]), "invocation"),
    "repeated layers": (_config(layer_replication=[[0, 1], [0, 1]]), "repeats layers"),
    "an option of the future": (_config(use_magic=True), "use_magic"),
    "a rank that is no number": (_config(r="three"), "three"),
    "an alpha that is none": (_config(alpha_pattern={"q_proj": "much"}), "alpha_pattern"),
    "a pattern that takes forever": (_config(alpha_pattern={"(a+)+b": 3}), "forever"),
    "a pattern that is none": (_config(alpha_pattern={"(q": 3}), "can't be used"),
    "a token behind the last": (
        lambda c, t: (
            c.update(trainable_token_indices=[11]),
            t.update({"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": (1, 6)}),
        )[0],
        "token 11",
    ),
    "tokens that are not named": (
        _tensor("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", (1, 6)),
        "does not say which",
    ),
    "experts of another size": (
        lambda _, t: t.update(
            {
                "base_model.model.model.layers.0.mlp.experts.lora_A.weight": (9, 5),
                "base_model.model.model.layers.0.mlp.experts.lora_B.weight": (10, 9),
            }
        ),
        "fit none of its experts",
    ),
    "an embedding of more tokens, without the head": (
        _tensor("base_model.model.model.embed_tokens.weight", (13, 6)), "13 rows .*lm_head.weight 11",
    ),
    "a kind of tensor that nobody knows": (_tensor(f"{Q}.lora_C.weight", (3, 3)), "lora_C"),
    "two adapters in one file": (_tensor(f"{Q}.lora_A.other.weight", (3, 6)), "twice"),
}  # fmt: skip


def _write(folder: Path, edit: Edit) -> None:
    config: dict[str, Any] = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "base_model_name_or_path": "some/base"}
    sizes: dict[str, Any] = {f"{Q}.lora_A.weight": (3, 6), f"{Q}.lora_B.weight": (8, 3)}
    edit(config, sizes)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file({name: np.ones(size, np.float32) for name, size in sizes.items()}, folder / "adapter_model.safetensors")


def _merge(folder: Path) -> Any:
    base = {name: Given(np.ones(size, np.float32)) for name, size in BASE.items()}
    return merged(base, open_adapter(folder), {"model_type": "llama", "tie_word_embeddings": False})


@pytest.mark.parametrize("fault", FAULTS)
def test_refused(fault: str, tmp_path: Path) -> None:
    edit, said = FAULTS[fault]
    _write(tmp_path, edit)
    with pytest.raises(InputError, match=said) as caught:
        _merge(tmp_path)
    assert caught.value.where
    assert caught.value.fix


def test_the_same_without_a_fault(tmp_path: Path) -> None:
    _write(tmp_path, lambda _, __: None)
    result = _merge(tmp_path)
    assert result.tensors["model.layers.0.self_attn.q_proj.weight"].array() == pytest.approx(1 + 2 * 3)


def test_the_adapter_for_another_base_names_its_own(tmp_path: Path) -> None:
    _write(tmp_path, _sizes(lora_A__weight=(3, 7)))
    with pytest.raises(InputError) as caught:
        _merge(tmp_path)
    assert "some/base" in str(caught.value.fix)


@pytest.mark.parametrize("files", [[], ["adapter_config.json"], ["adapter_config.json", "adapter_model.bin"]])
def test_folders_that_are_no_adapter(files: list[str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text('{"peft_type": "LORA", "r": 3}')
    with pytest.raises(InputError) as caught:
        open_adapter(tmp_path)
    assert caught.value.fix


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"[" * 100_000, b"\xff\xfe", b'{"peft_type": "LORA", "r": 1e999}'])
def test_configs_that_are_none(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_bytes(text)
    with pytest.raises(InputError):
        open_adapter(tmp_path)


VALUES = [
    None,
    True,
    0,
    -1,
    3,
    1e308,
    10**400,
    "x",
    "pissa",
    "",
    [],
    [1],
    [-1],
    ["a"],
    {},
    {"q_proj": 2},
    {"": 1},
    [[]],
]


def test_any_value_of_any_field_is_an_error_or_a_merge(tmp_path: Path) -> None:
    """No field of the config, with whatever value, leads to anything but a merge or an InputError."""
    fields = [
        "peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "use_rslora", "use_dora",
        "lora_bias", "trainable_token_indices", "init_lora_weights", "modules_to_save", "base_model_name_or_path",
        "target_parameters", "layer_replication",
    ]  # fmt: skip
    merges = 0
    for field in fields:
        for value in VALUES:
            _write(tmp_path, _config(**{field: value}))
            with contextlib.suppress(InputError):
                _merge(tmp_path).tensors["model.layers.0.self_attn.q_proj.weight"].array()
                merges += 1
    assert 50 < merges < 220


def test_any_shape_of_a_base_is_an_error_or_a_merge(tmp_path: Path) -> None:
    """A base whose tensors have any number of axes leads to a merge or to an InputError."""
    names = ["lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "token_adapter.trainable_tokens_delta"]
    for path in ("model.embed_tokens", "lm_head", "model.layers.0.mlp.experts", "model.layers.0.mlp.experts.0.up_proj"):
        sizes = {f"{path}.{name}": (3, 6) for name in names[:2]}
        for keys in (sizes, {f"{path}.{name}": (3, 3) for name in names[2:4]}, {f"{path}.{names[4]}": (1, 6)}):
            for shape in ((), (0,), (6,), (11, 6), (0, 6), (3, 10, 6), (1, 1, 1, 1)):
                _write(tmp_path, lambda config, tensors: config.update(trainable_token_indices=[0]))
                save_file({k: np.ones(v, np.float32) for k, v in keys.items()}, tmp_path / "adapter_model.safetensors")
                base = {name: Given(np.ones(shape, np.float32)) for name in BASE}
                base[f"{path}.weight"] = base["model.layers.0.mlp.experts.down_proj"] = Given(np.ones(shape))
                for config in ({}, {"tie_word_embeddings": True, "text_config": 3}, {"quantization_config": []}):
                    with contextlib.suppress(InputError):
                        for tensor in merged(base, open_adapter(tmp_path), config).tensors.values():
                            tensor.array()
