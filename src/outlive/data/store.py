"""The store: samples on disk, as Arrow IPC stream files that other tools read, and a manifest that says what they are.

Columns: `input_ids` and `labels` (labels[t] = input_ids[t] where it is a target, else -100; unshifted), `weight` only
where weights other than 0 and 1 exist, `sample_id` ("source:row:part"), `group`, `role`, `prefix`, `content_hash`, and
the columns that a method declares. Files are memory-mapped: a sample costs 12 bytes of memory.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outlive.data.record_batch import IGNORED, Column, as_numpy, schema
from outlive.run.errors import InputError, WorkError
from outlive.run.files import hash_file, hash_json

VERSION = 3  # 2: the manifest has the files' sizes; 3: the ledger has lints, and more of a message is read
MANIFEST = "manifest.json"
HASH = "manifest_hash"  # of all other entries of the manifest: the files' hashes stand there


class Store:
    """Samples of a store folder, read through memory maps. Indices are 0-based; arrays are views, not copies.

    is_whole: whether no more samples will come; those of a finished store are all there.
    """

    is_whole = True

    def __init__(self, folder: Path, verify: bool = False) -> None:
        """Open a store. `verify`: read its files and compare them with their hashes first. Raises InputError."""
        self.folder = folder
        self.manifest = _read_manifest(folder)
        try:
            self._check_sizes()
            self.columns = {name: Column(**about) for name, about in self.manifest["columns"].items()}
            names = list(self.manifest["files"])
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(folder / MANIFEST, f"{type(error).__name__}: {error}") from None
        if verify:
            self.verify()
        self._hold([self._open(folder / name) for name in names])

    def _open(self, path: Path) -> StoreFile:
        file = StoreFile(path)
        if not file.schema.equals(schema(self.columns, with_weight="weight" in file.schema.names)):
            raise _damaged(path, "its columns are not those of a store")
        return file

    def refresh(self) -> bool:
        """Take in samples that came since; whether there are more. A finished store has them all."""
        return False

    def _hold(self, files: Sequence[StoreFile]) -> None:
        """Make what is in these the samples of the store."""
        self._files = files
        self._batches = [batch for file in files for batch in file.batches]
        self._first = np.cumsum([0] + [batch.num_rows for batch in self._batches])
        offsets = self._of_each(lambda batch: as_numpy(batch.column("input_ids").offsets))
        lengths = [np.diff(offset).astype(np.int32) for offset in offsets]
        self.lengths: npt.NDArray[np.int32] = np.concatenate(lengths) if lengths else np.zeros(0, np.int32)

    def _of_each(self, part: Callable[[pa.RecordBatch], npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Copies of a part of each record batch. What this reads of the files does not stay in memory."""
        found = []
        for file in self._files:
            found += [part(batch).copy() for batch in file.batches]
            file.let_go()
        return found

    def __len__(self) -> int:
        return len(self.lengths)

    def _check_sizes(self) -> None:
        for name, expected in self.manifest["files"].items():
            try:
                size = (self.folder / name).stat().st_size
            except OSError as error:
                raise _damaged(self.folder / name, error.strerror) from None
            if size != expected["size"]:
                raise _damaged(self.folder / name, f"it has {size} bytes, and was written with {expected['size']}")

    def verify(self) -> None:
        """Compare every file with its hash in the manifest. Raises InputError where one differs."""
        for name, expected in self.manifest["files"].items():
            try:
                is_same = hash_file(self.folder / name) == expected["xxh3_128"]
            except WorkError as error:
                raise _damaged(self.folder / name, error.what) from None
            if not is_same:
                raise _damaged(self.folder / name, "its hash is another")

    def value(self, index: int, column: str) -> Any:
        """One sample's value of a column: a numpy view for lists, else a Python number or text."""
        batch_index = int(np.searchsorted(self._first, index, side="right")) - 1
        scalar = self._batches[batch_index].column(column)[index - int(self._first[batch_index])]
        return as_numpy(scalar.values) if isinstance(scalar, pa.ListScalar) else scalar.as_py()

    def tokens(self, index: int) -> npt.NDArray[np.int32]:
        """Token ids, int32 [L]."""
        return np.asarray(self.value(index, "input_ids"))

    @property
    def has_weights(self) -> bool:
        """Whether there is a column of weights, which may be others than 0 and 1."""
        return bool(self._batches) and "weight" in self._batches[0].schema.names

    def weights(self, index: int) -> npt.NDArray[np.float32]:
        """Target weights, float32 [L]: weights[t] belongs to tokens[t] as a target."""
        if self.has_weights:
            return np.asarray(self.value(index, "weight"))
        weights: npt.NDArray[np.float32] = (np.asarray(self.value(index, "labels")) != IGNORED).astype(np.float32)
        return weights

    def max_token(self) -> int:
        """The largest token id; -1 where there is no token."""
        return max((int(largest) for largest in self._of_each(largest_token)), default=-1)

    def whole_column(self, column: str) -> npt.NDArray[Any]:
        """A column of single numbers, of all samples."""
        found = self._of_each(lambda batch: as_numpy(batch.column(column)))
        return np.concatenate(found) if found else np.zeros(0, np.int64)


class StoreFile:
    """A file of a store, or the first `num_bytes` of one that grows: its record `batches`, which are views of it.

    Raises InputError where it is damaged.
    """

    def __init__(self, path: Path, num_bytes: int | None = None) -> None:
        try:
            with path.open("rb") as file:
                self._mapped = mmap.mmap(file.fileno(), num_bytes or 0, access=mmap.ACCESS_READ)
            stream = pa.ipc.open_stream(pa.py_buffer(self._mapped))
            self.schema: pa.Schema = stream.schema
            self.batches: list[pa.RecordBatch] = list(stream)
            for batch in self.batches:
                batch.validate()
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # cut, emptied, gone, or other bytes
            raise _damaged(path, error) from None
        self.let_go()

    def let_go(self) -> None:
        """Give back the memory that the pages read so far take in this process: huge ones, where few bytes were read.
        They are mapped again when they are read again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


def hash_of(manifest: Mapping[str, Any]) -> str:
    """The hash of a manifest's content, its own entry left out."""
    return hash_json({name: value for name, value in manifest.items() if name != HASH})


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, as it was written. Raises InputError where there is none, of another version, and where a byte of
    its content is another."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
        version = manifest.get("store_version")
        is_whole = manifest.get(HASH) == hash_of(manifest)
    except FileNotFoundError:
        fix = "name a store's folder; `outlive prepare` prints it"
        raise InputError("this is no store: it has no manifest.json", where=str(folder), fix=fix) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None
    if version != VERSION:
        raise InputError(
            f"the store has version {version}; this version of outlive reads {VERSION}",
            where=str(folder),
            fix="nothing has to be mended: `outlive prepare` and `outlive train` build a new store from the rows, "
            "beside this one, which can be deleted",
        )
    if HASH not in manifest:
        raise _damaged(path, f"it has no {HASH}, as those of earlier versions of outlive")
    if not is_whole:
        raise _damaged(path, "its content is not what was written")
    return manifest


def largest_token(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The largest token id, int64 []; -1 where there is no token."""
    ids = as_numpy(batch.column("input_ids").values)
    return np.array(ids.max() if len(ids) else -1, dtype=np.int64)


def _damaged(file: Path, why: object) -> InputError:
    return InputError(
        f"a file of the store is damaged: {why}",
        where=str(file),
        fix=f"delete {file.parent}: it is built again from the rows",
    )
