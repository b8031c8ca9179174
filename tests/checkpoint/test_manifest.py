"""A manifest tells a whole folder from one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.checkpoint.manifest import read_manifest, verify_manifest, write_manifest
from outlive.checkpoint.spellings import both_spellings
from outlive.run.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin").write_bytes(bytes(range(256)))
    write_manifest(tmp_path, {"step": 3})
    return tmp_path


def test_a_whole_folder_passes(folder: Path) -> None:
    verify_manifest(folder)
    assert read_manifest(folder)["step"] == 3
    assert read_manifest(folder)["files"]["model/weights.bin"]["size"] == 256


@pytest.mark.parametrize("damage", [bytes(256), bytes(range(255)), None], ids=["zeroed", "cut", "missing"])
def test_damage_is_named(folder: Path, damage: bytes | None) -> None:
    path = folder / "model" / "weights.bin"
    path.write_bytes(damage) if damage is not None else path.unlink()
    with pytest.raises(InputError, match=r"weights\.bin"):
        verify_manifest(folder)


def test_a_folder_without_manifest_is_not_finished(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not finished"):
        verify_manifest(tmp_path)


def test_both_spellings() -> None:
    config = both_spellings(
        {"dtype": "float32", "rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}}, "bfloat16"
    )
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert (config["rope_theta"], config["rope_scaling"]) == (5.0, None)
    scaled = both_spellings({"rope_parameters": {"rope_theta": 5.0, "rope_type": "linear", "factor": 2.0}})
    assert scaled["rope_scaling"] == {"rope_type": "linear", "type": "linear", "factor": 2.0}
    per_layer = {"rope_parameters": {"full_attention": {"rope_theta": 5.0}, "sliding_attention": {"rope_theta": 1.0}}}
    assert both_spellings(per_layer) == per_layer
