"""Hugging Face model folders: config.json, and safetensors in one file or in several with an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from outlive.checkpoint.formats.inside import regular_file
from outlive.checkpoint.formats.safetensors import open_tensors
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError
from outlive.run.files import disk_error

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
CONFIG = "config.json"
MAX_JSON = 200_000_000  # bytes of a config or an index


class Index(NamedTuple):
    """weight_map: tensor → file of the folder. metadata: what the index says beside it."""

    weight_map: Mapping[str, str]
    metadata: Mapping[str, Any]


def open_model(folder: Path) -> Model:
    """The model of a folder. Raises InputError where it is none, and where tensors that the index names are not there,
    or others are."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    index = read_index(folder)
    if index is None:
        if not (folder / SINGLE).is_file():
            raise InputError(
                f"there is neither {SINGLE} nor {INDEX}",
                where=str(folder),
                fix="name a folder that transformers' save_pretrained wrote",
            )
        return Model(folder, "huggingface", open_tensors(folder / SINGLE), config)
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(index.weight_map.values())):
        found = open_tensors(folder / file)
        named = {name for name, place in index.weight_map.items() if place == file}
        if differ := sorted(named ^ set(found)):
            word = "has no" if differ[0] in named else "has, and the index does not name it there, the"
            raise InputError(
                f"the index and its files do not belong together: {file} {word} tensor {differ[0]}",
                where=str(folder / INDEX),
                fix="copy the folder again from where it is whole; delete an index that an older save left",
            )
        tensors |= found
    return Model(folder, "huggingface", tensors, config, dict(index.metadata))


def read_index(folder: Path, name: str = INDEX) -> Index | None:
    """The index of a folder; None where it has none. Raises InputError for one that is damaged, or names files that
    are not in the folder itself."""
    path = folder / name
    if not path.exists():
        return None
    content = read_json(path)
    places = content.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InputError("the index has no weight_map", where=str(path), fix="copy it again from where it is whole")
    for tensor, file in places.items():
        if not is_plain_name(file):
            raise InputError(
                f"the index puts {tensor[:200]!r} into {str(file)[:200]!r}, which is no file of this folder",
                where=str(path),
                fix="do not use this folder unless you know who made it",
            )
    metadata = content.get("metadata")
    return Index(places, metadata if isinstance(metadata, dict) else {})


def is_plain_name(name: Any) -> bool:
    """Whether a text names a file of a folder itself: no path that leads out of it, or further in."""
    return (
        isinstance(name, str) and name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"} and len(name) < 256
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises InputError where there is another value, or none that can be read."""
    try:
        if regular_file(path).stat().st_size > MAX_JSON:  # and no pipe, which would be waited for
            raise InputError(f"it has more than {MAX_JSON:,} bytes", where=str(path), fix="is this the right file?")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise disk_error(error, path, "read") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"it is no JSON: {str(error)[:200]}", where=str(path), fix="copy it again from where it is whole"
        ) from None
    if not isinstance(content, dict):
        raise InputError("it holds no JSON object", where=str(path), fix="copy it again from where it is whole")
    return content
