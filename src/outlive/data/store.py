"""The store: samples on disk, as Arrow IPC stream files that other tools read, and a manifest that says what they are.

Columns: `input_ids` and `labels` (labels[t] = input_ids[t] where it is a target, else -100; unshifted), `weight` only
where weights other than 0 and 1 exist, `sample_id` ("source:row:part"), `group`, `role`, `prefix`, `content_hash`, and
the columns that a method declares. Files are memory-mapped: a sample costs 12 bytes of memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outlive.data.record_batch import IGNORED, Column, as_numpy
from outlive.run.errors import InputError
from outlive.run.files import hash_file

VERSION = 3  # 2: the manifest has the files' sizes; 3: the ledger has lints, and more of a message is read
MANIFEST = "manifest.json"


class Store:
    """Samples of a store folder, read through memory maps. Indices are 0-based; arrays are views, not copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.manifest: dict[str, Any] = dict(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        except FileNotFoundError:
            fix = "name a store's folder; `outlive prepare` prints it"
            raise InputError("this is no store: it has no manifest.json", where=str(folder), fix=fix) from None
        except (ValueError, TypeError) as error:
            raise _damaged(folder / MANIFEST, error) from None
        if self.manifest.get("store_version") != VERSION:
            raise InputError(
                f"the store has version {self.manifest.get('store_version')}; this version of outlive reads {VERSION}",
                where=str(folder),
                fix="nothing has to be mended: `outlive prepare` and `outlive train` build a new store from the rows, "
                "beside this one, which can be deleted",
            )
        try:
            self._check_sizes()
            self.columns = {name: Column(**about) for name, about in self.manifest["columns"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(folder / MANIFEST, f"{type(error).__name__}: {error}") from None
        self._batches = [batch for name in self.manifest["files"] for batch in read_batches(folder / name)]
        self._first = np.cumsum([0] + [batch.num_rows for batch in self._batches])
        offsets = [as_numpy(batch.column("input_ids").offsets) for batch in self._batches]
        lengths = [np.diff(offset).astype(np.int32) for offset in offsets]
        self.lengths: npt.NDArray[np.int32] = np.concatenate(lengths) if lengths else np.zeros(0, np.int32)

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
            if hash_file(self.folder / name) != expected["xxh3_128"]:
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
        flat = [as_numpy(batch.column("input_ids").values) for batch in self._batches]
        return max((int(ids.max()) for ids in flat if len(ids)), default=-1)

    def whole_column(self, column: str) -> npt.NDArray[Any]:
        """A column of single numbers, of all samples."""
        if not self._batches:
            return np.zeros(0, np.int64)
        return np.concatenate([as_numpy(batch.column(column)) for batch in self._batches])


def read_batches(path: Path) -> list[pa.RecordBatch]:
    """The record batches of a file of a store, memory-mapped. Raises InputError where it is damaged."""
    try:
        with pa.memory_map(str(path)) as source:
            return list(pa.ipc.open_stream(source))
    except (pa.ArrowInvalid, OSError) as error:  # cut, emptied or gone
        raise _damaged(path, error) from None


def _damaged(file: Path, why: object) -> InputError:
    return InputError(
        f"a file of the store is damaged: {why}",
        where=str(file),
        fix=f"delete {file.parent}: it is built again from the rows",
    )
