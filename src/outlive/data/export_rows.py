"""Prepared samples on their way out: in the stores' order or a plan's, one by one or pack by pack, as Arrow rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outlive.data.plan import Mixture, Plan
from outlive.data.record_batch import IGNORED, Column
from outlive.run.errors import InputError

BATCH_TOKENS = 2**20  # tokens of a record batch or row group: what an export holds in memory
_NUMBERS = {"float32": pa.float32(), "int64": pa.int64()}


class Piece(NamedTuple):
    """A sample, or the segment of one that a plan cut: `tokens` int32 [L], `weights` float32 [L].

    weights[t] belongs to tokens[t] as a target, weights[0] = 0. `part` counts the segments of one sample. `group` is
    counted over all stores of the mixture; `prefix` is the place, within the group, of the sample that this one goes
    on from, or -1. `columns` holds what the method declared: [L] for a column of tokens, else one number.
    """

    tokens: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    sample_id: str
    part: int
    group: int
    role: str
    prefix: int
    columns: dict[str, Any]

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """The token where it is a target, else -100; int32 [L], unshifted."""
        return np.where(self.weights > 0, self.tokens, IGNORED).astype(np.int32)

    @property
    def grouped(self) -> bool:
        """Whether the sample belongs to a group: a pair, or branches of one prompt."""
        return bool(self.role) or self.prefix >= 0


@dataclass(frozen=True)
class Outgoing:
    """What is exported of one side of the data: all samples once, in the stores' order; with a plan, its segments."""

    mixture: Mixture
    plan: Plan | None = None

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that the method declared."""
        return {name: column for store in self.mixture.stores for name, column in store.columns.items()}

    @property
    def has_weights(self) -> bool:
        """Whether there are weights other than 0 and 1."""
        return any(store.has_weights for store in self.mixture.stores)

    def packs(self) -> Iterator[list[Piece]]:
        """The segments of each pack of the plan; without a plan, each sample alone."""
        first_group = np.cumsum([0, *(store.manifest["num_groups"] for store in self.mixture.stores)]).tolist()
        if self.plan is not None:
            for pack in range(self.plan.num_packs):
                yield [
                    self._piece(s.store, s.sample, first_group[s.store], slice(s.start, s.end), s.part)
                    for s in self.plan.segments(pack)
                ]
            return
        for number, store in enumerate(self.mixture.stores):
            for index in range(len(store)):
                yield [self._piece(number, index, first_group[number])]

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Each segment with the number of its pack; without a plan, each sample with its own number."""
        return ((number, piece) for number, pieces in enumerate(self.packs()) for piece in pieces)

    def _piece(self, number: int, index: int, first_group: int, cut: slice = slice(None), part: int = 0) -> Piece:
        store = self.mixture.stores[number]
        weights = store.weights(index)[cut].copy()
        weights[:1] = 0  # where a plan cuts a sample, the next segment begins with a token that it only reads
        columns = {
            name: np.asarray(store.value(index, name))[cut] if column.kind == "token" else store.value(index, name)
            for name, column in store.columns.items()
        }
        names = (str(store.value(index, name)) for name in ("sample_id", "role"))
        sample_id, role = names
        group, prefix = (int(store.value(index, name)) for name in ("group", "prefix"))
        return Piece(store.tokens(index)[cut], weights, sample_id, part, first_group + group, role, prefix, columns)


@dataclass
class Counts:
    """What was written: rows of the files, samples (or segments), tokens, and tokens that are targets."""

    rows: int = 0
    samples: int = 0
    tokens: int = 0
    targets: int = 0

    def about(self, of_plan: bool) -> dict[str, int]:
        """For a manifest. What a plan holds are segments: a sample may come several times, or cut into several."""
        return {"segments" if of_plan and name == "samples" else name: number for name, number in vars(self).items()}

    def add(self, pieces: Iterable[Piece]) -> None:
        """Count one row."""
        self.rows += 1
        for piece in pieces:
            self.samples += 1
            self.tokens += len(piece.tokens)
            self.targets += int(np.count_nonzero(piece.weights))


