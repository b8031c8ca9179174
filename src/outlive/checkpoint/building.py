"""A checkpoint while it is written: in a folder beside its final one, under a hidden name, until all of it is safe.

The order of what is done is what makes it safe. Each file is fsynced when it is closed; then the manifest is written,
the mark that all is there; then the folders are fsynced, the whole is renamed, and the parent is fsynced. Whenever the
machine stops, the final name is absent or its folder is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from outlive.checkpoint.manifest import NAME, manifest_text
from outlive.checkpoint.safetensors_file import layout, write_tensors
from outlive.run.errors import InputError, OutliveError, WorkError
from outlive.run.files import HashedFile, disk_error, hashed_file, sibling, sync_folder, writable

_BLOCK = 1 << 20
_FORMAT = {"format": "pt"}  # readers of safetensors files want to know who wrote them


class Progress(Protocol):
    """Files that an earlier process finished, with size, hash and `of_file`; see `resumed`."""

    files: dict[str, dict[str, Any]]

    def add(self, name: str, entry: Mapping[str, Any]) -> None:
        """List a file that is on the disk."""


class Building:
    """A checkpoint being written in a temporary sibling of its final folder. Names are relative to the checkpoint.

    `progress` knows which files an earlier process finished: these are not written again.
    """

    def __init__(self, folder: Path, progress: Progress | None = None) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, Any]] = {}
        self._folders = [folder]
        self._progress = progress

    def kept(self, name: str) -> Any:
        """What was said of a file that is whole already (`of_file` of `stream`), and which is counted as written now;
        None where it has to be written."""
        if self._progress is None or name not in self._progress.files:
            return None
        entry = self._progress.files[name]
        self._make_folder((self.folder / name).parent)
        self.files[name] = {"size": entry["size"], "xxh3_128": entry["xxh3_128"]}
        return entry["of_file"]

    def text(self, name: str, content: str) -> None:
        """Write a text as UTF-8; `name` is "state/trainer.json", its folder is made."""
        data = writable(content).encode()
        with self._file(name, len(data)) as file:
            file.write(data)

    def copy(self, name: str, source: Path) -> None:
        """Copy a file byte for byte. Raises WorkError where the source can't be read."""
        try:
            with open(source, "rb") as reading:
                blocks = iter(lambda: _read(reading, source), b"")
                with self._file(name, os.fstat(reading.fileno()).st_size) as file:
                    for block in blocks:
                        file.write(block)
        except OSError as error:
            raise disk_error(error, source, "read") from error

    def tensors(
        self,
        name: str,
        tensors: Mapping[str, Any],
        *,
        dtype: str | None = None,
        metadata: Mapping[str, str] | None = None,
        finite: Collection[str] = (),
    ) -> None:
        """Write one safetensors file, of torch tensors on any device or of numpy arrays, a piece at a time.

        dtype: bf16, fp16 or fp32, for the floating ones; None: each in its own. The tensors named in `finite` have to
        be finite as they are written. Raises WorkError where one is not, and where the disk refuses.
        """
        if self.kept(name) is not None:
            return
        plan = layout(tensors, dtype, _FORMAT if metadata is None else metadata)
        with self._file(name, plan.size, []) as file:
            write_tensors(file, plan, tensors, dtype, finite)

    @contextmanager
    def stream(self, name: str, size: int, of_file: list[Any] | None = None) -> Iterator[HashedFile]:
        """A file to write piece by piece; `size`: about how many bytes it will have, for the message of a full disk.
        `of_file`: what the writer puts into this list is what `kept` says of the file; plain values."""
        with self._file(name, size, of_file) as file:
            yield file

    @contextmanager
    def _file(self, name: str, size: int, of_file: list[Any] | None = None) -> Iterator[HashedFile]:
        path = self.folder / name
        self._make_folder(path.parent)
        with hashed_file(path, needed=size) as file:
            yield file
        self.files[name] = {"size": file.size, "xxh3_128": file.hexdigest}
        if self._progress is not None and of_file is not None:
            self._progress.add(name, {**self.files[name], "of_file": of_file})

    def _make_folder(self, folder: Path) -> None:
        if folder in self._folders:
            return
        self._make_folder(folder.parent)
        _mkdir(folder, or_exists=self._progress is not None)
        self._folders.append(folder)

    def commit(self, about: Mapping[str, Any]) -> None:
        """Write the manifest, and fsync all folders, the deepest first. Nothing can be added after it."""
        content = manifest_text(about, self.files).encode()
        with hashed_file(self.folder / NAME, needed=len(content)) as file:
            file.write(content)
        for folder in reversed(self._folders):
            _sync(folder)


@contextmanager
def building_checkpoint(final: Path, about: Mapping[str, Any]) -> Iterator[Building]:
    """A new checkpoint to write into: under its final name when the block ends well, removed when it raises.

    `about` goes into the manifest, beside the files with their sizes and hashes. It is read at the end: what is only
    known then can still be put into it. Raises InputError where `final` exists, WorkError where the disk refuses.
    """
    final = Path(final)
    if os.path.lexists(final):
        raise exists(final)
    temporary = sibling(final)
    make_parents(final.parent)
    try:
        _mkdir(temporary)
        building = Building(temporary)
        yield building
        building.commit(about)
        finish(temporary, final)
    except OutliveError as error:
        raise about_final(error, temporary, final) from error.__cause__
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # what this leaves, `sweep` removes


def finish(temporary: Path, final: Path) -> None:
    """Give a checkpoint that is complete its final name."""
    try:
        os.rename(temporary, final)
    except OSError as error:
        if os.path.lexists(final):
            raise exists(final) from error
        raise disk_error(error, final) from error
    _sync(final.parent)


def make_parents(folder: Path) -> None:
    """Make the folders that lead to a checkpoint, on the disk. WorkError where that can't be."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    for place in reversed(missing):
        _mkdir(place, or_exists=True)  # another process may be faster
        _sync(place.parent)


def _mkdir(folder: Path, *, or_exists: bool = False) -> None:
    try:
        os.mkdir(folder)
    except OSError as error:
        if or_exists and folder.is_dir():
            return
        raise disk_error(error, folder) from error


def _sync(folder: Path) -> None:
    try:
        sync_folder(folder)
    except OSError as error:
        raise disk_error(error, folder) from error


def _read(file: Any, source: Path) -> bytes:
    try:
        block: bytes = file.read(_BLOCK)
    except OSError as error:
        raise disk_error(error, source, "read") from error
    return block


def about_final(error: OutliveError, temporary: Path, final: Path) -> OutliveError:
    """The error with the path that a user knows: the hidden name is gone when the message is read."""
    if not isinstance(error, WorkError) or error.where is None:
        return error
    return WorkError(error.what, where=error.where.replace(str(temporary), str(final)), fix=error.fix)


def exists(final: Path) -> InputError:
    """What to raise where there is a checkpoint of this name."""
    return InputError("this checkpoint exists already", where=str(final), fix="use another name, or remove it first")
