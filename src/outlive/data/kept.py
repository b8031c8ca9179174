"""Files that can be fetched or unpacked again, kept in $OUTLIVE_HOME/sources: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outlive.run.files import disk_error, sibling, sync_folder
from outlive.run.home import outlive_home


class Kept:
    """One of them. `key`: a hash of what decides its content; `name`: its file's name."""

    def __init__(self, key: str, name: str) -> None:
        self.path = outlive_home() / "sources" / key / (name or "rows")

    @property
    def is_there(self) -> bool:
        return self.path.is_file()

    @contextmanager
    def writing(self) -> Iterator[Callable[[bytes], int]]:
        """Write it, block by block. It has its name when the block ends well; else nothing stays. Raises WorkError."""
        temporary = sibling(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                yield file.write
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
            with contextlib.suppress(OSError):
                for folder in list(self.path.parents)[:3]:
                    folder.rmdir()  # where nothing came into it
