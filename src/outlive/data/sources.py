"""Where a source's rows are: files of this machine, in the order in which they are read. docs/sources.md says what can
be named."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.data.compressed import unpacked
from outlive.data.hub import hub_files
from outlive.data.natural import in_order
from outlive.data.remote import is_remote, remote_files
from outlive.data.rows_file import check_rows_file
from outlive.run.config import Source
from outlive.run.errors import InputError
from outlive.run.files import hash_file, hash_json

Say = Callable[[str], None]
ROWS = (".jsonl", ".json", ".ndjson", ".parquet", ".arrow", ".csv", ".tsv")
PACKED = (".gz", ".bz2", ".xz", ".zst")
# JSON beside the rows of a data set, which holds none
_ABOUT = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "package.json"}
_NAMED = 5  # files that a note names


@dataclass(frozen=True)
class SourceFiles:
    """`name`: as the ledger shows the source. `files`: on this machine, in reading order. `identity`: a hash of all
    that is in them. `about`: what else is known of them, such as a revision."""

    name: str
    files: list[Path]
    identity: str
    about: dict[str, Any] = field(default_factory=dict)


def resolve(source: Source, say: Say) -> SourceFiles:
    """The files of a source. Raises InputError where there are none, or where they can't be fetched."""
    if source.hub is not None:
        found, revision = hub_files(source.hub, source.split, source.revision, source.subset, is_rows, say)
        name = f"{source.hub}@{revision[:12]}" + (f" ({source.split})" if source.split else "")
        return _source(name, found, say, {"revision": revision})
    assert source.path is not None
    return resolve_path(source.path, say)


def resolve_path(path: str, say: Say) -> SourceFiles:
    """The files that a path stands for: a file, a folder, a glob or a URL. Raises InputError."""
    if is_remote(path):
        return _source(path, _worth_reading(remote_files(path, is_rows, say), say), say, {})
    return _source(path, local_files(path, say), say, {})


def local_files(path: str, say: Say) -> list[Path]:
    """The files of this machine that a path stands for, in their order."""
    place = Path(path)
    if place.is_dir():
        return _of_folder(place, say)
    if glob.has_magic(path) and not os.path.lexists(path):
        found = [Path(name) for name in in_order(glob.glob(path, recursive=True)) if os.path.isfile(name)]
        if not found:
            raise InputError("no file fits this pattern", where=path, fix="quote it in the shell, and check the folder")
        return _worth_reading(found, say)
    return [place]


def is_rows(name: str) -> bool:
    """Whether a file of a data set's folder holds rows, by its name."""
    last = name.replace("\\", "/").rpartition("/")[2].lower()
    stem = last
    for ending in PACKED:
        stem = stem.removesuffix(ending)
    hidden = any(part.startswith((".", "_")) for part in name.split("/"))
    return stem.endswith(ROWS) and last not in _ABOUT and not hidden


def _of_folder(folder: Path, say: Say) -> list[Path]:
    names = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        names += [os.path.relpath(os.path.join(root, name), folder) for name in files]
    rows = [name for name in names if is_rows(name)]
    if not rows:
        there = ", ".join(sorted(names)[:_NAMED]) or "nothing"
        raise InputError(
            f"the folder holds no file of rows, only: {there}",
            where=str(folder),
            expected=f"files whose names end in {', '.join(ROWS)}",
            fix="name a file, or a folder with such files",
        )
    others = [name for name in names if not is_rows(name)]
    if others:
        say(f"{folder}: {len(others)} files are not read as rows: {_some(others)}")
    return _worth_reading([folder / name for name in in_order(rows)], say)


def _worth_reading(files: list[Path], say: Say) -> list[Path]:
    """The files that hold something. Raises InputError where none does."""
    empty = [path for path in files if path.is_file() and path.stat().st_size == 0]
    if empty and len(files) > 1:
        say(f"{len(empty)} empty files are left out: {_some([str(path) for path in empty])}")
    kept = [path for path in files if path not in set(empty)]
    return kept or files[:1]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def _source(name: str, files: Sequence[Path], say: Say, about: dict[str, Any]) -> SourceFiles:
    opened = [unpacked(path, say) for path in files]
    for path in opened:
        check_rows_file(path)
    hashes = [hash_file(path) for path in opened]
    named = [[path.name, own] for path, own in zip(opened, hashes, strict=True)]
    identity = hashes[0] if len(hashes) == 1 else hash_json(named)
    return SourceFiles(name, opened, identity, about)
