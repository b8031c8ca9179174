"""Promise: model/ and adapter/ hold all that a server needs, byte for byte where it was there before."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.export import Export
from outlive.checkpoint.manifest import read_manifest, verify_manifest
from outlive.checkpoint.write import save, write_export
from outlive.run.errors import InputError, WorkError
from tests.checkpoint.faults import tiny_export, tokenizer_folder


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return tokenizer_folder(tmp_path / "tokenizer")


class Model:
    """What `save` asks of a model."""

    def __init__(self, made: Export) -> None:
        self.made = made

    def export(self) -> Export:
        return self.made


def _adapter() -> Export:
    texts = {"adapter_config.json": '{"r": 2, "base_model_name_or_path": "/tmp/x"}'}
    return Export("adapter", texts, {"base_model.model.q.lora_A.weight": np.full((2, 3), 1 + 2**-20, np.float32)})


def test_a_model(tmp_path: Path, tokenizer: Path) -> None:
    (tokenizer / "generation_config.json").write_text('{"eos_token_id":  [2]}')
    made = tiny_export()
    made = replace(made, texts={**made.texts, "generation_config.json": "{}", "modeling_own.py": "import torch\n"})
    served = save(Model(made), tmp_path / "c", tokenizer=tokenizer, about={"run": "r"})
    assert served == tmp_path / "c" / "model"
    verify_manifest(tmp_path / "c")
    assert (read_manifest(tmp_path / "c")["kind"], read_manifest(tmp_path / "c")["run"]) == ("model", "r")
    for name in os.listdir(tokenizer):
        assert (served / name).read_bytes() == (tokenizer / name).read_bytes()
    assert (served / "modeling_own.py").read_text() == "import torch\n"
    config = json.loads((served / "config.json").read_text())
    assert config == {"model_type": "llama", "dtype": "bfloat16", "torch_dtype": "bfloat16"}
    with safe_open(served / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"BF16"}  # noqa: SIM118


def test_an_adapter_keeps_its_precision_and_names_its_base(tmp_path: Path, tokenizer: Path) -> None:
    base = {"model": "org/name", "content_hash": "0"}
    served = save(Model(_adapter()), tmp_path / "c", tokenizer=tokenizer, base=base, chat_template="{{ mine }}")
    assert served == tmp_path / "c" / "adapter"
    with safe_open(served / "adapter_model.safetensors", "numpy") as file:
        assert file.get_tensor("base_model.model.q.lora_A.weight")[0, 0] == np.float32(1 + 2**-20)
    assert json.loads((served / "base.json").read_text()) == base
    assert json.loads((served / "adapter_config.json").read_text()) == {"r": 2, "base_model_name_or_path": "org/name"}
    assert (served / "chat_template.jinja").read_text() == "{{ mine }}"
    assert not (served / "README.md").exists()


def test_files_can_be_read_by_others(tmp_path: Path, tokenizer: Path) -> None:
    before = os.umask(0o022)
    try:
        save(Model(tiny_export()), tmp_path / "c", tokenizer=tokenizer)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "c").rglob("*") if path.is_file()}
    assert modes == {0o644}


@pytest.mark.parametrize(("most", "files"), [(96, 3), (100, 3), (191, 3), (192, 2), (288, 1), (1, 3)])
def test_shards(tmp_path: Path, tokenizer: Path, most: int, files: int) -> None:
    made = tiny_export()  # three tensors of 96 bytes in bf16
    options: dict[str, Any] = {"tokenizer": tokenizer, "chat_template": None, "dtype": "bf16", "base": None}
    with building_checkpoint(tmp_path / "c", {}) as building:
        assert write_export(building, made, **options, max_shard_bytes=most) == "model"
    found = sorted(path.name for path in (tmp_path / "c" / "model").glob("*.safetensors"))
    if files == 1:
        assert found == ["model.safetensors"]
        assert not (tmp_path / "c" / "model" / "model.safetensors.index.json").exists()
        return
    assert found == [f"model-{number:05d}-of-{files:05d}.safetensors" for number in range(1, files + 1)]
    index = json.loads((tmp_path / "c" / "model" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 288}
    assert index["weight_map"].keys() == made.tensors.keys()
    for name, file_name in index["weight_map"].items():
        with safe_open(tmp_path / "c" / "model" / file_name, "numpy") as file:
            assert file.get_slice(name).get_shape() == [8, 6]


def test_nothing_is_saved_of_what_can_not_be(tmp_path: Path, tokenizer: Path) -> None:
    broken = tiny_export()
    broken.tensors["layers.1.weight"][0, 0] = np.nan
    with pytest.raises(WorkError, match=r"layers\.1\.weight holds NaN"):
        save(Model(broken), tmp_path / "c", tokenizer=tokenizer)
    save(Model(replace(broken, buffers=frozenset({"layers.1.weight"}))), tmp_path / "buffer", tokenizer=tokenizer)
    with pytest.raises(InputError, match="a dict can't be saved"):
        save({}, tmp_path / "c", tokenizer=tokenizer)
    with pytest.raises(WorkError, match="tokenizer is not there"):
        save(Model(tiny_export()), tmp_path / "c", tokenizer=tmp_path / "gone")
    assert sorted(os.listdir(tmp_path)) == ["buffer", "tokenizer"]
