"""Stores under several builders: one builds, the others wait and find it built; what is damaged is built again."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from outlive.data.leftovers import remove_leftovers
from outlive.data.store import MANIFEST, Store
from outlive.run.errors import InputError, NotTrusted, WorkError
from outlive.run.files import disk_error, sibling
from outlive.run.flock import lock, unlock


@contextmanager
def only_builder(folders: Sequence[Path], say: Callable[[str], None]) -> Iterator[bool]:
    """Hold the right to build these stores, all of one pass over one source. Waits for a builder that has it; `say`
    tells so. It is free as soon as its holder ends, however that ends. Gives whether no other can build them now.

    What killed builders of these stores left is removed, and what those of other stores left, once it is old. Where the
    file system has no locks, several may build: the first to finish wins, and nothing is removed.
    """
    path = folders[0].with_name(f".{folders[0].name}.lock")

    def waiting(content: bytes) -> None:
        say("another process prepares the same data: waiting for it")

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = lock(path, waiting)
    except OSError as error:
        raise disk_error(error, path, "make a store") from error
    try:
        if descriptor is not None:
            for leftover in (entry for folder in folders for entry in folder.parent.glob(f".{folder.name}.*.tmp")):
                shutil.rmtree(leftover, ignore_errors=True)
            remove_leftovers(path.parent, say)
        yield descriptor is not None
    finally:
        if descriptor is not None:
            unlock(path, descriptor)


@contextmanager
def unfinished(final: Path, alone: bool) -> Iterator[Path]:
    """A folder beside `final` to build in, which stays when the process is stopped or killed: the next builder goes on
    in it. So it stays for work that failed, as on a full disk or when memory ran out. It is removed when the block ends
    well, or by an error of the input, which would come again, or by a fault of ours, which what is there may cause; and
    where what is there may be wrong.

    `alone`: whether no other process builds the same; else the folder has a name of its own, and never stays.
    """
    folder = unfinished_folder(final) if alone else sibling(final)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder, "make a folder") from error
    try:
        yield folder
    except BaseException as error:
        failed = isinstance(error, WorkError | OSError | MemoryError) and not isinstance(error, NotTrusted)
        if not alone or (isinstance(error, Exception) and not failed):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def unfinished_folder(final: Path) -> Path:
    """Where the only builder of a store builds it."""
    return final.with_name(f".{final.name}.unfinished")


def damage(folder: Path) -> InputError | None:
    """What is wrong with a store that is there, or None. Its files are read and compared with their hashes; again only
    when one of them has another size, time or place."""
    try:
        files = sorted(os.scandir(folder), key=lambda entry: entry.name)
        marks = tuple((file.name, *_marks(file)) for file in files)
    except OSError as error:
        fix = "make the folder readable, or delete it: it is built again"
        return InputError(f"the store can't be read: {error.strerror}", where=str(folder), fix=fix)
    return _damage(folder, marks)


def remove_damaged(folder: Path) -> None:
    """Take a damaged store away, if there is one: under another name first, so that none sees half of it."""
    aside = sibling(folder)
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rename(folder, aside)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, folder, "remove a damaged store") from error
        shutil.rmtree(aside, ignore_errors=True)


def is_there(folder: Path) -> bool:
    """Whether there is a store of this name, whole or damaged."""
    return (folder / MANIFEST).exists()


def _marks(file: os.DirEntry[str]) -> tuple[int, int, int]:
    about = file.stat()
    return about.st_size, about.st_mtime_ns, about.st_ino


@lru_cache(maxsize=1024)
def _damage(folder: Path, marks: tuple[tuple[str, int, int, int], ...]) -> InputError | None:
    try:
        Store(folder, verify=True)
    except InputError as error:
        return error
    return None
