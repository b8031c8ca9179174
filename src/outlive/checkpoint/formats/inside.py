"""Files of a checkpoint that another file of it names: they have to lie in its folder."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath

from outlive.run.errors import InputError
from outlive.run.files import disk_error

_COPY = "copy it again from where it is whole"


def regular_file(path: Path) -> Path:
    """`path`, if a file lies there; InputError for none, and for a folder, a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise InputError("the file is missing", where=str(path), fix=_COPY) from None
    except OSError as error:
        raise disk_error(error, path, "read") from error
    if not stat.S_ISREG(mode):
        raise InputError("this is no file", where=str(path), fix="give the file of the checkpoint, or its folder")
    return path


def file_inside(folder: Path, name: object) -> Path:
    """The file `name` of a folder. InputError for a path that leads out of it, and where there is no file.

    Links may lead to files of the same folder and to the blobs of the hub's cache, which is made of links.
    """
    where = str(folder)
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not isinstance(name, str) or not parts or name[0] == "/" or ".." in parts or "\0" in name or "\\" in name:
        raise InputError(
            f"{str(name)[:200]!r} is no file of the checkpoint", where=where, fix="do not use this checkpoint"
        )
    path = regular_file(folder / name)
    try:
        target, root = path.resolve(), folder.resolve()
    except OSError as error:
        raise disk_error(error, path, "read") from error
    allowed = [root, *([root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [])]
    if not any(target.is_relative_to(place) for place in allowed):
        raise InputError(
            "the file is a link that leads out of the checkpoint", where=str(path), fix="copy the file itself"
        )
    return path
