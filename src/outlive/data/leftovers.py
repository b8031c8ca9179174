"""What interrupted preparations left among the stores: removed once it is old and nobody can be at work on it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from outlive.run.flock import try_lock, unlock
from outlive.run.sizes import size

KEPT_DAYS = 7  # so long the next start may go on in an unfinished store
# The names that builders give to what they make beside a store: see data/building.py
_LEFTOVER = re.compile(r"\.([0-9a-f]{32})\.(?:unfinished|lock|[0-9a-f]{16}\.tmp)")


def remove_leftovers(stores: Path, say: Callable[[str], None]) -> None:
    """Remove unfinished stores and what lies beside them, of all keys whose lock nobody holds, when nothing of it was
    written for `KEPT_DAYS`; `say` tells how large it was. The lock is held meanwhile, so that a builder that starts
    waits for the end. What has no lock that can be taken, for whatever reason, stays.
    """
    before = time.time() - KEPT_DAYS * 86400
    removed = [entry for key in sorted(_old(stores, before)) for entry in _remove(stores, key, before)]
    if removed:
        say(
            f"{stores}: {len(removed)} interrupted preparations that nobody went on with for {KEPT_DAYS} days are "
            f"removed, {size(sum(removed))}"
        )


def _old(stores: Path, before: float) -> dict[str, list[Path]]:
    """What was last written before that time (Unix, seconds), by the key of the store that it was to become."""
    found = defaultdict(list)
    with contextlib.suppress(OSError):
        for entry in os.scandir(stores):
            named = _LEFTOVER.fullmatch(entry.name)
            if named and not entry.is_symlink() and _last_written(entry.path) < before:
                found[named[1]].append(Path(entry.path))
    return found


def _remove(stores: Path, key: str, before: float) -> list[int]:
    """The sizes of the folders that are gone, in bytes."""
    lock_file = stores / f".{key}.lock"
    try:
        descriptor = try_lock(lock_file)
    except OSError:  # another user's, or a disk that can only be read
        return []
    if descriptor is None:
        return []
    removed = []
    try:
        for entry in _old(stores, before).get(key, []):  # a builder may have come and gone before the lock was taken
            if entry == lock_file:
                continue
            num_bytes = sum(about.st_size for about in _all_in(entry))
            shutil.rmtree(entry, ignore_errors=True)
            if not os.path.lexists(entry):
                removed.append(num_bytes)
    finally:
        unlock(lock_file, descriptor)
    return removed


def _last_written(path: str) -> float:
    return max((about.st_mtime for about in _all_in(Path(path))), default=time.time())


def _all_in(path: Path) -> Iterator[os.stat_result]:
    """Of a file or a folder, and of all that is in it. What goes away meanwhile is passed over."""
    names = [str(path)]
    names += [os.path.join(root, name) for root, folders, files in os.walk(path) for name in (*folders, *files)]
    for name in names:
        with contextlib.suppress(OSError):
            yield os.lstat(name)
