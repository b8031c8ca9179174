"""Promise: each family's table is what transformers writes to disk, and every layout leads back to it bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from gguf import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES, get_tensor_name_map

from outlive.checkpoint.families.table import FAMILIES, family_of
from outlive.run.errors import InputError
from tests.checkpoint.families.folders import ODD, assert_equal, saved

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "llama tied": ("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama biased": ("LlamaConfig", "LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {}),
}
NOT_IN_GGUF: dict[str, str] = {}
RENAMED: dict[str, str] = {}  # as llama.cpp's converter renames them first


def config_of(case: str) -> Any:
    name, architecture, changes = CASES[case]
    return getattr(transformers, name)(**{**ODD, **changes}, architectures=[architecture])


@pytest.mark.parametrize("case", CASES)
def test_the_table_is_what_is_on_disk(tmp_path: Path, case: str) -> None:
    tensors, config = saved(tmp_path, config_of(case))
    expected = family_of(config).expected(config)
    assert expected == {name: tensor.shape for name, tensor in tensors.items()}


@pytest.mark.parametrize("case", CASES)
def test_what_modules_hold_becomes_canonical(tmp_path: Path, case: str) -> None:
    on_disk, config = saved(tmp_path / "original", config_of(case))
    modules, _ = saved(tmp_path / "modules", config_of(case), original=False)
    family = family_of(config)
    canonical = family.canonical(modules, config)
    assert {name: tensor.shape for name, tensor in canonical.items()} == family.expected(config)
    assert_equal(family.fused(canonical, config), modules)
    assert_equal(family.canonical(family.fused(on_disk, config), config), on_disk)
    assert_equal(family.canonical(on_disk, config), on_disk)


@pytest.mark.parametrize("case", CASES)
def test_gguf_and_back(tmp_path: Path, case: str) -> None:
    tensors, config = saved(tmp_path, config_of(case))
    family = family_of(config)
    if case in NOT_IN_GGUF:
        with pytest.raises(InputError, match=NOT_IN_GGUF[case]):
            family.to_gguf(tensors, config)
        return
    assert_equal(family.from_gguf(family.to_gguf(tensors, config), config), tensors)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_gguf_names_are_those_of_its_package(family: Any) -> None:
    if not family.architecture:
        return
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == family.architecture)
    names = get_tensor_name_map(architecture, 3)
    allowed = {TENSOR_NAMES[tensor].format(bid=1) for tensor in MODEL_TENSORS[architecture]}
    for row in family.rows:
        if row.gguf:
            assert row.gguf.replace("{layer}", "1").removesuffix(".weight").removesuffix(".bias") in allowed, row
            plain = row.name.replace("{layer}", "1").replace(".{expert}", "").replace("model.language_model", "model")
            plain = RENAMED.get(plain, plain)
            assert names.get_name(plain, (".weight", ".bias")) == row.gguf.replace("{layer}", "1"), row


def test_an_unknown_type_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="llama") as caught:
        family_of({"model_type": "no_such_model"})
    assert "docs/" in str(caught.value)
    with pytest.raises(InputError):
        family_of({})
