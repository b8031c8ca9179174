"""The store: samples on disk, as Arrow IPC stream files that other tools read, and a manifest that says what they are.

Columns: `input_ids` and `labels` (labels[t] = input_ids[t] where it is a target, else -100; unshifted), `weight` only
where weights other than 0 and 1 exist, `sample_id` ("source:row:part"), `group`, `role`, `prefix`, `content_hash`, and
the columns that a method declares. Files are memory-mapped: a sample costs 12 bytes of memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outlive.data.samples import Sample
from outlive.run.errors import InputError
from outlive.run.files import hash_file, write_atomic

VERSION = 3  # 2: the manifest has the files' sizes; 3: the ledger has lints, and more of a message is read
MANIFEST = "manifest.json"
IGNORED = -100
BATCH_TOKENS = 2**22  # tokens of a record batch: far below the 2^31 that list offsets allow
FILE_TOKENS = 2**28

Kind = Literal["token", "segment", "group"]


@dataclass(frozen=True)
class Column:
    """A column that a method declares: one number per token, per segment or per group."""

    kind: Kind
    dtype: Literal["float32", "int64"] = "float32"


def schema(columns: Mapping[str, Column], with_weight: bool) -> pa.Schema:
    """The Arrow schema of a store."""
    fields = [
        ("input_ids", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),
        ("sample_id", pa.string()),
        ("group", pa.int64()),
        ("role", pa.string()),
        ("prefix", pa.int32()),
        ("content_hash", pa.uint64()),
    ]
    if with_weight:
        fields.append(("weight", pa.list_(pa.float32())))
    for name, column in columns.items():
        value = pa.float32() if column.dtype == "float32" else pa.int64()
        fields.append((name, pa.list_(value) if column.kind == "token" else value))
    return pa.schema(fields)


class StoreWriter:
    """Writes samples into `folder`, row by row; `close` writes the manifest last. Bounded memory: one record batch."""

    def __init__(self, folder: Path, columns: Mapping[str, Column] | None = None, with_weight: bool = False) -> None:
        self.folder = folder
        self.columns = dict(columns or {})
        self.schema = schema(self.columns, with_weight)
        self._rows: list[dict[str, Any]] = []
        self._pending = self._in_file = self._num_files = 0
        self._file: Any = None
        self.num_samples = self.num_groups = self.num_tokens = self.num_targets = 0

    def add_row(
        self, samples: Iterable[Sample], sample_id: str, content_hash: int = 0, columns: Iterable[dict[str, Any]] = ()
    ) -> None:
        """Add the samples of one row. Those that belong together share a group; others are groups of their own."""
        samples = list(samples)
        values = list(columns) or [{} for _ in samples]
        for place, (sample, declared) in enumerate(zip(samples, values, strict=True)):
            if place == 0 or not sample.coupled:
                self.num_groups += 1
            record = {
                "input_ids": sample.tokens,
                "labels": np.where(sample.weights > 0, sample.tokens, IGNORED).astype(np.int32),
                "sample_id": f"{sample_id}:{sample.part}",
                "group": self.num_groups - 1,
                "role": sample.role,
                "prefix": sample.prefix,
                "content_hash": content_hash,
                **declared,
            }
            if "weight" in self.schema.names:
                record["weight"] = sample.weights
            elif not np.isin(sample.weights, (0, 1)).all():
                raise ValueError("a store without a weight column holds weights of 0 and 1 only")
            self._rows.append(record)
            self._pending += len(sample.tokens)
            self.num_samples += 1
            self.num_tokens += len(sample.tokens)
            self.num_targets += int(np.count_nonzero(sample.weights))
        if self._pending >= BATCH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._file is None or self._in_file >= FILE_TOKENS:
            self._close_file()
            path = self.folder / f"data-{self._num_files:05d}.arrow"
            self._file = pa.ipc.new_stream(str(path), self.schema)
            self._num_files, self._in_file = self._num_files + 1, 0
        arrays = [
            pa.array([row[name] for row in self._rows], type=self.schema.field(name).type) for name in self.schema.names
        ]
        self._file.write_batch(pa.record_batch(arrays, schema=self.schema))
        self._in_file += self._pending
        self._rows, self._pending = [], 0

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def close(self, about: Mapping[str, Any]) -> None:
        """Write what is left, and the manifest: counts, size and hash of each file, `about` (settings, ledger …)."""
        self._flush()
        self._close_file()
        files = {
            path.name: {"size": path.stat().st_size, "xxh3_128": hash_file(path)}
            for path in sorted(self.folder.glob("data-*.arrow"))
        }
        manifest = {
            "store_version": VERSION,
            "num_samples": self.num_samples,
            "num_groups": self.num_groups,
            "num_tokens": self.num_tokens,
            "num_targets": self.num_targets,
            "columns": {name: vars(column) for name, column in self.columns.items()},
            "files": files,
            **about,
        }
        write_atomic(self.folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))


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
        self._batches = [batch for name in self.manifest["files"] for batch in _read_batches(folder / name)]
        self._first = np.cumsum([0] + [batch.num_rows for batch in self._batches])
        offsets = [np.asarray(batch.column("input_ids").offsets) for batch in self._batches]
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
        return scalar.values.to_numpy(zero_copy_only=False) if isinstance(scalar, pa.ListScalar) else scalar.as_py()

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
        flat = [batch.column("input_ids").values.to_numpy() for batch in self._batches]
        return max((int(ids.max()) for ids in flat if len(ids)), default=-1)

    def whole_column(self, column: str) -> npt.NDArray[Any]:
        """A column of single numbers, of all samples."""
        if not self._batches:
            return np.zeros(0, np.int64)
        return np.concatenate([batch.column(column).to_numpy(zero_copy_only=False) for batch in self._batches])


def _read_batches(path: Path) -> list[pa.RecordBatch]:
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
