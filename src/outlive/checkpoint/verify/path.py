"""What lies at a path, and all that is looked at in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from outlive.checkpoint.adapters.adapter import NAME as ADAPTER
from outlive.checkpoint.adapters.settings import NAME as ADAPTER_CONFIG
from outlive.checkpoint.formats.dcp import METADATA
from outlive.checkpoint.formats.dcp_safetensors import shards_of
from outlive.checkpoint.formats.huggingface import INDEX, SINGLE
from outlive.checkpoint.formats.pickled import INDEX as BIN_INDEX
from outlive.checkpoint.verify.adapter import BIN, verify_adapter
from outlive.checkpoint.verify.checkpoints import verify_dcp, verify_state_dict
from outlive.checkpoint.verify.files import AGAIN
from outlive.checkpoint.verify.finding import LEVELS, Finding
from outlive.checkpoint.verify.folder import verify_folder
from outlive.checkpoint.verify.gguf import verify_gguf
from outlive.run.errors import InputError

PARTS = ("model", "adapter", "state")  # of a checkpoint that outlive writes
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_TRAINER = "trainer.json"


def verify_path(path: Path, base: Path | None = None) -> list[Finding]:
    """What is wrong with a checkpoint of any format, or worth knowing: errors first. Reads every byte of it.

    `base`: the model that an adapter was trained on, or whose config a checkpoint has that holds none. A checkpoint of
    outlive is looked at in all its parts. Raises InputError where nothing lies there that could be a checkpoint.
    """
    return _sorted(_found(path, base))


def _found(path: Path, base: Path | None) -> Iterable[Finding]:
    if path.is_file():
        return _of_file(path, base)
    if not path.is_dir():
        fix = "name a folder, or a .gguf, .bin or .pt file"
        raise InputError("there is no checkpoint", where=str(path), fix=fix)
    parts = [path / part for part in PARTS if (path / part).is_dir()]
    if parts and not (path / "config.json").is_file():
        return [finding for part in parts for finding in _found(part, base)]
    if any((path / name).is_file() for name in (ADAPTER_CONFIG, ADAPTER, BIN)):
        return verify_adapter(path, base)
    whole = (path / SINGLE).is_file() or (path / INDEX).is_file()
    pieces = any(path.glob("*.distcp")) or (bool(shards_of(path)) and not whole)
    if (path / METADATA).exists() or pieces:
        return [*verify_dcp(path, base), *_trainer(path)]
    if not whole and any((path / name).is_file() for name in ("pytorch_model.bin", BIN_INDEX)):
        return verify_state_dict(path, base)
    if any(path.glob("*.gguf")) and not any(path.glob("*.safetensors")):
        return verify_gguf(path)
    return verify_folder(path)


def form_of(path: Path) -> str:
    """The form of a checkpoint by which programs are told apart: one of `programs.FORMS`."""
    if path.suffix == ".gguf" or (path.is_dir() and any(path.glob("*.gguf")) and not any(path.glob("*.safetensors"))):
        return "gguf"
    if any((path / name).is_file() for name in (ADAPTER_CONFIG, ADAPTER, BIN)):
        return "adapter"
    pieces = path.is_dir() and (any(path.glob("*.distcp")) or any(path.glob("shard-*-model-*.safetensors")))
    return "dcp" if pieces or (path / METADATA).exists() else "folder"


def _of_file(path: Path, base: Path | None) -> Iterable[Finding]:
    if path.suffix == ".gguf":
        return verify_gguf(path)
    if path.suffix in _PICKLED:
        return verify_state_dict(path, base)
    fix = "name a folder, or a .gguf, .bin or .pt file"
    raise InputError("this is no file of a known format", where=str(path), fix=fix)


def _trainer(folder: Path) -> Iterator[Finding]:
    """The cursor, schedule and counters beside the tensors of a state/ that outlive wrote."""
    path = folder / _TRAINER
    if folder.name != "state":
        return
    try:
        whole = isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError, RecursionError):
        whole = False
    if not whole:
        what = f"{_TRAINER} is missing or damaged: nothing says where the run was"
        yield Finding("error", "damaged_state", what, str(path), AGAIN)


def _sorted(found: Iterable[Finding]) -> list[Finding]:
    return sorted(dict.fromkeys(found), key=lambda finding: LEVELS.index(finding.level))
