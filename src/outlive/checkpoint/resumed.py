"""Conversions and merges that go on after they were killed: what was finished of the folder is kept, file by file.

The folder is built beside its final name, as `.NAME.unfinished`. `.progress` in it says what it is made of (the key)
and lists each file that is whole, with its hash, once that file is on the disk. Who begins again with the same key
keeps those files whose hash is still theirs. One process builds a folder at a time: the kernel's lock on `.NAME.lock`
ends with its holder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from outlive.checkpoint.building import Building, about_final, building_checkpoint, exists, finish, make_parents
from outlive.checkpoint.manifest import NAME
from outlive.run.errors import InputError, OutliveError
from outlive.run.files import disk_error, hash_file, hash_json, sync_folder, unfinished
from outlive.run.flock import lock, unlock

PROGRESS = ".progress"


def key_of(sources: Sequence[Path], options: Mapping[str, Any], final: Path) -> str:
    """What the folder `final` is made of: paths, sizes and times of all files of `sources`, the options, and this
    version. A source that is a file stands for itself and the JSON files beside it."""
    files = sorted({path for source in sources for path in _files(Path(source).absolute(), Path(final).absolute())})
    marks = [(str(path), about.st_size, about.st_mtime_ns) for path in files for about in (path.stat(),)]
    return hash_json([version("outlive"), str(Path(final).absolute()), marks, dict(options)])


def _files(source: Path, final: Path) -> Iterator[Path]:
    """All files below a source but for those of the folder that is made, which may lie inside."""
    if source.is_file():
        yield from (source, *(path for path in source.parent.glob("*.json") if path.is_file()))
    own = _hidden(final, "")
    for folder, folders, names in os.walk(source):
        if Path(folder) == final.parent:
            folders[:] = [name for name in folders if not name.startswith(own.name)]
            names = [name for name in names if not name.startswith(own.name)]
        yield from (path for path in (Path(folder, name) for name in names) if path.is_file())


def _hidden(final: Path, kind: str) -> Path:
    return final.with_name(f".{final.name[:100]}.{kind}")


@contextmanager
def resumed_checkpoint(final: Path, about: Mapping[str, Any], key: str) -> Iterator[Building]:
    """As `building_checkpoint`, of which a part may be there already: `Building.kept` of what a process with this key
    finished before it was killed. An error of the block removes all of it. KeyboardInterrupt and SystemExit leave
    what is finished for the next, and a note of theirs says so.

    Raises InputError where `final` exists, or where another process builds it now. Where the file system has no locks,
    nothing is kept.
    """
    final = Path(final)
    if os.path.lexists(final):
        raise exists(final)
    make_parents(final.parent)
    path = _hidden(final, "lock")
    try:
        descriptor = lock(path, lambda content: _refuse(final))
    except OSError as error:
        raise disk_error(error, path, "make a folder") from error
    if descriptor is None:
        with building_checkpoint(final, about) as building:
            yield building
        return
    try:
        for left in unfinished(final):  # of a process that ended: it would hold the lock
            shutil.rmtree(left, ignore_errors=True)
        with _built(_hidden(final, "unfinished"), final, about, key) as building:
            yield building
    finally:
        unlock(path, descriptor)


def _refuse(final: Path) -> None:
    fix = "wait until it has ended, or name another folder"
    raise InputError("another process is making this folder", where=str(final), fix=fix)


@contextmanager
def _built(folder: Path, final: Path, about: Mapping[str, Any], key: str) -> Iterator[Building]:
    try:
        building = Building(folder, Progress(folder, key))
        yield building
        with contextlib.suppress(FileNotFoundError):
            (folder / PROGRESS).unlink()
        building.commit(about)
        finish(folder, final)
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OutliveError):
            raise about_final(error, folder, final) from error.__cause__
        if isinstance(error, OSError):
            raise disk_error(error, final) from error
        raise
    except BaseException as error:
        if number := len(_listed(folder, key)):
            files = "1 file was" if number == 1 else f"{number} files were"
            error.add_note(f"{files} finished, and kept: the same command goes on from there")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise


class Progress:
    """The files of an unfinished folder that are whole. What else is in it is removed, first of all."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self.files = {name: entry for name, entry in _listed(folder, key).items() if _is_whole(folder / name, entry)}
        if not self.files and os.path.lexists(folder):
            shutil.rmtree(folder)
        for path in [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]:
            if path.relative_to(folder).as_posix() not in self.files:
                path.unlink()
        folder.mkdir(exist_ok=True)
        lines = [{"key": key}, *({"name": name, **entry} for name, entry in self.files.items())]
        self._write("".join(json.dumps(line) + "\n" for line in lines), "w")

    def add(self, name: str, entry: Mapping[str, Any]) -> None:
        """List a file that is on the disk."""
        sync_folder((self.folder / name).parent)
        self._write(json.dumps({"name": name, **entry}) + "\n", "a")

    def _write(self, text: str, mode: str) -> None:
        with open(self.folder / PROGRESS, mode, encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def _listed(folder: Path, key: str) -> dict[str, dict[str, Any]]:
    """What the list of another key, a torn line or a damaged one names does not count."""
    found: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        first, *lines = (folder / PROGRESS).read_text(encoding="utf-8").splitlines()
        if json.loads(first)["key"] == key:
            for line in lines:
                entry = json.loads(line)
                found[entry.pop("name")] = entry
    return found


def _is_whole(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        return (
            path.name not in (PROGRESS, NAME)
            and not path.is_symlink()
            and path.stat().st_size == entry["size"]
            and hash_file(path) == entry["xxh3_128"]
        )
    except (OSError, KeyError, OutliveError):
        return False
