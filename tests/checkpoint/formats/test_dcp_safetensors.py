"""Promise: the variant of torch.distributed.checkpoint in safetensors files is refused where it is not whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoint.formats.dcp import open_dcp
from outlive.run.errors import InputError
from tests.fixtures import cases

SAMPLES = cases() / "checkpoints"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no cases: set OUTLIVE_CASES")


def _sharded(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES / "dcp_hf_sharded", tmp_path / "sharded"))


def _change_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


@needs_samples
def test_the_first_shard_missing_is_found(tmp_path: Path) -> None:
    """torch fills the rows with zeros."""
    folder = _sharded(tmp_path)
    (folder / "shard-00001-model-00001-of-00001.safetensors").unlink()
    with pytest.raises(InputError, match="rank 0"):
        open_dcp(folder)


@needs_samples
@pytest.mark.parametrize(
    ("info", "what"),
    [
        (None, "does not say where"),
        ("[]", "no JSON object"),
        ("{", "no JSON"),
        ('{"model.norm.weight": {"saved_offsets": [0]}}', "does not say where|overlap|no file"),
        ('{"model.norm.weight": {"saved_offsets": [0, 0]}}', "axes|does not say"),
        ('{"model.norm.weight": {"saved_offsets": "0"}}', "shape|does not say"),
    ],
)
def test_damaged_sharding_info(tmp_path: Path, info: str | None, what: str) -> None:
    folder = _sharded(tmp_path)

    def change(header: dict[str, Any]) -> None:
        header["__metadata__"].pop("DCP_SHARDING_INFO")
        if info is not None:
            header["__metadata__"]["DCP_SHARDING_INFO"] = info

    _change_header(folder / "shard-00002-model-00001-of-00001.safetensors", change)
    with pytest.raises(InputError, match=what):
        open_dcp(folder)


@needs_samples
def test_pieces_of_the_variant_that_overlap_are_refused(tmp_path: Path) -> None:
    folder = _sharded(tmp_path)

    def change(header: dict[str, Any]) -> None:
        info = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        info["model.embed_tokens.weight"]["saved_offsets"][0] -= 1
        header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(info)

    _change_header(folder / "shard-00002-model-00001-of-00001.safetensors", change)
    with pytest.raises(InputError, match="overlap"):
        open_dcp(folder)
