"""A store that is read while another process still makes it: training begins with its first samples."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import xxhash

from outlive.data.appended import Damaged
from outlive.data.builder import Task
from outlive.data.building import damage, is_there, unfinished_folder
from outlive.data.ledger import Ledger
from outlive.data.preparer import STATE, Preparer, Progress, are_whole, no_progress, saved_state
from outlive.data.record_batch import Column
from outlive.data.sources import resolve
from outlive.data.store import VERSION, Store, StoreFile, largest_token
from outlive.data.workers import died, receive, send, start_python
from outlive.run.config import Source
from outlive.run.errors import InputError, OutliveError, WorkError
from outlive.run.notes import to_stderr

POLL_SECONDS = 0.2
_COUNTS = ("num_samples", "num_groups", "num_tokens", "num_targets")
_BLOCK = 1 << 20
_growing: dict[Path, GrowingStore] = {}


class Builder:
    """The process that prepares a source. It ends with this one, or with `end`; what it did then is taken up again by
    the next. `say`, `progress`: who is told its notes and how far it is."""

    def __init__(
        self,
        preparer: Preparer,
        source: Source,
        say: Callable[[str], None],
        progress: Callable[[Progress], None] = no_progress,
    ) -> None:
        self.say, self.progress = say, progress
        self._error: OutliveError | None = None
        self._is_done = False
        self._process = start_python("outlive.data.builder")
        try:
            send(self._process.stdin, pickle.dumps(Task.of(preparer, source), protocol=5))
        except OSError:
            raise died(self._process) from None
        self._listener = threading.Thread(target=self._listen, name="preparation", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while (message := receive(self._process.stdout)) is not None:
            told = pickle.loads(message)
            if isinstance(told, str):
                self.say(told)
            elif isinstance(told, Progress):
                self.progress(told)
            elif isinstance(told, OutliveError):
                self._error = told
            else:
                self._is_done = True

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._listener.is_alive()

    def error(self) -> OutliveError | None:
        """Why it ended without a store, where it has."""
        return None if self._is_done or not self.is_over else self._error or died(self._process)

    def end(self) -> None:
        """End it, wherever it is."""
        self._process.kill()
        self._process.wait()
        self._listener.join()


class GrowingStore(Store):
    """The samples of an unfinished store that are there so far: those of rows up to one that is known to be written.

    `refresh` takes in what came since. Samples keep their numbers, and are those of the finished store. `manifest`:
    what is known of the finished one's. `builder`: who makes it.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], columns: Mapping[str, Column], builder: Builder) -> None:
        self.folder, self.columns, self.builder = folder, dict(columns), builder
        self.manifest = {
            "store_version": VERSION, "side": "train", **dict.fromkeys(_COUNTS, 0), "files": {},
            "columns": {name: vars(column) for name, column in columns.items()},
            "ledger": Ledger(str(about["source"])).to_json(), **about,
        }  # fmt: skip
        self.is_whole = False
        self._mark: object = None
        self._parts: dict[str, _GrowingFile] = {}
        self._largest, self._looked_at = -1, 0
        self._hold([])

    @property
    def ledger(self) -> Ledger:
        """What became of the rows that are here."""
        return Ledger.from_json(self.manifest["ledger"])

    def refresh(self) -> bool:
        """Take in what was prepared since; whether there is more, or the store is whole now.

        Raises what the preparation has ended with, where it failed.
        """
        if self.is_whole:
            return False
        is_over = self.builder.is_over  # asked first: all that it made is there then
        if is_there(self.folder) and damage(self.folder) is None:
            self._become(Store(self.folder))
            return True
        if is_over:
            raise self.builder.error() or WorkError(
                "the prepared data are gone", where=str(self.folder), fix="go on with --resume: they are made again"
            )
        return self._take_in(unfinished_folder(self.folder))

    def _become(self, whole: Store) -> None:
        self.manifest, self.is_whole = whole.manifest, True
        self._parts.clear()
        self._hold(whole._files)

    def _take_in(self, folder: Path) -> bool:
        """Read up to where the builder's last state says that files reach; no change where they can't be read so."""
        try:
            mark = (folder / STATE).stat().st_mtime_ns
            if mark == self._mark:
                return False
            state = saved_state(folder)
            mine = state["writers"]["train"]
            files = [self._file(folder / "train", *about) for about in mine["files"]]
        except (OSError, Damaged, InputError, ValueError, KeyError, TypeError):
            return False  # it is begun anew, moved to its final name, or written in another way just now
        counts = dict(zip(_COUNTS, mine["counts"], strict=True))
        if counts["num_samples"] != sum(batch.num_rows for file in files for batch in file.batches):
            return False
        self._mark = mark
        self.manifest |= {**counts, "ledger": state["ledger"]}
        if counts["num_samples"] <= len(self):
            return False
        self._hold(files)
        return True

    def _file(self, folder: Path, name: str, size: int, hexdigest: str) -> StoreFile:
        return self._parts.setdefault(name, _GrowingFile(folder / name)).file(size, hexdigest)

    def max_token(self) -> int:
        """The largest token id of what is here; each is looked at once."""
        new = self._batches[self._looked_at :]
        self._looked_at = len(self._batches)
        self._largest = max([self._largest, *(int(largest_token(batch)) for batch in new)])
        return self._largest

    def wait(self, enough: Callable[[], bool], stop: Callable[[], bool] = lambda: False) -> None:
        """Take in samples until there are enough, or the store is whole, or it is to `stop`."""
        while not (enough() or self.is_whole or stop()):
            if not self.refresh():
                time.sleep(POLL_SECONDS)


