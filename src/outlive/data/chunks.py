"""Rows in chunks: what one worker makes of some of a source's rows, knowing nothing of the others."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.data.ledger import Ledger
from outlive.data.naming import Naming
from outlive.data.near import SKETCH
from outlive.data.pipeline import RowReader, RowResult
from outlive.data.record_batch import Column, SampleBatch, SampleRows
from outlive.data.rows import Row, lines_at, parsed
from outlive.data.samples import Policy, SampleMaker
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer

CHUNK_BYTES = 1 << 19  # of rows as they are read: some tenths of a second's work; a store's bytes depend on it
CHUNK_ROWS = 4096
FIRST_ROWS = 16  # of a source's first chunk, which shows the format that all others wait for


class Chunk(NamedTuple):
    """Rows that follow each other in a source, not parsed yet. `format`: the source's; empty until it is known."""

    number: int
    rows: list[Row]
    format: str = ""

    def reference(self, paths: Mapping[str, Path]) -> Reference:
        """Where the rows stand, for a process that can read their file; what has no place is taken along.

        `paths`: of the source's files by `Row.file`.
        """
        first, last = self.rows[0], self.rows[-1]
        if first.place is None or last.place is None or first.file != last.file:
            return Reference(self.number, self.format, None, self.rows, 0)
        begin = replace(first, raw=b"", refusal=None)
        return Reference(self.number, self.format, paths[first.file], [begin], last.place[1])


class Reference(NamedTuple):
    """A chunk by the place of its rows: those of file `path` from `rows[0]` to byte `end`; or its rows themselves."""

    number: int
    format: str
    path: Path | None
    rows: list[Row]
    end: int

    def chunk(self) -> Chunk:
        """The chunk, read from its file. Raises InputError where that can't be read."""
        rows = self.rows if self.path is None else list(lines_at(self.path, self.rows[0], self.end))
        return Chunk(self.number, rows, self.format)


def chunks_of(rows: Iterable[Row]) -> Iterator[Chunk]:
    """Cut a source's rows into chunks, always in the same places."""
    number, own, size, most = 0, list[Row](), 0, FIRST_ROWS
    for row in rows:
        own.append(row)
        size += len(row.raw)
        if size >= CHUNK_BYTES or len(own) >= most:
            yield Chunk(number, own)
            number, own, size, most = number + 1, [], 0, CHUNK_ROWS
    if own:
        yield Chunk(number, own)


@dataclass
class Made:
    """What became of a chunk: its samples on each side, and what was seen of its rows.

    `ledger`: of these rows alone. Of the rows that were kept, in order: `rows` int64 [R], their numbers; `hashes`
    uint64 [R]; `sketches` uint64 [R, SKETCH], 0 where the text is too short for one. `lints`: of the rows that have
    some, by place in `rows`.
    """

    number: int
    batches: dict[str, SampleBatch]
    ledger: Ledger
    rows: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    sketches: npt.NDArray[np.uint64]
    lints: dict[int, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """All that decides what a row becomes, in a form that another process can be given.

    `share`: of the rows, those whose content falls below it are for validation. `source`: the name of the rows' file.
    """

    source: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    policy: Policy
    columns: Mapping[str, Column]
    naming: Naming | None
    share: float
    name: str  # of the file, in the samples' ids

    @cached_property
    def reader(self) -> RowReader:
        maker = SampleMaker(self.tokenizer, self.template, self.policy)
        return RowReader(self.source, maker, self.columns, self.naming)

    def make(self, chunk: Chunk) -> Made:
        """The samples of a chunk: a function of the recipe and the chunk alone. Raises InputError for what stops all
        of the preparation; what is wrong with a row is in the ledger."""
        with _no_pauses():
            return self._make(chunk)

    def _make(self, chunk: Chunk) -> Made:
        ledger = Ledger(self.source, format=chunk.format)
        sides = {"train": SampleRows(), "validation": SampleRows()}
        kept: list[RowResult] = []
        for result in self.reader.read(map(parsed, chunk.rows), ledger):
            row = result.row
            ledger.take(row, result.refusal)
            if result.refusal is None:
                side = side_of(result.content_hash, self.share)
                ledger.validation_rows += side == "validation"
                declared = [result.columns for _ in result.samples]
                name = f"{row.file or self.name}:{row.index}"
                sides[side].add(result.samples, name, result.content_hash, declared)
                kept.append(result)
        return Made(
            chunk.number,
            {side: rows.batch(self.columns) for side, rows in sides.items() if rows.samples},
            ledger,
            np.array([result.row.index for result in kept], np.int64),
            np.array([result.content_hash for result in kept], np.uint64),
            _stacked([result.sketch for result in kept]),
            {place: list(result.lints) for place, result in enumerate(kept) if result.lints},
        )

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if key != "reader"}


@contextmanager
def _no_pauses() -> Iterator[None]:
    """Without the collector of cycles: a chunk's many objects hold no cycles worth looking for again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def side_of(content_hash: int, share: float) -> str:
    """Equal rows land on one side, since the side is a function of the content alone."""
    return "validation" if content_hash < share * 2**64 else "train"


def _stacked(sketches: list[npt.NDArray[np.uint64] | None]) -> npt.NDArray[np.uint64]:
    stacked = np.zeros((len(sketches), SKETCH), np.uint64)
    for place, sketch in enumerate(sketches):
        if sketch is not None:
            stacked[place] = sketch
    return stacked
