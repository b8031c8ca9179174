"""Promise: a model in more files than may be open at once is read whole; a file swapped meanwhile is refused."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outlive.checkpoint.tensors.stored import File
from outlive.run.errors import InputError

_MANY = 600


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 200, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _files(folder: Path) -> list[File]:
    for number in range(_MANY):
        (folder / str(number)).write_bytes(number.to_bytes(2, "little"))
    return [File(folder / str(number)) for number in range(_MANY)]


def _number(file: File) -> int:
    return int.from_bytes(file.read(0, 2).tobytes(), "little")


def test_more_files_than_may_be_open(few_descriptors: None, tmp_path: Path) -> None:
    files = _files(tmp_path)
    for _ in range(2):  # in the second round all were closed in between
        assert [_number(file) for file in files] == list(range(_MANY))


def test_a_file_that_is_read_is_not_closed_by_another_thread(few_descriptors: None, tmp_path: Path) -> None:
    files = _files(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(_number, files * 5)) == list(range(_MANY)) * 5


def test_a_file_replaced_while_it_was_closed_is_refused(tmp_path: Path) -> None:
    files = _files(tmp_path)
    assert [_number(file) for file in files] == list(range(_MANY))
    (tmp_path / "new").write_bytes(b"xx")
    os.replace(tmp_path / "new", tmp_path / "0")
    with pytest.raises(InputError, match="changed or replaced"):
        files[0].read(0, 2)
