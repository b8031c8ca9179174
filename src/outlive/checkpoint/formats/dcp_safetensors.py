"""The variant of torch.distributed.checkpoint in safetensors files: each rank's pieces in files of its own.

The metadata of each file says where its pieces begin (DCP_SHARDING_INFO). The whole shape is written nowhere: a piece
that is missing at the end of a tensor is only found by comparing with a config. Seen on torch 2.13, version 1.0.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from outlive.checkpoint.formats.inside import file_inside
from outlive.checkpoint.formats.pieces import fault, whole_of
from outlive.checkpoint.formats.safetensors import Entry, Header, read_header
from outlive.checkpoint.formats.strided import checked_shape
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.stored import File, Stored
from outlive.checkpoint.tensors.tensor import Box, Tensor
from outlive.run.errors import InputError
from outlive.run.files import disk_error

SHARDING = "DCP_SHARDING_INFO"
_FILE = re.compile(r"shard-(\d{5})-model-(\d{5})-of-(\d{5})\.safetensors")
_COPY = "use another checkpoint, or copy this one again from where it was made"


def shards_of(folder: Path) -> list[str]:
    """The names of the files of pieces in a folder, or in `sharded/` of one that was consolidated; [] for none."""
    try:
        names = sorted(path.name for path in folder.iterdir() if _FILE.fullmatch(path.name))
        if not names and (folder / "sharded").is_dir():
            inner = sorted(path.name for path in (folder / "sharded").iterdir() if _FILE.fullmatch(path.name))
            names = [f"sharded/{name}" for name in inner]
    except FileNotFoundError:
        raise InputError("the folder is missing", where=str(folder), fix="check that the path is right") from None
    except NotADirectoryError:
        raise InputError("this is no folder", where=str(folder), fix="give the folder of the checkpoint") from None
    except OSError as error:
        raise disk_error(error, folder, "read") from error
    return names


def open_shards(folder: Path, names: list[str]) -> Model:
    """The tensors of these files. InputError where pieces overlap or leave a hole, and where a file is missing."""
    _check_names(folder, names)
    pieces: dict[str, list[tuple[Box, Tensor]]] = {}
    for name in names:
        file = File(file_inside(folder, name))
        header = read_header(file)
        offsets = _offsets(header, file)
        for tensor, entry in header.entries.items():
            box = _box(offsets.get(tensor), entry, tensor, file)
            stored = Stored.in_file(entry.dtype, entry.shape, file, header.data_start + entry.begin)
            pieces.setdefault(tensor, []).append((box, stored))
    tensors = {name: _whole(name, parts, folder) for name, parts in pieces.items()}
    about: dict[str, Any] = {"items": {}, "paths": {}, "version": None, "plans": None, "places": {}}
    return Model(folder, "dcp", tensors, {}, about)


def _check_names(folder: Path, names: list[str]) -> None:
    """Each rank wrote the same set of files, unless it had no piece for one: the first ranks have them all."""
    found = [match for name in names if (match := _FILE.search(name)) is not None]
    ranks = sorted({int(match[1]) for match in found})
    totals = {int(match[3]) for match in found}
    if len(totals) > 1:
        raise InputError("files of two different saves lie in the folder", where=str(folder), fix=_COPY)
    if absent := sorted(set(range(1, min(totals.pop(), len(names) + 1) + 1)) - {int(match[2]) for match in found}):
        raise InputError(f"no file of number {absent[0]} is there", where=str(folder), fix=_COPY)
    missing = sorted(set(range(1, ranks[-1] + 1)) - set(ranks))
    if missing:
        raise InputError(f"the files of rank {missing[0] - 1} are missing", where=str(folder), fix=_COPY)


def _offsets(header: Header, file: File) -> dict[str, Any]:
    try:
        offsets = json.loads(header.metadata.get(SHARDING, "{}"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{SHARDING} is no JSON: {str(error)[:200]}", where=str(file.path), fix=_COPY) from None
    if not isinstance(offsets, dict):
        raise InputError(f"{SHARDING} is no JSON object", where=str(file.path), fix=_COPY)
    return offsets


def _box(saved: Any, entry: Entry, name: str, file: File) -> Box:
    begins = saved.get("saved_offsets") if isinstance(saved, dict) else None
    if begins is None:
        raise InputError(f"{SHARDING} does not say where {name[:200]} begins", where=str(file.path), fix=_COPY)
    begins = checked_shape(begins, name[:200], str(file.path))
    if len(begins) != len(entry.shape):
        raise InputError(f"the place of {name[:200]} has another number of axes", where=str(file.path), fix=_COPY)
    return tuple((begin, begin + size) for begin, size in zip(begins, entry.shape, strict=True))


def _whole(name: str, parts: list[tuple[Box, Tensor]], folder: Path) -> Tensor:
    first = parts[0][1]
    for box, part in parts:
        if part.dtype != first.dtype or len(box) != len(first.shape):
            raise InputError(f"pieces of {name[:200]} are of different kinds", where=str(folder), fix=_COPY)
    shape = tuple(max(box[axis][1] for box, _ in parts) for axis in range(len(first.shape)))
    if (what := fault(checked_shape(shape, name[:200], str(folder)), [box for box, _ in parts])) is not None:
        raise InputError(f"{name[:200]} is not whole: {what}", where=str(folder), fix=_COPY)
    return whole_of(first.dtype, shape, parts)
