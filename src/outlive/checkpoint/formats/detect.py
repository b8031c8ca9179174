"""Which format a path has, by what lies there."""

from __future__ import annotations

from pathlib import Path

from outlive.checkpoint.formats.dcp import METADATA, open_dcp
from outlive.checkpoint.formats.dcp_safetensors import shards_of
from outlive.checkpoint.formats.gguf import open_gguf
from outlive.checkpoint.formats.huggingface import INDEX, SINGLE, open_model
from outlive.checkpoint.formats.pickled import open_state_dict
from outlive.checkpoint.model import Model
from outlive.run.errors import InputError

_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


def open_checkpoint(path: Path) -> Model:
    """The checkpoint at a path: a Hugging Face folder, one of torch.distributed.checkpoint (or its safetensors
    variant), a state dict of torch.save, or a GGUF file. Raises InputError where it is none of these, or damaged."""
    if path.is_file() and path.suffix in _PICKLED:
        return open_state_dict(path)
    if path.suffix == ".gguf":
        return open_gguf(path)
    if not path.is_dir():
        raise InputError("there is no checkpoint", where=str(path), fix="name a folder, or a .bin or .pt file")
    if (path / METADATA).is_file() or (
        shards_of(path) and not (path / SINGLE).is_file() and not (path / INDEX).is_file()
    ):
        return open_dcp(path)
    if (path / SINGLE).is_file() or (path / INDEX).is_file():
        return open_model(path)
    if any((path / name).is_file() for name in ("pytorch_model.bin", "pytorch_model.bin.index.json")):
        return open_state_dict(path)
    if (path / "adapter_config.json").is_file():
        fix = "merge it into its base: outlive merge BASE ADAPTER DST"
        raise InputError("this is an adapter, which is no model by itself", where=str(path), fix=fix)
    if any(path.glob("*.gguf")):
        return open_gguf(path)
    raise InputError(
        "no known checkpoint lies here",
        where=str(path),
        expected="model.safetensors, .metadata with *.distcp files, pytorch_model.bin, or a .gguf file",
        fix="name the folder in which the files themselves lie",
    )
