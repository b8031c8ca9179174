"""Files of torch.save (.pt, .bin, .pth), read without torch and without running code that is in them.

Format: https://docs.pytorch.org/docs/stable/notes/serialization.html. A zip archive with a pickle, data.pkl, and the
numbers of each storage; before torch 1.6 five pickles in a row, and the storages behind them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from outlive.checkpoint.formats.huggingface import CONFIG, read_index, read_json
from outlive.checkpoint.formats.inside import file_inside, regular_file
from outlive.checkpoint.formats.pickle_names import STORAGES, Global, Storage
from outlive.checkpoint.formats.pickle_opcodes import unpickle
from outlive.checkpoint.formats.zip_members import COPY, ZipMembers
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.stored import File
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

INDEX = "pytorch_model.bin.index.json"
_MOST_PICKLE = 1 << 28  # bytes
_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the old format
_MOST_NAME = 1 << 12
_BUFFER = 1 << 16


@dataclass(frozen=True)
class Pickled:
    """What a file of torch.save holds. Tensors in it are ours; objects are Records, sets lists."""

    value: Any


class FileView(io.RawIOBase):
    """The bytes begin … end - 1 of a file as a stream."""

    def __init__(self, file: File, begin: int, end: int) -> None:
        self._file, self._begin, self._end, self._at = file, begin, end, begin

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at - self._begin

    def readinto(self, buffer: Any) -> int:
        number = min(len(buffer), self._end - self._at)
        buffer[:number] = self._file.read(self._at, number).data
        self._at += number
        return number


def open_pickled(path: Path) -> Pickled:
    """The content of a file of torch.save. InputError where it is damaged or asks for objects that may run code."""
    return Pickled(pickled_in(File(regular_file(Path(path)))))


def pickled_in(file: File, begin: int = 0, length: int | None = None) -> Any:
    """The value that torch.save wrote into these bytes of a file; errors as of `open_pickled`."""
    length = file.size - begin if length is None else length
    if begin == 0 and length >= 2 and file.read(0, 2).tobytes() in (b"\x80\x02", b"\x80\x03", b"\x80\x04"):
        return _old(file, length)
    archive = ZipMembers(file, begin, length)
    return unpickled(archive)


def unpickled(archive: ZipMembers) -> Any:
    """The value of an archive of torch.save."""
    file = archive.file
    found = [name for name in archive.members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(found) != 1:
        _fail("the archive holds no data.pkl, as torch.save writes one", file)
    prefix = found[0].removesuffix("data.pkl")
    order = f"{prefix}byteorder"
    if order in archive.members and archive.content(order, 16) != b"little":
        _fail("the numbers are stored with the big end first", file, "save it again on a machine of today")
    data = archive.content(found[0], _MOST_PICKLE)

    def persistent(name: Any) -> Storage:
        dtype, key, elements = _storage(name)
        start, size = archive.place(f"{prefix}data/{key}")
        if size != elements * (DTYPES[dtype].width if dtype else 1):
            _fail(f"the storage {key[:40]} has {size:,} bytes, which does not fit its {elements:,} numbers", file)
        return Storage(dtype, elements, file, start)

    return unpickle(io.BytesIO(data), len(data), str(file.path), persistent)


def _storage(name: Any) -> tuple[str | None, str, int]:
    """dtype, key and number of elements of a storage, from its persistent id."""
    if not isinstance(name, tuple) or not 5 <= len(name) <= 6 or name[0] != "storage":
        raise TypeError("a reference that is none to a storage")
    kind, key, elements = name[1], name[2], name[4]
    if not isinstance(kind, Global) or not isinstance(key, str) or type(elements) is not int or elements < 0:
        raise TypeError("a storage of a kind that is not known")
    if len(name) == 6 and name[5] is not None:
        raise TypeError("a view of a storage, as only very old versions of torch wrote them")
    return STORAGES[kind.name], key, elements


def _old(file: File, length: int) -> Any:
    """The format before torch 1.6. The pickles are read twice: where a storage lies stands behind them all."""
    places: dict[str, int] = {}
    sizes: dict[str, int] = {}

    def persistent(name: Any) -> Storage:
        dtype, key, elements = _storage(name)
        size = elements * (DTYPES[dtype].width if dtype else 1)
        if sizes.setdefault(key, size) != size:
            raise ValueError("a storage of two sizes")
        return Storage(dtype, elements, file, places.get(key, 0))

    def read(end: int) -> tuple[Any, Any, int]:
        end = min(end, _MOST_PICKLE)
        stream = io.BufferedReader(FileView(file, 0, end), _BUFFER)
        where = str(file.path)
        magic, _, about = (unpickle(stream, end, where) for _ in range(3))
        if magic != _MAGIC or not isinstance(about, dict) or about.get("little_endian") is not True:
            _fail("it is a pickle, but none of torch.save's", file)
        value = unpickle(stream, end, where, persistent)
        return value, unpickle(stream, end, where), stream.tell()

    _, keys, at = read(length)
    pickles_end = at
    if not isinstance(keys, list) or len(keys) != len(sizes):
        _fail("its list of storages does not fit its tensors", file)
    for key in keys:
        if not isinstance(key, str) or key not in sizes or key in places or at + 8 > length:
            _fail("its list of storages does not fit its tensors", file)
        elements = int.from_bytes(file.read(at, 8).tobytes(), "little")
        places[key] = at + 8
        at += 8 + sizes[key]
        if at > length or (elements and sizes[key] % elements):
            _fail("it ends before its tensors do", file)
    return read(pickles_end)[0]


def open_state_dict(path: Path) -> Model:
    """A state dict: a file of torch.save, or a folder with pytorch_model.bin or the index of several.

    Nested dicts and lists are flattened with dots; what is no tensor goes into the metadata. Errors as of
    `open_pickled`; also where the index names what is not there.
    """
    path = Path(path)
    if not path.is_dir():
        value = open_pickled(path).value
        tensors, others = _flat(value, path)
        return Model(path.parent, "pt", tensors, {}, others, value, (path,))
    config = read_json(path / CONFIG) if (path / CONFIG).exists() else {}
    index = read_index(path, INDEX)
    if index is None:
        whole = open_state_dict(path / "pytorch_model.bin")
        return Model(path, "pt", whole.tensors, config, whole.metadata)
    tensors, others = {}, {}
    places = index.weight_map
    for name in sorted(set(places.values())):
        found, rest = _flat(open_pickled(file_inside(path, name)).value, path / name)
        if twice := found.keys() & tensors.keys():
            raise InputError(f"{min(twice)} is in two files", where=str(path / name), fix=COPY)
        tensors |= found
        others |= rest
    for tensor, file in places.items():
        if tensor not in tensors:
            raise InputError(f"{tensor} is not in {file}, where the index has it", where=str(path / INDEX), fix=COPY)
    return Model(path, "pt", tensors, config, others)


def _flat(value: Any, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not isinstance(value, dict):
        raise InputError("it holds no state dict", where=str(path), fix="save model.state_dict()")
    tensors: dict[str, Tensor] = {}
    others: dict[str, Any] = {}
    for name, item in _entries(value, "", str(path)):
        if name in tensors or name in others:
            raise InputError(f"{name[:200]} is there twice", where=str(path), fix="save model.state_dict()")
        (tensors if isinstance(item, Tensor) else others)[name] = item
    return tensors, others


def _entries(value: Any, prefix: str, where: str) -> Iterator[tuple[str, Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        name = f"{prefix}{key}" if isinstance(key, (str, int)) else f"{prefix}{type(key).__name__}"
        if len(name) > _MOST_NAME:
            raise InputError(f"a name is too long: {name[:200]}…", where=where, fix="save model.state_dict()")
        if isinstance(item, (dict, list)) and item:
            yield from _entries(item, f"{name}.", where)
        else:
            yield name, item


def _fail(what: str, file: File, fix: str = COPY) -> NoReturn:
    raise InputError(what, where=str(file.path), fix=fix)