def arrow_schema(outgoing: Outgoing) -> pa.Schema:
    """The columns of a table: a sample a row, or, with a plan, a pack a row. Raises InputError for a name used twice.

    Of a pack, what belongs to tokens is laid end to end, and what belongs to its segments are lists over `seq_lengths`.
    """
    packed = outgoing.plan is not None
    fields: dict[str, Any] = {"input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32())}
    if outgoing.has_weights:
        fields["weight"] = pa.list_(pa.float32())
    if packed:
        fields |= {"position_ids": pa.list_(pa.int32()), "seq_lengths": pa.list_(pa.int32())}
    each: dict[str, Any] = {"sample_id": pa.string(), "group": pa.int64(), "role": pa.string()}
    each["part" if packed else "prefix"] = pa.int32()
    fields |= {name: pa.list_(kind) if packed else kind for name, kind in each.items()}
    refuse_taken(outgoing.columns, fields)
    for name, column in outgoing.columns.items():
        number = _NUMBERS[column.dtype]
        fields[name] = pa.list_(number) if packed or column.kind == "token" else number
    return pa.schema(list(fields.items()))


def refuse_taken(columns: Mapping[str, Column], names: Iterable[str]) -> None:
    """Raise InputError where a column of the method has a name that the format gives to something else."""
    for name in names:
        if name in columns:
            raise InputError(
                f"the export has a column `{name}` of its own, and the method declares one of that name",
                where=f"method.columns: {name}",
                fix="give the method's column another name",
            )


def arrow_batches(outgoing: Outgoing, schema: pa.Schema, counts: Counts) -> Iterator[pa.RecordBatch]:
    """The rows as record batches of about BATCH_TOKENS tokens. Raises InputError for packs that share a prefix."""
    rows: list[dict[str, Any]] = []
    pending = 0
    for pieces in outgoing.packs():
        rows.append(_pack(pieces, outgoing.columns) if outgoing.plan is not None else _sample(pieces[0]))
        counts.add(pieces)
        pending += sum(len(piece.tokens) for piece in pieces)
        if pending >= BATCH_TOKENS:
            yield _batch(rows, schema)
            rows, pending = [], 0
    if rows:
        yield _batch(rows, schema)


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array([row[name] for row in rows], type=schema.field(name).type) for name in schema.names]
    return pa.record_batch(arrays, schema=schema)


def _sample(piece: Piece) -> dict[str, Any]:
    return {
        "input_ids": piece.tokens,
        "labels": piece.labels,
        "weight": piece.weights,
        "sample_id": piece.sample_id,
        "group": piece.group,
        "role": piece.role,
        "prefix": piece.prefix,
        **piece.columns,
    }


def _pack(pieces: list[Piece], columns: Mapping[str, Column]) -> dict[str, Any]:
    for piece in pieces:
        if piece.prefix >= 0:
            raise InputError(
                "a pack can't be exported whose samples go on from a shared prompt: tools keep the segments of a pack "
                "apart, so that the answer would be trained without its prompt",
                where=f"{piece.sample_id}, role {piece.role or 'none'}",
                fix="--order store, or --export jsonl",
            )
    return {
        "input_ids": np.concatenate([piece.tokens for piece in pieces]),
        "labels": np.concatenate([piece.labels for piece in pieces]),
        "weight": np.concatenate([piece.weights for piece in pieces]),
        "position_ids": np.concatenate([np.arange(len(piece.tokens), dtype=np.int32) for piece in pieces]),
        "seq_lengths": [len(piece.tokens) for piece in pieces],
        "sample_id": [piece.sample_id for piece in pieces],
        "group": [piece.group for piece in pieces],
        "role": [piece.role for piece in pieces],
        "part": [piece.part for piece in pieces],
        **{name: _joined([piece.columns[name] for piece in pieces], column) for name, column in columns.items()},
    }


def _joined(values: list[Any], column: Column) -> Any:
    return np.concatenate(values) if column.kind == "token" else values
