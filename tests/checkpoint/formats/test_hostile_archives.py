"""Promise: a damaged or hostile archive is an InputError; a flipped byte is one, or changes one number."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.checkpoint.formats.pickled import open_pickled, open_state_dict
from outlive.checkpoint.formats.torch_archive import write_tensor
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError
from outlive.run.files import hashed_file
from tests.checkpoint.formats.test_hostile_pickles import FLOATS, archive, tensor


def _tensor_file(path: Path) -> bytes:
    with hashed_file(path) as file:
        write_tensor(file, "int32", (3, 4), [memoryview(struct.pack("<12i", *range(12)))])
    return path.read_bytes()


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "no end": lambda data: data.replace(b"PK\x05\x06", b"PK\x05\x07"),
    "local header": lambda data: data.replace(b"PK\x03\x04", b"PK\x03\x05"),
    "name in the local header": lambda data: data.replace(b"archive/data/0", b"archive/data/1", 1),
    "directory": lambda data: data.replace(b"PK\x01\x02", b"PK\x01\x03"),
    "pickle changed": lambda data: data.replace(b"FloatStorage", b"HalfStorage_").replace(b"IntStorage", b"INtStorage"),
    "big end": lambda data: data.replace(b"little", b"bigbig"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_archives(tmp_path: Path, change: str) -> None:
    data = _tensor_file(tmp_path / "x.pt")
    assert isinstance(open_pickled(tmp_path / "x.pt").value, Tensor)
    assert CHANGES[change](data) != data
    (tmp_path / "x.pt").write_bytes(CHANGES[change](data))
    with pytest.raises(InputError):
        open_pickled(tmp_path / "x.pt")


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.pt", tensor(), method=zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="compressed"):
        open_pickled(path)


def _entry_of(data: bytes, name: bytes) -> int:
    at = data.index(b"PK\x01\x02")
    while data[at + 46 : at + 46 + len(name)] != name:
        at = data.index(b"PK\x01\x02", at + 4)
    return at


@pytest.mark.parametrize("what", ["overlap", "same", "outside", "long", "into the directory"])
def test_members_that_lie_in_each_other(tmp_path: Path, what: str) -> None:
    data = bytearray(archive(tmp_path / "x.pt", tensor()).read_bytes())
    at, other = _entry_of(data, b"archive/data/0"), _entry_of(data, b"archive/data.pkl")
    place = {"same": data[other + 42 : other + 46], "outside": struct.pack("<L", len(data)), "overlap": b"\1\0\0\0"}
    data[at + 42 : at + 46] = place.get(what, data[at + 42 : at + 46])
    size = {"long": 1 << 30, "into the directory": 17}.get(what, 16)
    data[at + 20 : at + 28] = struct.pack("<2L", size, size)
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(InputError):
        open_pickled(tmp_path / "x.pt")


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    archive(tmp_path / "x.pt", tensor())
    with zipfile.ZipFile(tmp_path / "x.pt", "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("archive/data/0", b"1" * 16)
    with pytest.raises(InputError, match="two members"):
        open_pickled(tmp_path / "x.pt")


def test_an_archive_of_more_than_4_gib(tmp_path: Path) -> None:
    """zip64, in a file that is mostly a hole."""
    size = (1 << 32) + 16
    content = tensor(shape=(3,), first=(1 << 30) + 1, storage=("storage", FLOATS, "0", "cpu", size // 4))
    with zipfile.ZipFile(tmp_path / "x.pt", "w", allowZip64=True) as file:
        file.writestr("archive/data.pkl", content)
        with file.open(zipfile.ZipInfo("archive/data/0"), "w", force_zip64=True):
            pass
    data = bytearray((tmp_path / "x.pt").read_bytes())
    with zipfile.ZipFile(tmp_path / "x.pt") as file:
        header = file.getinfo("archive/data/0").header_offset
    start = header + 30 + int.from_bytes(data[header + 26 : header + 28], "little")
    start += int.from_bytes(data[header + 28 : header + 30], "little")
    first = data[: data.index(b"PK\x01\x02")]
    wide = struct.pack("<2H3Q", 1, 24, size, size, header)
    most = (1 << 32) - 1
    numbers = (45, 45, 0, 0, 0, 0, 0, most, most, 14, len(wide), 0, 0, 0, 0, most)
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *numbers) + b"archive/data/0" + wide
    at = data.index(b"PK\x01\x02")
    directory = bytes(data[at : at + 46 + 16]) + entry
    begin = start + size
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 2, 2, len(directory), begin)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, begin + len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2, 2, len(directory), (1 << 32) - 1, 0)
    with (tmp_path / "x.pt").open("wb") as file:
        file.write(first)
        file.seek(start + (1 << 32) + 4)
        file.write(struct.pack("<3f", 1, 2, 3) + directory + end64 + locator + end)
    assert open_state_dict(tmp_path / "x.pt").tensors["x"].array().tolist() == [1, 2, 3]


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_a_flipped_byte(tmp_path_factory: pytest.TempPathFactory, place: int, change: int, zipped: bool) -> None:
    """An error, or the right tensor with at most one number changed."""
    path = tmp_path_factory.mktemp("flip") / "x.pt"
    data = bytearray(_tensor_file(path))
    data[place % len(data)] ^= change
    path.write_bytes(data)
    try:
        value = open_pickled(path).value
        found = value.array() if isinstance(value, Tensor) else None
    except InputError:
        return
    assert found is not None
    assert (found != [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]).sum() <= 1
