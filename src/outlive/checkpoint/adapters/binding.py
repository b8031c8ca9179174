"""Which base an adapter belongs to: those that Outlive saves name the hash of its weights and config in base.json."""

from __future__ import annotations

from pathlib import Path

from outlive.checkpoint.formats.huggingface import read_json
from outlive.run.errors import InputError
from outlive.run.files import hash_file, hash_json

NAME = "base.json"
_WEIGHTS = (".safetensors", ".bin")


def content_hash(folder: Path) -> str:
    """xxh3-128 over the hashes of a model's weight files and its config."""
    files = sorted(path for path in folder.iterdir() if path.suffix in _WEIGHTS or path.name == "config.json")
    return hash_json({path.name: hash_file(path) for path in files})


def check_bound(adapter: Path, base: Path) -> None:
    """Raise InputError where the adapter was trained on another base than the one in this folder, and says so."""
    path = adapter / NAME
    if not path.is_file():
        return  # of PEFT or another tool, which does not tell
    if not base.is_dir():
        return  # a .gguf file: the hash is that of the folder which it became
    about = read_json(path)
    wanted = about.get("content_hash")
    if not isinstance(wanted, str) or content_hash(base) == wanted:
        return
    raise InputError(
        f"the adapter was trained on another base: {str(about.get('model'))[:200]} with content hash {wanted[:64]}",
        where=str(base),
        fix=f"name the base with that hash; or remove {path}, if this base has the same weights in other files",
    )
