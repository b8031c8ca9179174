"""The folder that an export is built in: what a killed export of the same name left is known, and removed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlive.run.errors import InputError
from outlive.run.files import building_folder
from outlive.run.flock import lock, unlock

_BUILT = re.compile(r"\..{1,100}\.[0-9a-f]{16}\.tmp", re.DOTALL)  # as `building_folder` names what it builds


@contextmanager
def building_alone(folder: Path) -> Iterator[Path]:
    """As `building_folder`, while no other export of this name is written: that one is an InputError.

    A file beside the folder is locked meanwhile, and says where it is built: the next export finds it there if this
    one is killed, and only what such a file names is removed.
    """
    path = folder.with_name(f".{folder.name[:200]}.export.lock")

    def held(content: bytes) -> None:
        raise InputError("another process writes this export", where=str(folder), fix="wait for it, or name another")

    descriptor = None
    with contextlib.suppress(OSError):  # said when the folder itself can't be made
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = lock(path, held)
    try:
        if descriptor is not None:
            _remove_left(folder.parent, os.pread(descriptor, 1 << 12, 0))
        with building_folder(folder) as building:
            if descriptor is not None:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, os.fsencode(building.name), 0)
            yield building
    finally:
        if descriptor is not None:
            unlock(path, descriptor)


def _remove_left(parent: Path, name: bytes) -> None:
    left = os.fsdecode(name)
    if _BUILT.fullmatch(left) and "/" not in left and not (parent / left).is_symlink():
        shutil.rmtree(parent / left, ignore_errors=True)
