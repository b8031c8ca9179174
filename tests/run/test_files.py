"""Promise: what has its final name is complete, whatever fails, and two builders don't hurt each other."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.run import files
from outlive.run.errors import InputError, WorkError
from outlive.run.files import building_folder, disk_error, hash_bytes, hash_file, hash_json, write_atomic


def test_write_atomic_replaces_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    write_atomic(path, "é\n")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["a.json"]


def test_new_files_have_ordinary_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    write_atomic(tmp_path / "atomic", "x")
    assert (tmp_path / "atomic").stat().st_mode == plain.stat().st_mode


def test_full_disk_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    # A real refusal of the kernel: the process may write files of 1000 bytes at most.
    path = tmp_path / "a"
    path.write_text("old")
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from outlive.run.errors import WorkError; from outlive.run.files import write_atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_atomic(Path(sys.argv[1]), b'x' * 10**6)\n"
        "except WorkError as error: print(error.where, '|', error.fix)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{path} | raise the limit on the size of a file")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_unwritable_place_is_a_work_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkError) as caught:
        write_atomic(tmp_path / "file" / "a", "x")
    assert caught.value.where == str(tmp_path / "file" / "a")
    with pytest.raises(WorkError), building_folder(tmp_path / "file" / "a"):
        pass


@pytest.mark.parametrize(("number", "fix"), [(errno.EACCES, "writable"), (errno.ENOSPC, "free some space")])
def test_failing_sync_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(WorkError, match=fix):
        write_atomic(tmp_path / "a", "x")
    assert os.listdir(tmp_path) == []


def test_building_folder_appears_only_at_the_end(tmp_path: Path) -> None:
    final = tmp_path / "stores" / "key"
    with building_folder(final) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "f").write_text("1")
        assert not final.exists()
        assert folder.parent == final.parent
    assert (final / "sub" / "f").read_text() == "1"
    assert os.listdir(final.parent) == ["key"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, FileNotFoundError])
def test_building_folder_is_removed_on_any_error_and_the_error_passes(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def build() -> None:
        with building_folder(tmp_path / "key") as folder:
            (folder / "f").write_text("half")
            raise error("from the block")

    with pytest.raises(error):
        build()
    assert os.listdir(tmp_path) == []


def test_full_disk_inside_the_block_is_a_work_error(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="free some space"), building_folder(tmp_path / "key"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_existing_final_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    with pytest.raises(InputError), building_folder(tmp_path / "key"):
        pytest.fail("the block must not run")


@pytest.mark.parametrize("mode", ["refuse", "keep"])
def test_second_of_two_builders(tmp_path: Path, mode: str) -> None:
    final = tmp_path / "key"

    def build(text: str, inner: bool) -> None:
        with building_folder(final, if_exists=mode) as folder:  # type: ignore[arg-type]
            if inner:
                build("first to finish", inner=False)
            (folder / "f").write_text(text)

    if mode == "keep":
        build("second", inner=True)
    else:
        with pytest.raises(InputError):
            build("second", inner=True)
    assert (final / "f").read_text() == "first to finish"
    assert os.listdir(tmp_path) == ["key"]


def test_keep_does_not_take_a_file_for_a_finished_folder(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a file")
    with pytest.raises(InputError), building_folder(tmp_path / "key", if_exists="keep") as folder:
        (folder / "f").write_text("x")
    assert os.listdir(tmp_path) == ["key"]


def test_hashes(tmp_path: Path) -> None:
    # The constant is the published XXH3-128 of no bytes.
    assert hash_bytes(b"") == "99aa06d3014798d86001c324468d497f"
    data = os.urandom(3_000_001)
    (tmp_path / "f").write_bytes(data)
    assert hash_file(tmp_path / "f") == hash_bytes(data)
    assert hash_bytes(data[:-1]) != hash_bytes(data)
    with pytest.raises(InputError):
        hash_file(tmp_path / "missing")


def test_hash_json_ignores_key_order_only() -> None:
    assert hash_json({"a": 1, "b": [1, "é"]}) == hash_json({"b": [1, "é"], "a": 1})
    assert hash_json([1, 2]) != hash_json([2, 1])
    assert hash_json({"a": 1}) != hash_json({"a": "1"})
    with pytest.raises(ValueError, match="Out of range"):
        hash_json(float("nan"))


@pytest.mark.parametrize(
    ("number", "fix"), [(errno.EFBIG, "ulimit -f"), (errno.EMFILE, "ulimit -n"), (errno.ENOSPC, "free some space")]
)
def test_each_limit_has_its_own_remedy(tmp_path: Path, number: int, fix: str) -> None:
    assert fix in str(disk_error(OSError(number, "no"), tmp_path).fix)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system has no such advice")
def test_the_disk_begins_before_the_end_and_the_bytes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    real = os.posix_fadvise

    def telling(descriptor: int, offset: int, length: int, advice: int) -> None:
        told.append((offset, length))
        real(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", telling)
    monkeypatch.setattr(files, "_TO_DISK", 1000)
    data = os.urandom(2600)
    with files.hashed_file(tmp_path / "a") as file:
        for start in range(0, len(data), 600):
            file.write(data[start : start + 600])
    assert told == [(0, 1200), (1200, 1200)]
    assert (tmp_path / "a").read_bytes() == data
    assert file.hexdigest == hash_bytes(data)
