"""Promise: of a compressed file all is read or it is refused, and a copy is read only as it was written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.data import compressed
from outlive.data.kept import Kept
from outlive.run.errors import InputError
from tests.data.test_sources import PACK, ROW, names, write

A, B = (ROW % 1 * 200).encode(), (ROW % 2 * 200).encode()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", [7, 1 << 20])
@pytest.mark.parametrize("ending", PACK)
def test_all_streams_of_a_file_are_read(ending: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "_BLOCK", block)  # a stream ends within a block, and at its end
    pack = PACK[ending]
    Path(f"a.jsonl.{ending}").write_bytes(pack(A) + pack(b"") + pack(B))
    (file,) = names(f"a.jsonl.{ending}")
    assert Path(file).read_bytes() == A + B


@pytest.mark.parametrize("ending", PACK)
def test_what_follows_a_stream_and_is_none_is_refused(ending: str) -> None:
    first, second = PACK[ending](A), PACK[ending](B)
    bad = {
        "garbage": first + b"garbage at the end",
        "text": first + B,
        "another beginning": first + bytes([second[0] ^ 1]) + second[1:],
        "half a second": first + second[: len(second) // 2],
        "the first bytes of a second": first + second[:3],
        "without its last byte": first[:-1],
    }
    for what, content in bad.items():
        Path(f"a.jsonl.{ending}").write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            pytest.fail(f"{what}: {names(f'a.jsonl.{ending}')}")
    assert not [file for file in Path("home").rglob("*") if file.is_file()]


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_xz_may_be_padded_with_zeros_in_fours(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "_BLOCK", block)
    first, second = PACK["xz"](A), PACK["xz"](B)
    Path("a.jsonl.xz").write_bytes(first + bytes(20) + second + bytes(8))
    (file,) = names("a.jsonl.xz")
    assert Path(file).read_bytes() == A + B
    Path("a.jsonl.xz").write_bytes(first + bytes(3) + second)
    with pytest.raises(InputError, match="damaged"):
        names("a.jsonl.xz")


@pytest.mark.parametrize("content", [B, b"", A[:-1]])
def test_a_copy_that_is_not_as_it_was_written_is_made_anew(content: bytes) -> None:
    Path("a.jsonl.gz").write_bytes(PACK["gz"](A))
    said: list[str] = []
    (file,) = names("a.jsonl.gz", said)
    assert names("a.jsonl.gz", said) == [file]
    assert len(said) == 1
    Path(file).write_bytes(content)
    assert names("a.jsonl.gz", said) == [file]
    assert Path(file).read_bytes() == A
    assert len(said) == 2


_UNPACKS = """
import sys, time
from outlive.data.kept import Kept
with Kept("k" * 32, "rows.jsonl").writing() as write:
    write(b"half")
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_half_unpacked_is_removed_and_no_other(tmp_path: Path) -> None:
    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", _UNPACKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def left() -> list[Path]:
        return list((tmp_path / "home/sources").glob("*/.*.tmp"))

    killed, alive = start(), start()
    assert len(left()) == 2
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    with Kept("m" * 32, "other").writing() as write:
        write(b"x")
    assert len(left()) == 1
    alive.communicate()  # it ends its work
    assert not left()
    assert Kept("k" * 32, "rows.jsonl").path.read_bytes() == b"half"
    assert Kept("k" * 32, "rows.jsonl").is_there


def test_half_written_files_leave_no_empty_folders(tmp_path: Path) -> None:
    write(f"home/sources/{'k' * 32}/.rows.{'0' * 16}.tmp", "half")
    Path("a.jsonl.gz").write_bytes(PACK["gz"](A))
    names("a.jsonl.gz")
    assert len(list((tmp_path / "home/sources").iterdir())) == 1
