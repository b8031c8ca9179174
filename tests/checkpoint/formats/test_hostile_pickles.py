"""Promise: no bytes of a pickle or an archive run code, end in another error than InputError, or take much memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.checkpoint.formats.pickle_opcodes import unpickle
from outlive.checkpoint.formats.pickle_write import Called, Named, Reference, pickled
from outlive.checkpoint.formats.pickled import open_pickled, open_state_dict
from outlive.run.errors import InputError, OutliveError

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


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "x.pt", b"\x80\x02" + b"]" * (1 << 19))
    monkeypatch.setattr(unpickle, "__kwdefaults__", {"most": 1000})
    with pytest.raises(InputError, match="more than 1,000 operations"):
        open_pickled(path)


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


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "absent", "absent/x"):
        with pytest.raises(InputError):
            open_pickled(tmp_path / name)
    with pytest.raises(InputError):
        open_pickled(Path("/dev/zero"))
