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
from outlive.data.local import files_below, files_of_pattern, once, plain_files, some
from outlive.data.natural import in_order
from outlive.data.reading import file_names
from outlive.data.remote import is_remote, remote_files
from outlive.data.rows_csv import delimiter_of
from outlive.data.rows_file import Form, rows_form
from outlive.data.splits import left_by_datasets, refuse_splits
from outlive.run.config import Source
from outlive.run.errors import InputError
from outlive.run.files import hash_file, hash_json

Say = Callable[[str], None]
ROWS = (".jsonl", ".json", ".ndjson", ".parquet", ".arrow", ".csv", ".tsv")
PACKED = (".gz", ".bz2", ".xz", ".zst")
# JSON beside the rows of a data set, which holds none
_ABOUT = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "package.json", "manifest.json"}


@dataclass(frozen=True)
class SourceFiles:
    """`name`: as the ledger shows the source. `files`: on this machine, in reading order. `identity`: a hash of all
    that is in them. `about`: what else is known of them, such as a revision. `names`: of the files, in the ids of their
    samples and in messages."""

    name: str
    files: list[Path]
    identity: str
    about: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


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
        _refuse_offline(path)
        return _source(path, _worth_reading(remote_files(path, is_rows, say), say), say, {})
    return _source(path, local_files(path, say), say, {})


def _refuse_offline(url: str) -> None:
    """Raise InputError for a URL of the hub where nothing may be asked of it: what there is can't be known."""
    if not url.startswith("hf://"):
        return
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise InputError(
            "the hub can't be asked: HF_HUB_OFFLINE is set",
            where=url,
            fix="unset HF_HUB_OFFLINE, or name the data set as hub: org/name, which is read from the hub's cache",
        )


def local_files(path: str, say: Say) -> list[Path]:
    """The files of this machine that a path stands for, in their order."""
    if Path(path).is_dir():
        return _of_folder(Path(path), say)
    if glob.has_magic(path) and not os.path.lexists(path):
        return _worth_reading([Path(name) for name in files_of_pattern(path, say)], say)
    return [Path(path)]


def is_rows(name: str) -> bool:
    """Whether a file of a data set's folder holds rows, by its name."""
    last = name.replace("\\", "/").rpartition("/")[2].lower()
    stem = last
    for ending in PACKED:
        stem = stem.removesuffix(ending)
    hidden = any(part.startswith((".", "_")) for part in name.split("/"))
    return stem.endswith(ROWS) and last not in _ABOUT and not hidden


def _of_folder(folder: Path, say: Say) -> list[Path]:
    files, special = plain_files(list(files_below(str(folder), say)))
    names = [os.path.relpath(name, folder) for name in files]
    kept_beside = left_by_datasets(folder, names)
    rows = [name for name in names if is_rows(name) and name not in kept_beside]
    if not rows:
        there = ", ".join(sorted(names)[:5]) or "nothing"
        raise InputError(
            f"the folder holds no file of rows, only: {there}",
            where=str(folder),
            expected=f"files whose names end in {', '.join(ROWS)}",
            fix="name a file, or a folder with such files",
        )
    refuse_splits(folder, names, rows)
    if others := sorted({*names} - {*rows}):
        say(f"{folder}: {len(others)} files are not read as rows: {some(others)}")
    if special:
        say(f"{folder}: {len(special)} are no plain files (pipes or devices), and are not read: {some(special)}")
    return _worth_reading([Path(name) for name in once([str(folder / name) for name in in_order(rows)], say)], say)


def _worth_reading(files: list[Path], say: Say) -> list[Path]:
    """The files that hold something. Raises InputError where none does."""
    empty = [path for path in files if path.is_file() and path.stat().st_size == 0]
    if empty and len(files) > 1:
        say(f"{len(empty)} empty files are left out: {some([str(path) for path in empty])}")
    kept = [path for path in files if path not in set(empty)]
    return kept or files[:1]


def _source(name: str, files: Sequence[Path], say: Say, about: dict[str, Any]) -> SourceFiles:
    opened = [unpacked(path, say) for path in files]
    forms = [rows_form(path, given) for path, given in zip(opened, files, strict=True)]
    hashes = [_identity(path, form) for path, form in zip(opened, forms, strict=True)]
    if len({path.name for path in opened}) == len(opened):
        names, named = file_names(opened), [path.name for path in opened]
    else:
        names = named = file_names(files)  # in another folder each is another, in the samples' ids too
    pairs = [list(pair) for pair in zip(named, hashes, strict=True)]
    return SourceFiles(name, opened, hashes[0] if len(hashes) == 1 else hash_json(pairs), about, names)


def _identity(path: Path, form: Form) -> str:
    """The hash of a file's bytes; with how they are read where the bytes alone don't say it, but the name does too:
    as CSV with some delimiter. Renamed, the same bytes may hold other rows."""
    own = hash_file(path)
    return own if form != "csv" else hash_json([own, form, delimiter_of(path)])
