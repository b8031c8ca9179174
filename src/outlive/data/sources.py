"""Where a source's rows are: its files, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.data.rows import check_rows_file
from outlive.run.config import Source
from outlive.run.errors import InputError
from outlive.run.files import hash_file


@dataclass(frozen=True)
class SourceFiles:
    """`name`: as the ledger shows the source. `files`: on this machine. `identity`: a hash of all that is in them."""

    name: str
    files: list[Path]
    identity: str
    about: dict[str, Any] = field(default_factory=dict)


def resolve(source: Source, say: Callable[[str], None]) -> SourceFiles:
    """The files of a source. Raises InputError where there are none."""
    if source.path is None:
        raise InputError(
            "reading data sets from the hub is not part of this version",
            where=f"data.train: {source.hub}",
            fix="download it as JSON Lines and name the file with data.train.0.path",
        )
    path = Path(source.path)
    if path.is_dir():
        raise InputError("this is a folder, not a file of rows", where=str(path), fix="name its files one by one")
    check_rows_file(path)
    return SourceFiles(str(path), [path], hash_file(path))
