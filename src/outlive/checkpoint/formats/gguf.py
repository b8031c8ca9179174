"""GGUF files, whole or split: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

Quantised tensors are float32 here, computed from the blocks that the rows asked for lie in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outlive.checkpoint.formats.gguf_header import Header, damaged, read_header
from outlive.checkpoint.formats.gguf_types import ELEMENTS, ElementType
from outlive.checkpoint.formats.inside import regular_file
from outlive.checkpoint.model import Model
from outlive.checkpoint.remedies import COPY_AGAIN
from outlive.checkpoint.tensors.dtypes import Array
from outlive.checkpoint.tensors.stored import File, Stored
from outlive.checkpoint.tensors.tensor import Box, Tensor, read_row_major
from outlive.run.errors import InputError

_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_ELEMENTS_AT_ONCE = 1 << 20  # what is computed at once: some 4 MB, and the same a few times over on the way


class Quantised(Tensor):
    """float32: what the blocks of a quantised tensor stand for, as the package gguf computes it.

    `code` and `element`: the type of the blocks, by number and by name and size. `read` raises InputError where the
    package is missing, or is too old for this type.
    """

    dtype = "float32"

    def __init__(self, code: int, shape: tuple[int, ...], file: File, offset: int) -> None:
        self.code, self.shape, self.file, self.offset = code, shape, file, offset

    @property
    def element(self) -> ElementType:
        """Name and sizes of the blocks."""
        return ELEMENTS[self.code]

    def read(self, box: Box) -> Array:
        return read_row_major(self.shape, box, self.dtype, self._flat)

    def _flat(self, begin: int, end: int) -> Array:
        out = np.empty(end - begin, np.float32)
        block = self.element.block
        step = _ELEMENTS_AT_ONCE // block * block
        for first in range(begin // block * block, end, step):
            last = min(first + step, -(-end // block) * block)
            values = self._blocks(first // block, last // block)
            low, high = max(first, begin), min(last, end)
            out[low - begin : high - begin] = values[low - first : high - first]
        return out

    def _blocks(self, first: int, last: int) -> Array:
        width = self.element.num_bytes
        data = self.file.read(self.offset + first * width, (last - first) * width)
        try:
            from gguf import GGMLQuantizationType
            from gguf.quants import dequantize
        except ImportError as error:
            fix = "pip install 'outlive[train]'"
            raise InputError("reading quantised tensors needs the package gguf", fix=fix) from error
        try:
            with np.errstate(all="ignore"):  # damaged blocks make NaN; whoever reads them looks for it
                values: Array = dequantize(data.reshape(1, -1), GGMLQuantizationType(self.code))
        except (NotImplementedError, ValueError, KeyError) as error:
            what = f"tensors of the type {self.element.name} can't be read by the package gguf that is installed"
            raise InputError(what, where=str(self.file.path), fix="pip install --upgrade gguf") from error
        return values.reshape(-1)


def open_gguf(path: Path) -> Model:
    """A GGUF file, a part of a split one (all parts of it are opened), or the folder of one of these.

    Tensors by their GGUF names; metadata: the values of the header (`gguf_header.Header.kv`). Raises InputError where
    a part is missing, damaged, or of another file.
    """
    path = Path(path)
    first = _in_folder(path) if path.is_dir() else regular_file(path)
    files = [File(part) for part in _parts(first)]
    headers = [read_header(file) for file in files]
    _check_split(files, headers)
    tensors: dict[str, Tensor] = {}
    for file, header in zip(files, headers, strict=True):
        for name, tensor in tensors_of(file, header).items():
            if name in tensors:
                raise damaged(file, f"it has the tensor {name!r}, as a file before it")
            tensors[name] = tensor
    metadata = {key: value for key, value in headers[0].kv.items() if not key.startswith("split.")}
    return Model(first.parent, "gguf", tensors, metadata=metadata, files=tuple(file.path for file in files))


def tensors_of(file: File, header: Header) -> dict[str, Tensor]:
    """The tensors of one file by name; nothing of them is read yet."""
    found: dict[str, Tensor] = {}
    for name, info in header.tensors.items():
        dtype = ELEMENTS[info.code].dtype
        if dtype is None:
            found[name] = Quantised(info.code, info.shape, file, info.offset)
        else:
            found[name] = Stored.in_file(dtype, info.shape, file, info.offset)
    return found


def _in_folder(folder: Path) -> Path:
    found = sorted(path for path in folder.glob("*.gguf") if path.is_file())
    whole = [path for path in found if (split := _SPLIT.fullmatch(path.name)) is None or int(split[2]) == 1]
    if len(whole) == 1:
        return whole[0]
    names = ", ".join(path.name for path in (whole or found)[:5])
    what = f"the folder has several GGUF files: {names}" if whole else "the folder has no (first) GGUF file"
    raise InputError(what, where=str(folder), fix="give the path of the file")


def _parts(path: Path) -> list[Path]:
    """All files of a split one, in their order."""
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    stem, number = split[1], int(split[3])
    if not 1 <= int(split[2]) <= number:
        raise InputError(
            f"the file's name says that it is part {split[2]} of {number}", where=str(path), fix=COPY_AGAIN
        )
    return [regular_file(path.with_name(f"{stem}-{part:05d}-of-{number:05d}.gguf")) for part in range(1, number + 1)]


def _check_split(files: list[File], headers: list[Header]) -> None:
    """Whether the headers of a split file say what the names do."""
    if len(files) == 1 and "split.count" not in headers[0].kv:
        return
    stated = [_numbers(header.kv) for header in headers]
    for place, (file, (part, number, _)) in enumerate(zip(files, stated, strict=True)):
        if (part, number) != (place, len(files)):
            what = f"the file is part {part} of {number} by its header, and {place} of {len(files)} by its name"
            fix = "give the files their own names back, or copy them again"
            raise InputError(f"{what} (from 0 on)", where=str(file.path), fix=fix)
    total = sum(len(header.tensors) for header in headers)
    for file, (_, _, together) in zip(files, stated, strict=True):
        if together not in (None, total):
            what = f"the parts should have {together} tensors together, and have {total}"
            raise InputError(what, where=str(file.path), fix="use parts of one and the same file")


def _numbers(kv: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    found = [kv.get(key) for key in ("split.no", "split.count", "split.tensors.count")]
    numbers = [value if isinstance(value, int) else None for value in found]
    return numbers[0], numbers[1], numbers[2]
