"""Promise: no bytes of a pickle or an archive run code, end in another error than InputError, or take much memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.checkpoint.formats.pickle_write import Called, Named, Reference, pickled
from outlive.checkpoint.formats.pickled import open_pickled, open_state_dict
from outlive.checkpoint.formats.torch_archive import write_tensor
from outlive.checkpoint.tensors.stored import File
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError, OutliveError
from outlive.run.files import hashed_file

FLOATS = Named("torch", "FloatStorage")
REBUILD = Named("torch._utils", "_rebuild_tensor_v2")


def archive(path: Path, content: bytes, data: bytes = b"\0" * 16, method: int = zipfile.ZIP_STORED) -> Path:
    """An archive as torch.save would write it, with one storage of 16 bytes."""
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("archive/data.pkl", content)
        file.writestr("archive/byteorder", "little")
        file.writestr("archive/data/0", data)
    return path


def tensor(
    shape: Any = (4,), strides: Any = (1,), first: Any = 0, storage: Any = ("storage", FLOATS, "0", "cpu", 4)
) -> bytes:
    hooks = Called(Named("collections", "OrderedDict"))
    return pickled({"x": Called(REBUILD, (Reference(storage), first, shape, strides, False, hooks))})


def refused(path: Path, content: bytes, what: str = "") -> None:
    with pytest.raises(InputError, match=what) as caught:
        open_state_dict(archive(path, content))
    assert str(path) in str(caught.value)


def test_the_tensor_that_the_hostile_ones_are_made_of_is_read(tmp_path: Path) -> None:
    assert open_state_dict(archive(tmp_path / "x.pt", tensor())).tensors["x"].array().tolist() == [0, 0, 0, 0]


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


def test_code_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(2, 6):
        refused(tmp_path / f"{protocol}.pt", pickle.dumps({"x": Evil()}, protocol), "asks for")
    refused(tmp_path / "system.pt", b"\x80\x02cos\nsystem\nX\x0e\0\0\0touch executed\x85R.", "asks for os.system")
    refused(tmp_path / "eval.pt", b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", "asks for builtins.eval")
    refused(tmp_path / "dotted.pt", b"\x80\x02ctorch\nSize.__class__\n.", "asks for")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "ends too early"),
        (b"\x80\x02}", "ends too early"),
        (b"\x80\x02.", "damaged"),
        (b"\x80\x09N.", "protocol"),
        (b"\x80\x02N.", "no state dict"),
        (b"\x80\x02X\xff\xff\xff\xffab.", "reaches over its end"),
        (b"\x80\x04\x8e" + b"\xff" * 8 + b".", "reaches over its end"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "operation"),
        (b"\x80\x02h\x05.", "damaged"),
        (b"\x80\x02Nr\xff\xff\xff\xff0}.", ""),
        (b"\x80\x02t.", "damaged"),
        (b"\x80\x02}(K\x01u.", "no value"),
        (b"\x80\x02}]Ns.", "key"),
        (b"\x80\x02NN\x85R.", "no function"),
        (b"\x80\x02Nb.", "damaged"),
        (b"\x80\x02NNb.", "state"),
        (b"\x80\x02K\x01Q.", "reference"),
        (b"\x80\x02(tQ.", "reference"),
        (b"\x80\x02c" + b"a" * 10_000 + b"\nb\n.", "cut off"),
        (b"\x80\x02ctorch\nSize\n(K\x01K\x02K\x03tR.", "damaged"),
        (b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(NNNNtR.", "nothing makes"),
    ],
)
def test_damaged_pickles(tmp_path: Path, content: bytes, what: str) -> None:
    path = archive(tmp_path / "x.pt", content)
    if content.endswith(b"0}."):  # a huge place in the memo takes no memory
        assert open_pickled(path).value == {}
        return
    with pytest.raises(InputError, match=what):
        open_state_dict(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (tensor(shape=(5,)), "reaches out"),
        (tensor(first=1), "reaches out"),
        (tensor(first=-1), "reaches out"),
        (tensor(strides=(2,)), "reaches out"),
        (tensor(strides=(-1,), first=3), "reaches out"),
        (tensor(shape=(2, 2)), "strides"),
        (tensor(shape=(-4,)), "shape"),
        (tensor(shape=(1 << 60,), strides=(0,)), "shape"),
        (tensor(shape=(1 << 50,), strides=(0,)), "repeats"),
        (tensor(shape=(0, 1 << 62), strides=(1, 1)), "shape"),
        (tensor(shape=(1,) * 65, strides=(1,) * 65), "shape"),
        (tensor(shape=("a",)), "shape"),
        (tensor(shape=None), "shape"),
        (tensor(strides=(1.0,)), "strides"),
        (tensor(storage=("storage", FLOATS, "1", "cpu", 4)), "no member"),
        (tensor(storage=("storage", FLOATS, "../0", "cpu", 4)), "no member"),
        (tensor(storage=("storage", FLOATS, "0", "cpu", 5)), "bytes"),
        (tensor(storage=("storage", FLOATS, "0", "cpu", -1)), "kind"),
        (tensor(storage=("storage", FLOATS, 0, "cpu", 4)), "kind"),
        (tensor(storage=("storage", REBUILD, "0", "cpu", 4)), "damaged"),
        (tensor(storage=("other", FLOATS, "0", "cpu", 4)), "reference"),
    ],
)
def test_tensors_that_are_not_there(tmp_path: Path, content: bytes, what: str) -> None:
    refused(tmp_path / "x.pt", content, what)


def nested(number: int, make: str) -> bytes:
    """A value in a value in a value …, or the same one twice in one that is twice in one …"""
    if make == "tuple":
        return b"\x80\x02N" + b"\x85" * number
    if make == "list":
        return b"\x80\x02N" + b"".join(b"q\x00]h\x00a" for _ in range(number))
    if make == "dict":
        return b"\x80\x02N" + b"".join(b"q\x00}K\x01h\x00s" for _ in range(number))
    return b"\x80\x02N" + b"q\x00h\x00\x86" * number  # 2^number leaves, if one walks through them


@pytest.mark.parametrize("make", ["tuple", "list", "dict", "twice"])
@pytest.mark.parametrize("use", ["value", "key", "dtype", "shape", "state"])
def test_deep_and_wide_values(tmp_path: Path, make: str, use: str) -> None:
    deep = nested(200_000, make)
    before, after = {
        "value": (b"}X\x01\0\0\0a", b"s."),
        "key": (b"}", b"Ns."),
        "dtype": (b"ctorch._utils\n_rebuild_tensor_v3\n(NNNNNN", b"tR."),
        "shape": (b"ctorch\nSize\n", b"\x85R."),
        "state": (b"cargparse\nNamespace\n)\x81", b"b."),
    }[use]
    path = archive(tmp_path / "x.pt", deep[:2] + before + deep[2:] + after)
    with pytest.raises(InputError):
        open_state_dict(path)


def test_dicts_in_themselves_and_dicts_that_share_dicts(tmp_path: Path) -> None:
    content = b"\x80\x02}K\x00Ns" + b"q\x00}(K\x01h\x00K\x02h\x00K\x03h\x00u" * 20 + b"."
    refused(tmp_path / "x.pt", content, "too many")
    long_key = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20)
    refused(tmp_path / "z.pt", b"\x80\x02}" + long_key + b"q\x01}h\x01Nss.", "too long")
    refused(tmp_path / "y.pt", b"\x80\x02}q\x00K\x01h\x00s.", "inside of itself")


def test_calls_cost_no_more_than_their_bytes(tmp_path: Path) -> None:
    long_list = b"\x80\x02](" + b"N" * 300_000 + b"eq\x00"
    for name in (b"torch\nSize", b"collections\nOrderedDict", b"pathlib\nPosixPath", b"builtins\nset"):
        content = long_list + (b"c" + name + b"\nh\x00\x85R0") * 3_000 + b"."
        path = archive(tmp_path / "x.pt", content)
        tracemalloc.start()
        with pytest.raises(InputError):
            open_state_dict(path)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
        tracemalloc.stop()


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


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_any_bytes_at_all(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = data.draw(st.binary(max_size=300))
    path = tmp_path_factory.mktemp("any") / "x.pt"
    if data.draw(st.booleans()):
        archive(path, b"\x80\x02" + content)
    else:
        path.write_bytes(content)
    with contextlib.suppress(OutliveError):
        open_state_dict(path)


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


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "absent", "absent/x"):
        with pytest.raises(InputError):
            open_pickled(tmp_path / name)
    with pytest.raises(InputError):
        open_pickled(Path("/dev/zero"))
    assert File(tmp_path / "x").path.name == "x"
