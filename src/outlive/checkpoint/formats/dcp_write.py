"""Write checkpoints that torch.distributed.checkpoint loads: version 1.0.0 of its format, seen on torch 2.13."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from outlive.checkpoint.arrays import chunks, dtype_of
from outlive.checkpoint.building import Building
from outlive.checkpoint.formats.pickle_write import Called, Made, Named, Pairs, pickled
from outlive.checkpoint.formats.torch_archive import MOST, OVERHEAD, write_tensor, write_value
from outlive.checkpoint.remedies import OTHER_FORMAT
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.tensor import Box, Tensor, blocks_of, extent
from outlive.checkpoint.tensors.views import Given, Part
from outlive.run.errors import InputError, WorkError
from outlive.run.files import HashedFile

VERSION = "1.0.0"
MAX_PIECE_BYTES = 1 << 28  # torch reads a piece as a whole, whatever it needs of it
MAX_FILE_BYTES = 5 * 10**9
_METADATA = "torch.distributed.checkpoint.metadata"


@dataclass(frozen=True)
class _Piece:
    """A box of a tensor, or an item that is none (box None)."""

    name: str
    box: Box | None
    num_bytes: int


def write_dcp(
    building: Building,
    tensors: Mapping[str, Any],
    *,
    folder: str = "",
    items: Mapping[str, Any] | None = None,
    paths: Mapping[str, tuple[str | int, ...]] | None = None,
    dtype: str | None = None,
    finite: Collection[str] = (),
    max_piece_bytes: int = MAX_PIECE_BYTES,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Write .metadata and the files of pieces into a folder of the checkpoint that is being built.

    tensors: of ours or of numpy, by flat name ("model.norm.weight"). items: plain values by flat name (numbers, texts,
    lists: what an optimizer keeps beside its tensors). paths: of a name, the keys that lead to it in the nested state
    dict; by default the name is the only key. dtype: bf16, fp16 or fp32, for the floating ones. The tensors named in
    `finite` have to be finite as they are written. A tensor is read a block at a time. Raises InputError for a name
    that is both a tensor and an item, WorkError where the disk refuses.
    """
    items, prefix = items or {}, f"{folder}/" if folder else ""
    if both := sorted(set(tensors) & set(items)):
        raise InputError(f"{both[0]} is both a tensor and an item", fix=OTHER_FORMAT)
    ours = {name: Given(tensor) if isinstance(tensor, np.ndarray) else tensor for name, tensor in tensors.items()}
    pieces = [_Piece(name, None, len(pickled(value))) for name, value in items.items()]
    for name, tensor in ours.items():
        pieces += _pieces(name, tensor, dtype_of(tensor, dtype), min(max_piece_bytes, MOST))
    places = []
    for number, group in enumerate(_files(pieces, max_file_bytes)):
        name = f"__0_{number}.distcp"
        begins = building.kept(f"{prefix}{name}")
        if begins is None:
            begins = []
            with building.stream(f"{prefix}{name}", sum(_size(piece) for piece in group), begins) as file:
                for piece in group:
                    begins.append(file.size)
                    _write(file, piece, ours, items, dtype, finite)
                begins.append(file.size)
        lengths = [end - begin for begin, end in pairwise(begins)]
        places += [(piece, name, begin, size) for piece, begin, size in zip(group, begins, lengths, strict=False)]
    shapes = {name: (dtype_of(tensor, dtype), tuple(tensor.shape)) for name, tensor in ours.items()}
    content = pickled(_metadata(shapes, list(items), places, paths or {}))
    with building.stream(f"{prefix}.metadata", len(content)) as file:
        file.write(content)


def _pieces(name: str, tensor: Tensor, dtype: str, most: int) -> list[_Piece]:
    width = DTYPES[dtype].width
    boxes = list(blocks_of(tensor.whole, width, most)) or [tensor.whole]  # one of nothing, for an empty tensor
    return [_Piece(name, box, width * int(np.prod(extent(box), dtype=np.int64))) for box in boxes]


def _size(piece: _Piece) -> int:
    return piece.num_bytes + OVERHEAD


def _files(pieces: Sequence[_Piece], most: int) -> Iterator[list[_Piece]]:
    """The pieces of each file; at least one file."""
    group: list[_Piece] = []
    used = 0
    for piece in pieces:
        if group and used + _size(piece) > most:
            yield group
            group, used = [], 0
        group.append(piece)
        used += _size(piece)
    yield group


def _write(
    file: HashedFile,
    piece: _Piece,
    tensors: Mapping[str, Tensor],
    items: Mapping[str, Any],
    dtype: str | None,
    finite: Collection[str],
) -> int:
    if piece.box is None:
        return write_value(file, items[piece.name])
    part = Part(tensors[piece.name], piece.box)

    def data() -> Iterator[memoryview]:
        for block, is_finite in chunks(part, dtype, check=piece.name in finite):
            if not is_finite:
                raise WorkError(
                    f"{piece.name} holds NaN or infinity as {dtype_of(part, dtype)}: nothing is written",
                    fix="write it as bf16 or fp32, which hold larger numbers than fp16",
                )
            yield block

    return write_tensor(file, dtype_of(part, dtype), part.shape, data())


def _metadata(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    items: Sequence[str],
    places: Sequence[tuple[_Piece, str, int, int]],
    paths: Mapping[str, tuple[str | int, ...]],
) -> Made:
    entries: dict[str, Any] = {name: _made("BytesStorageMetadata") for name in items}
    boxes: dict[str, list[Box]] = {}
    storage = []
    for piece, file, offset, length in places:
        own = boxes.setdefault(piece.name, [])
        corner = None if piece.box is None else _torch_size(begin for begin, _ in piece.box)
        index = None if piece.box is None else len(own)
        own += [] if piece.box is None else [piece.box]
        info = {"relative_path": file, "offset": offset, "length": length}
        kind = Named("torch.distributed.checkpoint.filesystem", "_StorageInfo")
        storage.append(
            (_made("MetadataIndex", {"fqn": piece.name, "offset": corner, "index": index}), Made(kind, info))
        )
    for name, (dtype, shape) in tensors.items():
        state = {"properties": _properties(dtype), "size": _torch_size(shape), "chunks": list(map(_chunk, boxes[name]))}
        entries[name] = _made("TensorStorageMetadata", state)
    about = {
        "state_dict_metadata": entries,
        "planner_data": {name: tuple(paths.get(name, (name,))) for name in entries},
        "storage_data": Pairs(storage),
        "storage_meta": _made("StorageMeta", {"checkpoint_id": None, "save_id": None, "load_id": None, "modules": []}),
        "version": VERSION,
    }
    return _made("Metadata", about)


def _properties(dtype: str) -> Made:
    layout = Called(Named("torch.serialization", "_get_layout"), ("torch.strided",))
    contiguous = Called(Named(_METADATA, "_MEM_FORMAT_ENCODING"), (0,))
    return _made("TensorProperties", (Named("torch", dtype), layout, False, contiguous, False))


def _chunk(box: Box) -> Made:
    offsets, sizes = _torch_size(begin for begin, _ in box), _torch_size(extent(box))
    return _made("ChunkStorageMetadata", {"offsets": offsets, "sizes": sizes})


def _torch_size(numbers: Iterable[int]) -> Called:
    return Called(Named("torch", "Size"), (tuple(numbers),))


def _made(kind: str, state: Any = None) -> Made:
    return Made(Named(_METADATA, kind), state)
