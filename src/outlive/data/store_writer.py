"""Writing a store: record batches appended to Arrow IPC stream files that are hashed on the way, the manifest last.

What was written can be taken up again by another process: `state` says how far it came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from outlive.data.appended import AppendedFile
from outlive.data.record_batch import Column, SampleBatch, SampleRows, schema, with_weights
from outlive.data.sample import Sample
from outlive.data.store import HASH, MANIFEST, VERSION, StoreFile, hash_of
from outlive.run.files import sibling, write_atomic

BATCH_TOKENS = 2**22  # tokens of a record batch: far below the 2^31 that list offsets allow
FILE_TOKENS = 2**28
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of an IPC stream: no message of 0 bytes follows


class StoreWriter:
    """Writes samples into `folder`; `close` writes the manifest. Bounded memory: one record batch.

    A column of weights is there from the first sample on whose weights are others than 0 and 1, for all samples.
    """

    def __init__(
        self, folder: Path, columns: Mapping[str, Column] | None = None, with_weight: bool = False,
        state: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.columns, self.with_weight = folder, dict(columns or {}), with_weight
        self.num_samples = self.num_groups = self.num_tokens = self.num_targets = 0
        self._rows = SampleRows()
        self._streams: list[_StreamFile] = []
        self._in_file = 0
        if state is not None:
            self._take_up(state)

    def add_row(
        self, samples: Iterable[Sample], sample_id: str, content_hash: int = 0, columns: Iterable[dict[str, Any]] = ()
    ) -> None:
        """Add the samples of one row. Those that belong together share a group; others are groups of their own."""
        samples = list(samples)
        self._rows.add(samples, sample_id, content_hash, list(columns) or [{} for _ in samples])
        if self._rows.num_tokens >= BATCH_TOKENS:
            self._flush()

    def add(self, made: SampleBatch) -> None:
        """Add a batch of samples, whose groups are numbered on from those that are here."""
        self._flush()
        self._write(made)

    def _flush(self) -> None:
        if self._rows.samples:
            rows, self._rows = self._rows, SampleRows()
            self._write(rows.batch(self.columns, self.with_weight or None))

    def _write(self, made: SampleBatch) -> None:
        if made.batch.num_rows == 0:
            return
        if made.has_weight and not self.with_weight:
            self._add_weights()
        batch = made.renumbered(self.num_groups)
        if self.with_weight and not made.has_weight:
            batch = with_weights(batch)
        if not self._streams or self._in_file >= FILE_TOKENS:
            self._close_file()
            self._streams.append(_StreamFile.new(self.folder / f"data-{len(self._streams):05d}.arrow", batch.schema))
        self._streams[-1].append(batch)
        self._in_file += made.num_tokens
        self.num_samples += batch.num_rows
        self.num_groups += made.num_groups
        self.num_tokens += made.num_tokens
        self.num_targets += made.num_targets

    def _add_weights(self) -> None:
        """Write the files again, with a column of weights."""
        self.with_weight = True
        self._end_streams()
        for place, file in enumerate(self._files):
            new = _StreamFile.new(sibling(file.path), schema(self.columns, with_weight=True))
            for batch in StoreFile(file.path).batches:
                new.append(with_weights(batch))
            if place < len(self._streams) - 1:
                new.end()
            new.file.move(file.path)
            self._streams[place] = new

    def _end_streams(self) -> None:
        if self._streams:
            self._streams[-1].end()

    def _close_file(self) -> None:
        self._end_streams()
        self._in_file = 0

    @property
    def _files(self) -> list[AppendedFile]:
        return [stream.file for stream in self._streams]

    @property
    def state(self) -> dict[str, Any]:
        """How far the writing came, as JSON: what `state` of a new writer in the same folder takes."""
        self._flush()
        return {
            "with_weight": self.with_weight,
            "in_file": self._in_file,
            "counts": [self.num_samples, self.num_groups, self.num_tokens, self.num_targets],
            "files": [[file.path.name, file.size, file.hexdigest] for file in self._files],
        }

    def _take_up(self, state: Mapping[str, Any]) -> None:
        self.with_weight, self._in_file = state["with_weight"], state["in_file"]
        self.num_samples, self.num_groups, self.num_tokens, self.num_targets = state["counts"]
        self._streams = [
            _StreamFile(AppendedFile(self.folder / name, size, digest)) for name, size, digest in state["files"]
        ]
        known = {file.path.name for file in self._files}
        for path in self.folder.glob("*"):
            if path.name not in known:  # begun after the state was taken
                path.unlink()

    def close(self, about: Mapping[str, Any]) -> None:
        """Write what is left, and the manifest: counts, size and hash of each file, `about` (settings, ledger …),
        and the hash of all that."""
        self._flush()
        self._close_file()
        manifest = {
            "store_version": VERSION,
            "num_samples": self.num_samples,
            "num_groups": self.num_groups,
            "num_tokens": self.num_tokens,
            "num_targets": self.num_targets,
            "columns": {name: vars(column) for name, column in self.columns.items()},
            "files": {file.path.name: {"size": file.size, "xxh3_128": file.hexdigest} for file in self._files},
            **about,
        }
        manifest = json.loads(json.dumps(manifest))  # hashed as it is read
        write_atomic(
            self.folder / MANIFEST, json.dumps({**manifest, HASH: hash_of(manifest)}, indent=1, ensure_ascii=False)
        )


class _StreamFile:
    """An Arrow IPC stream that is appended to."""

    def __init__(self, file: AppendedFile) -> None:
        self.file, self.ended = file, False

    @classmethod
    def new(cls, path: Path, schema: pa.Schema) -> _StreamFile:
        file = AppendedFile(path)
        file.append(schema.serialize())
        return cls(file)

    def append(self, batch: pa.RecordBatch) -> None:
        self.file.append(batch.serialize())

    def end(self) -> None:
        if not self.ended:
            self.file.append(_END)
            self.ended = True
