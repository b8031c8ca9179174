"""A file that grows, hashed while it is written: another process can go on with it, and know that it is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import xxhash

from outlive.run.files import disk_error

_BLOCK = 1 << 20


class Damaged(Exception):
    """A file is not as it was left."""


class AppendedFile:
    """A new file, or one of which `size` bytes with the xxh3-128 `hexdigest` were written: what follows is cut off.

    Raises Damaged where it holds other bytes. The file is opened for each append: many of them cost no descriptors.
    """

    def __init__(self, path: Path, size: int = 0, hexdigest: str | None = None) -> None:
        self.path, self.size, self._digest = path, size, xxhash.xxh3_128()
        if hexdigest is None:
            self.append(b"")
        else:
            self._take_up(hexdigest)

    def _take_up(self, hexdigest: str) -> None:
        left = self.size
        try:
            with self.path.open("r+b") as file:
                while left and (block := file.read(min(left, _BLOCK))):
                    self._digest.update(block)
                    left -= len(block)
                file.truncate(self.size)
        except OSError as error:
            raise Damaged(f"{self.path.name}: {error.strerror}") from None
        if left or self.hexdigest != hexdigest:
            raise Damaged(f"{self.path.name} holds other bytes than were written")

    @property
    def hexdigest(self) -> str:
        """The xxh3-128 of what was written, as 32 hex digits."""
        return self._digest.hexdigest()

    def append(self, data: Any) -> None:
        """Write `data` (bytes, or an object with a buffer of them) at the end. Raises WorkError for a full disk."""
        try:
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as error:
            raise disk_error(error, self.path) from error
        self._digest.update(data)
        self.size += len(data)

    def move(self, path: Path) -> None:
        """Give the file another name, in place of a file that may have it."""
        os.replace(self.path, path)
        self.path = path