class _GrowingFile:
    """A file that another process appends to. What is read of it has the hash that it was written with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._size, self._digest = 0, xxhash.xxh3_128()
        self._read: StoreFile | None = None

    def file(self, size: int, hexdigest: str) -> StoreFile:
        """The file up to byte `size`. Raises Damaged where this part has another hash."""
        if size < self._size:
            self._begin_anew()
        known = self._size
        with self.path.open("rb") as file:
            file.seek(self._size)
            while self._size < size and (block := file.read(min(size - self._size, _BLOCK))):
                self._digest.update(block)
                self._size += len(block)
        if self._size != size or self._digest.hexdigest() != hexdigest:
            self._begin_anew()  # a file may be written again, with a column more
            raise Damaged(f"{self.path.name} holds other bytes than were written")
        if self._read is None or size > known:
            self._read = StoreFile(self.path, size)
        return self._read


def begin(preparer: Preparer, source: Source) -> GrowingStore | None:
    """Prepare a source in a process of its own; its store, which grows. None where it is prepared already."""
    files = resolve(source, preparer.say)
    folder = preparer.folders(source, files.identity, 0.0)["train"]
    if are_whole([folder]):
        return None
    if (growing := _growing.get(folder)) is not None and not growing.builder.is_over:
        return growing
    about = {"source": files.name, **preparer.about(files.identity), **files.about}
    builder = Builder(preparer, source, preparer.say, preparer.progress)
    _growing[folder] = GrowingStore(folder, about, preparer.columns, builder)
    return _growing[folder]


def open_store(folder: Path) -> Store:
    """The store of this folder, which may still be growing."""
    return _growing.get(folder) or Store(folder)


def end_growing(stores: Iterable[Store], say: Callable[[str], None] = to_stderr) -> list[GrowingStore]:
    """End the preparation of those of the stores that grow, when they have taken in what is there. These stores."""
    growing = [store for store in stores if isinstance(store, GrowingStore)]
    for store in growing:
        try:
            store.refresh()
        except OutliveError as error:
            say(f"the preparation of the data has failed: {error}")
        store.builder.end()
        _growing.pop(store.folder, None)
    return growing
