"""Checkpoints of torch.distributed.checkpoint: a folder with .metadata and files of pieces, read without torch.

.metadata is a pickle that says of each tensor which pieces it has, and in which bytes of which file; these are what
torch.save wrote of that piece. Seen on torch 2.13, version 1.0.0 of the format.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from outlive.checkpoint.formats.dcp_safetensors import open_shards, shards_of
from outlive.checkpoint.formats.inside import file_inside, regular_file
from outlive.checkpoint.formats.pickle_names import Record
from outlive.checkpoint.formats.pickle_opcodes import unpickle
from outlive.checkpoint.formats.pickled import FileView, pickled_in
from outlive.checkpoint.formats.pieces import fault, whole_of
from outlive.checkpoint.formats.strided import checked_shape
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.stored import File
from outlive.checkpoint.tensors.tensor import Box, Tensor, extent
from outlive.run.errors import InputError

METADATA = ".metadata"
_MOST = 1 << 30  # bytes of .metadata
_MOST_OPERATIONS = 1 << 26  # enough for three million pieces
_COPY = "use another checkpoint, or copy this one again from where it was made"
_TYPES = "torch.distributed.checkpoint.metadata."
_STORAGE = "torch.distributed.checkpoint.filesystem._StorageInfo"


@dataclass(frozen=True)
class Place:
    """Where an item lies: these bytes of a file of the folder."""

    file: File
    offset: int
    length: int


class Items(Mapping[str, Any]):
    """The items that are no tensors, each read when it is asked for. Errors as of `open_pickled`."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self.places = dict(places)

    def __getitem__(self, name: str) -> Any:
        place = self.places[name]
        return pickled_in(place.file, place.offset, place.length)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def open_dcp(folder: Path) -> Model:
    """A checkpoint of torch.distributed.checkpoint, or of its variant in safetensors files.

    Tensors have the names of the format, such as "model.embed_tokens.weight". metadata: `items`, a mapping of what is
    no tensor (step, betas …); `paths`, of each name the keys that lead to it in the nested state dict; `version`;
    `places`, of each name where its pieces lie; `plans`, what Megatron adds.
    Raises InputError where a tensor's pieces are not all there, overlap, or are not what .metadata says.
    """
    folder = Path(folder)
    if not (folder / METADATA).exists() and (shards := shards_of(folder)):
        return open_shards(folder, shards)
    path = regular_file(folder / METADATA)
    reader = _Reader(folder, read_metadata(path))
    planned = {name: reader.plan(name, entry) for name, entry in reader.tensors.items()}
    items = Items({name: reader.place(name, None) for name in reader.items})
    reader.check_places()  # before any of them is read
    tensors = {name: _tensor(name, *plan) for name, plan in planned.items()}
    paths = reader.top.get("planner_data")
    about = {
        "items": items,
        "paths": paths if isinstance(paths, dict) else {},
        "version": reader.top.get("version"),
        "plans": reader.top.get("all_local_plans"),
        "places": reader.by_name(),
    }
    return Model(folder, "dcp", tensors, {}, about)


def read_metadata(path: Path) -> Record:
    """What a .metadata file holds. Raises InputError where it is damaged; no code in it runs."""
    file = File(path)
    size = file.size
    if size > _MOST:
        raise InputError(f".metadata has {size:,} bytes, which is too much", where=str(path), fix=_COPY)
    value = unpickle(io.BufferedReader(FileView(file, 0, size), 1 << 16), size, str(path), most=_MOST_OPERATIONS)
    if not _is(value, f"{_TYPES}Metadata"):
        raise InputError("it is no .metadata of torch.distributed.checkpoint", where=str(path), fix=_COPY)
    record: Record = value
    return record


