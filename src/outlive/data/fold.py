"""Chunks, made in any order and place, come together here in the order of their rows: one store, one ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from outlive.data.appended import AppendedFile
from outlive.data.chunks import Made
from outlive.data.ledger import Ledger
from outlive.data.lint_counts import LintCounts
from outlive.data.near import SKETCH
from outlive.data.record_batch import Column
from outlive.data.rows import ReadCounts
from outlive.data.store_writer import StoreWriter

_RECALLED = "earlier-rows"  # in the folder: what later rows are compared with


class Fold:
    """A source's stores as they grow, in `folder`/SIDE. `every_row`: lints that fit all rows.

    `state`, as JSON, says how far it came; a Fold of another process that is given it goes on from there.
    """

    def __init__(
        self, folder: Path, sides: Mapping[str, Mapping[str, Column]], ledger: Ledger, every_row: Sequence[str],
        state: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.ledger, self.every_row = ledger, every_row
        self.lints = LintCounts()
        self.num_chunks = 0
        self._writers: dict[str, StoreWriter] = {}
        taken = state["writers"] if state else {}
        for side, columns in sides.items():
            (folder / side).mkdir(exist_ok=True)
            self._writers[side] = StoreWriter(folder / side, columns, state=taken.get(side))
        self._recalled = AppendedFile(folder / _RECALLED, *(state["recalled"] if state else ()))
        if state is not None:
            self.num_chunks = state["num_chunks"]
            self.ledger = Ledger.from_json(state["ledger"])
            self.lints.take_up(state["lints"])
            self._recall()

    def add(self, made: Made) -> None:
        """Take in the next chunk."""
        if made.number != self.num_chunks:
            raise ValueError(f"chunk {made.number} is given where {self.num_chunks} is due")
        self.ledger.add(made.ledger)
        for side, batch in made.batches.items():
            self._writers[side].add(batch)
        compared = 0
        for place, (row, content_hash) in enumerate(zip(made.rows.tolist(), made.hashes.tolist(), strict=True)):
            sketch = made.sketches[place]
            compared += self.lints.compares
            self.lints.count(self.every_row, row)
            self.lints.add(row, made.lints.get(place, ()), content_hash, sketch if sketch[-1] else None)
        self._remember(made, compared)
        self.num_chunks += 1

    def _remember(self, made: Made, compared: int) -> None:
        sizes = np.array([len(made.rows), compared], np.int64)
        for values in (sizes, made.rows, made.hashes, made.sketches[:compared]):
            self._recalled.append(values.tobytes())

    def _recall(self) -> None:
        with self._recalled.path.open("rb") as file:
            while begin := file.read(16):
                number, compared = np.frombuffer(begin, np.int64).tolist()
                rows = np.frombuffer(file.read(8 * number), np.int64).tolist()
                hashes = np.frombuffer(file.read(8 * number), np.uint64).tolist()
                sketches = np.frombuffer(file.read(8 * SKETCH * compared), np.uint64).reshape(compared, SKETCH)
                for place in range(number):
                    sketch = sketches[place] if place < compared and sketches[place, -1] else None
                    self.lints.recall(rows[place], hashes[place], sketch)

    @property
    def num_tokens(self) -> int:
        return sum(writer.num_tokens for writer in self._writers.values())

    @property
    def state(self) -> dict[str, Any]:
        return {
            "num_chunks": self.num_chunks,
            "writers": {side: writer.state for side, writer in self._writers.items()},
            "recalled": [self._recalled.size, self._recalled.hexdigest],
            "ledger": self.ledger.to_json(),
            "lints": self.lints.to_json(),
        }

    def close(self, read: ReadCounts, about: Mapping[str, Any]) -> None:
        """Balance the ledger and write the manifests."""
        self.ledger.finish(read, self.lints)
        for side, writer in self._writers.items():
            writer.close({"side": side, "source": self.ledger.source, "ledger": self.ledger.to_json(), **about})
