"""The files of this machine that a folder or a pattern stands for. Each real file once, and nothing is passed over in
silence: what can't be listed is an error, what is left out stands in a note."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from outlive.data.natural import in_order
from outlive.data.rows_file import unreadable
from outlive.run.errors import InputError

Say = Callable[[str], None]
_NAMED = 5  # files that a note names


def some(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def files_below(folder: str, say: Say, hidden: tuple[str, ...] = (".", "_")) -> Iterator[str]:
    """All that is in a folder and below it, but folders. Names that begin with one of `hidden` are left out.

    Folders that are linked are read after the others, and none twice. Raises InputError for a folder that can't be
    read.
    """
    for _, files in _tree(folder, say, hidden):
        yield from files


def files_of_pattern(pattern: str, say: Say) -> list[str]:
    """The plain files that fit a pattern, in their order. Raises InputError where there are none, for a folder that
    can't be read and for a link to nothing."""
    drive, rest = os.path.splitdrive(pattern)
    parts = [part for part in rest.replace(os.sep, "/").split("/") if part]
    if parts[-1] == "**":
        parts.append("*")
    places = [drive + "/" if rest.startswith(("/", os.sep)) else drive]
    for part in parts:
        places = list(dict.fromkeys(found for place in places for found in _fitting(place, part, say)))
    files, others = plain_files(places)
    read_below = [name for name in others if any(file.startswith(name + os.sep) for file in files)]
    if left_out := [name for name in others if name not in set(read_below)]:
        say(f"{pattern}: {len(left_out)} that fit are no plain files, and are not read: {some(left_out)}")
    if not files:
        only = f", only what is no plain file: {some(others)}" if others else ""
        raise InputError(
            f"no file fits this pattern{only}", where=pattern, fix="quote it in the shell, and check the folder"
        )
    return once(in_order(files), say)


def plain_files(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of the names that are plain files, and the others. Raises InputError for a link to nothing."""
    files, others = list[str](), list[str]()
    for name in names:
        try:
            is_plain = stat.S_ISREG(os.stat(name).st_mode)
        except OSError as error:
            raise unreadable(Path(name), error) from None
        (files if is_plain else others).append(name)
    return files, others


def once(files: Sequence[str], say: Say) -> list[str]:
    """Each real file once, under its own name rather than a link's where it has both here, in the order given."""
    real = {name: os.path.realpath(name) for name in files}
    kept: dict[str, str] = {}
    for name in files:
        if real[name] not in kept or os.path.abspath(name) == real[name]:
            kept[real[name]] = name
    chosen = set(kept.values())
    if again := [name for name in files if name not in chosen]:
        say(f"{len(again)} are files that are read already under another name: {some(again)}")
    return [name for name in files if name in chosen]


def _fitting(place: str, part: str, say: Say) -> Iterator[str]:
    """What one part of a pattern stands for in a folder; nothing where `place` is none."""
    if part == "**":
        if os.path.isdir(place or "."):
            yield from (folder for folder, _ in _tree(place, say, (".",)))
    elif not glob.has_magic(part):
        name = os.path.join(place, part)
        try:
            os.lstat(name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise unreadable(Path(name), error) from None
        yield name
    elif os.path.isdir(place or "."):
        for entry in _entries(place):
            if fnmatch(entry.name, part) and (part.startswith(".") or not entry.name.startswith(".")):
                yield os.path.join(place, entry.name)


def _tree(root: str, say: Say, hidden: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Each folder from `root` on, with the files in it. Linked ones come last, and only where they are not read
    already under another name."""
    seen, waiting, linked, left_out = set[tuple[int, int]](), [root], list[str](), list[str]()
    while waiting or linked:
        folder = waiting.pop() if waiting else linked.pop(0)
        about = os.stat(folder or ".")
        if (about.st_dev, about.st_ino) in seen:
            left_out.append(folder)
            continue
        seen.add((about.st_dev, about.st_ino))
        files = []
        for entry in _entries(folder):
            name = os.path.join(folder, entry.name)
            if entry.name.startswith(hidden):
                continue
            if not _is_folder(entry):
                files.append(name)
            elif not entry.is_symlink():
                waiting.append(name)
            else:
                (left_out if _goes_up(name) else linked).append(name)
        yield folder, files
    if left_out:
        say(f"{len(left_out)} linked folders lead to what is read already, and are not followed: {some(left_out)}")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder that is closed: said when it is looked at as a file
        return False


def _goes_up(link: str) -> bool:
    """Whether a link leads to a folder that the link itself is in: to follow it would never end."""
    inside = os.path.realpath(os.path.dirname(link) or ".")
    target = os.path.realpath(link)
    return os.path.commonpath([inside, target]) == target


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder or ".") as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        if isinstance(error, PermissionError):
            what = "this folder may not be read by you: permission denied"
            fix = f"let yourself read it (chmod u+rx {folder}), or name the files without it"
            raise InputError(what, where=folder, fix=fix) from None
        raise unreadable(Path(folder), error) from None