class _Reader:
    """Finds the pieces of the tensors that `top`, the Metadata, names."""

    def __init__(self, folder: Path, top: Record) -> None:
        self.folder, self.top, self.where = folder, top, str(folder / METADATA)
        self.files: dict[str, File] = {}
        self.used: dict[str, list[tuple[int, int, str]]] = {}
        entries, storage = top.get("state_dict_metadata"), top.get("storage_data")
        if not isinstance(entries, dict) or not isinstance(storage, dict):
            self._fail("it lists no tensors, or not where they are")
        self.tensors: dict[str, Record] = {}
        self.items: list[str] = []
        for name, entry in entries.items():
            if isinstance(name, str) and _is(entry, f"{_TYPES}TensorStorageMetadata"):
                self.tensors[name] = entry
            elif isinstance(name, str) and _is(entry, f"{_TYPES}BytesStorageMetadata"):
                self.items.append(name)
            else:
                self._fail("an entry is neither a tensor nor an item")
        self.storage = dict(self._places(storage))

    def _places(self, storage: dict[Any, Any]) -> Iterator[tuple[tuple[str, tuple[int, ...] | None], Record]]:
        for index, info in storage.items():
            name = index.get("fqn") if _is(index, f"{_TYPES}MetadataIndex") else None
            if not isinstance(name, str) or not _is(info, _STORAGE):
                self._fail("a place is no place")
            offset = index.get("offset")
            key = None if offset is None else checked_shape(offset, "an offset", self.where)
            yield (name, key), info

    def plan(self, name: str, entry: Record) -> tuple[str, tuple[int, ...], list[tuple[Box, Place]]]:
        """dtype, shape and pieces of a tensor, without those that hold nothing (ranks that had no rows write them)."""
        properties, chunks = entry.get("properties"), entry.get("chunks")
        state = properties.state if isinstance(properties, Record) else None
        dtype = state[0] if isinstance(state, tuple) and state else None
        if isinstance(state, dict):  # as torch before 2.0 wrote it
            dtype = state.get("dtype")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            self._fail(f"{name[:200]} is of the type {dtype[:40] if isinstance(dtype, str) else 'None'}")
        shape = checked_shape(entry.get("size"), name[:200], self.where)
        if not isinstance(chunks, list) or not all(_is(chunk, f"{_TYPES}ChunkStorageMetadata") for chunk in chunks):
            self._fail(f"{name[:200]} has no list of pieces")
        boxes = [self._box(name, chunk, len(shape)) for chunk in chunks]
        if (what := fault(shape, boxes)) is not None:
            self._fail(f"{name[:200]} is not whole: {what}")
        filled = [box for box in boxes if 0 not in extent(box)]
        return dtype, shape, [(box, self.place(name, tuple(begin for begin, _ in box))) for box in filled]

    def _box(self, name: str, chunk: Record, num_axes: int) -> Box:
        offsets = checked_shape(chunk.get("offsets"), name[:200], self.where)
        sizes = checked_shape(chunk.get("sizes"), name[:200], self.where)
        if len(offsets) != num_axes or len(sizes) != num_axes:
            self._fail(f"a piece of {name[:200]} has another number of axes")
        return tuple((offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))

    def place(self, name: str, offset: tuple[int, ...] | None) -> Place:
        """Where a piece or an item lies. InputError where that is no place in a file of the folder."""
        info = self.storage.get((name, offset))
        if info is None:
            self._fail(f"nothing says where {name[:200]}{'' if offset is None else f' from {offset} on'} is")
        if info.get("transform_descriptors"):
            self._fail(f"{name[:200]} is compressed or encrypted by an extension of torch")
        path, begin, length = info.get("relative_path"), info.get("offset"), info.get("length")
        if not isinstance(path, str) or type(begin) is not int or type(length) is not int or begin < 0 or length < 0:
            self._fail(f"the place of {name[:200]} is none")
        if path not in self.files:
            self.files[path] = File(file_inside(self.folder, path))
        file = self.files[path]
        if begin + length > file.size:
            what = f"the file has {file.size:,} bytes, and {name[:200]} reaches to {begin + length:,}"
            raise InputError(what, where=str(file.path), fix=_COPY)
        self.used.setdefault(path, []).append((begin, begin + length, name))
        return Place(file, begin, length)

    def by_name(self) -> dict[str, list[Place]]:
        """The places that were asked for."""
        places: dict[str, list[Place]] = {}
        for path, used in self.used.items():
            for begin, end, name in used:
                places.setdefault(name, []).append(Place(self.files[path], begin, end - begin))
        return places

    def check_places(self) -> None:
        """InputError where two of the places that were asked for share bytes."""
        for path, used in self.used.items():
            for (_, end, one), (begin, _, other) in pairwise(sorted(used)):
                if begin < end:
                    self._fail(f"{one[:200]} and {other[:200]} lie in the same bytes of {path[:200]}")

    def _fail(self, what: str) -> NoReturn:
        raise InputError(f".metadata can't be used: {what}", where=self.where, fix=_COPY)


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, Record) and value.kind == kind


def _tensor(name: str, dtype: str, shape: tuple[int, ...], pieces: list[tuple[Box, Place]]) -> Tensor:
    parts = []
    for box, place in pieces:
        piece = pickled_in(place.file, place.offset, place.length)
        if not isinstance(piece, Tensor) or piece.dtype != dtype or piece.shape != extent(box):
            found = f"{piece.dtype} {piece.shape}" if isinstance(piece, Tensor) else "no tensor"
            what = f"a piece of {name[:200]} is {found}, and .metadata says {dtype} {extent(box)}"
            raise InputError(what, where=str(place.file.path), fix=_COPY)
        parts.append((box, piece))
    return whole_of(dtype, shape, parts)
