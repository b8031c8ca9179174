"""What plants a fault: each gets the folder of a whole checkpoint, or makes a function that does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.checkpoint.verify.small import FILES, INDEX, RANKS

UP = "model.layers.0.mlp.up_proj.weight"


def without_manifest(folder: Path) -> Path:
    """The folder as other programs write it: with no hashes."""
    (folder / "manifest.json").unlink(missing_ok=True)
    return folder


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def tensors(file: str, make: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change the tensors of a safetensors file, whose manifest is gone."""

    def change(folder: Path) -> None:
        found = {name: one.copy() for name, one in load_file(without_manifest(folder) / file).items()}
        make(found)
        save_file(found, folder / file, {"format": "pt"})

    return change


def flip(file: str, from_end: int, with_hashes: bool = False) -> Callable[[Path], None]:
    """Flip a bit of a file."""

    def change(folder: Path) -> None:
        data = bytearray((folder / file).read_bytes())
        data[-from_end] ^= 16
        (folder / file).write_bytes(data)
        with_hashes or without_manifest(folder)

    return change


def cut(file: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (without_manifest(folder) / file).read_bytes()
        (folder / file).write_bytes(data[: 2 * len(data) // 3])

    return change


def zero_half(file: str, with_hashes: bool = True) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (folder / file).read_bytes()
        (folder / file).write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        with_hashes or without_manifest(folder)

    return change


def lost(file: str) -> Callable[[Path], None]:
    return lambda folder: (without_manifest(folder) / file).unlink()


def over(source: str, target: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copy(without_manifest(folder) / source, folder / target)


def settings(file: str, **changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(without_manifest(folder) / file, **changes)


def lost_rows(found: dict[str, Any]) -> None:
    for tensor in found.values():
        tensor[: (len(tensor) + 1) // 2] = 0


def cut_rows(found: dict[str, Any]) -> None:
    for name, tensor in found.items():
        found[name] = np.ascontiguousarray(tensor[: (len(tensor) + 1) // 2])


def map(folder: Path, file: str, make: Callable[[dict[str, str]], Any]) -> None:
    content = json.loads((without_manifest(folder) / file).read_text())
    make(content["weight_map"])
    (folder / file).write_text(json.dumps(content))


def set(name: str, place: Any, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda found: found[name].__setitem__(place, value)


def old_index(folder: Path) -> None:
    (without_manifest(folder) / INDEX).write_text(json.dumps({"weight_map": {"a": FILES[0]}}))


def tied(folder: Path) -> None:
    edit(without_manifest(folder) / "config.json", tie_word_embeddings=True)


def with_counts(folder: Path) -> None:
    """A buffer of whole numbers in the file of the first rank."""
    first_rank(folder, lambda t: t.update({"model.counts": np.ones(3, np.int64)}))


def with_nan(folder: Path) -> None:
    first_rank(folder, lambda t: t[UP].__setitem__((3, 3), np.nan))


def first_rank(folder: Path, make: Callable[[dict[str, Any]], Any]) -> None:
    path = without_manifest(folder) / RANKS[0]
    with safe_open(path, "np") as file:
        about = file.metadata()
    found = load_file(path)
    make(found)
    begins = json.loads(about["DCP_SHARDING_INFO"]) | {"model.counts": {"saved_offsets": [0]}}
    save_file(found, path, about | {"DCP_SHARDING_INFO": json.dumps(begins)})


def of_another(folder: Path) -> None:
    (without_manifest(folder) / "base.json").write_text(json.dumps({"model": "x", "content_hash": "0" * 32}))


def cut_trainer(folder: Path) -> None:
    (without_manifest(folder) / "state" / "trainer.json").write_text("{")


def pickled(folder: Path, file: str, make: Callable[[dict[str, Any]], Any]) -> None:
    import torch

    found = torch.load(without_manifest(folder) / file)
    make(found)
    torch.save(found, folder / file)


def gguf(name: str, make: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change the numbers of a tensor where they lie in model.gguf."""

    def change(folder: Path) -> None:
        from outlive.checkpoint.formats.gguf import open_gguf

        path = without_manifest(folder) / "model.gguf"
        piece = open_gguf(path).tensors[name].pieces[0]  # type: ignore[attr-defined]
        shape = tuple(end - begin for begin, end in piece.box)
        numbers = np.memmap(path, np.float32, "r+", piece.offset, shape)
        make(numbers)
        numbers.flush()

    return change


def gguf_text(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Change a text of the header for one of the same length."""

    def change(folder: Path) -> None:
        path = without_manifest(folder) / "model.gguf"
        data = path.read_bytes()
        assert len(old) == len(new)
        assert old in data
        path.write_bytes(data.replace(old, new, 1))

    return change
