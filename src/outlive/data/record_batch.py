"""Samples as one Arrow record batch of a store, built from whole buffers: no value is touched one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outlive.data.sample import Sample

IGNORED = -100
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


@dataclass
class SampleRows:
    """Samples of rows that follow each other. Those that belong together share a group; others are groups of their own.

    `num_groups`: groups so far; they are numbered from 0.
    """

    samples: list[Sample] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    declared: list[Mapping[str, Any]] = field(default_factory=list)
    num_groups: int = 0
    num_tokens: int = 0

    def add(
        self, samples: Sequence[Sample], sample_id: str, content_hash: int, declared: Sequence[Mapping[str, Any]]
    ) -> None:
        """The samples of one row, with the values that the method's columns have for each."""
        for place, sample in enumerate(samples):
            if place == 0 or not sample.coupled:
                self.num_groups += 1
            self.samples.append(sample)
            self.ids.append(f"{sample_id}:{sample.part}")
            self.groups.append(self.num_groups - 1)
            self.hashes.append(content_hash)
            self.num_tokens += len(sample.tokens)
        self.declared += declared

    def batch(self, columns: Mapping[str, Column], with_weight: bool | None = None) -> SampleBatch:
        """All samples. `with_weight`: whether there is a column of weights; None: only where they are real numbers.

        Raises ValueError for weights other than 0 and 1 where there is to be no such column.
        """
        tokens = _joined([sample.tokens for sample in self.samples], np.int32)
        weights = _joined([sample.weights for sample in self.samples], np.float32)
        offsets = np.zeros(len(self.samples) + 1, np.int32)
        np.cumsum([len(sample.tokens) for sample in self.samples], out=offsets[1:])
        is_target = weights > 0
        real = bool((weights[is_target] != 1).any())
        if real and with_weight is False:
            raise ValueError("a store without a weight column holds weights of 0 and 1 only")
        arrays = [
            _lists(tokens, offsets),
            _lists(np.where(is_target, tokens, np.int32(IGNORED)), offsets),
            _texts(self.ids),
            _numbers(np.array(self.groups, np.int64)),
            _texts([sample.role for sample in self.samples]),
            _numbers(np.array([sample.prefix for sample in self.samples], np.int32)),
            _numbers(np.array(self.hashes, np.uint64)),
        ]
        if weighted := real if with_weight is None else with_weight:
            arrays.append(_lists(weights, offsets))
        arrays += [self._declared(name, column) for name, column in columns.items()]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema(columns, weighted))
        return SampleBatch(batch, self.num_groups, int(np.count_nonzero(is_target)))

    def _declared(self, name: str, column: Column) -> pa.Array:
        dtype = np.float32 if column.dtype == "float32" else np.int64
        if column.kind != "token":
            return _numbers(np.array([values[name] for values in self.declared], dtype))
        lists = [np.asarray(values[name], dtype) for values in self.declared]
        offsets = np.zeros(len(lists) + 1, np.int32)
        np.cumsum([len(values) for values in lists], out=offsets[1:])
        return _lists(_joined(lists, dtype), offsets)


@dataclass(frozen=True)
class SampleBatch:
    """A record batch of samples; `num_groups` groups, numbered from 0, and `num_targets` tokens that carry loss."""

    batch: pa.RecordBatch
    num_groups: int
    num_targets: int

    @property
    def num_tokens(self) -> int:
        return len(self.batch.column("input_ids").values)

    @property
    def has_weight(self) -> bool:
        return "weight" in self.batch.schema.names

    def renumbered(self, first_group: int) -> pa.RecordBatch:
        """The batch with its groups numbered from `first_group`."""
        place = self.batch.schema.get_field_index("group")
        groups = as_numpy(self.batch.column("group")) + first_group
        return self.batch.set_column(place, self.batch.schema.field("group"), _numbers(groups))


def with_weights(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that had no column of weights, with one: 1 for each target, else 0."""
    labels = batch.column("labels")
    offsets = as_numpy(labels.offsets)
    weights = (as_numpy(labels.values) != IGNORED).astype(np.float32)
    place = batch.schema.get_field_index("content_hash") + 1
    return batch.add_column(place, pa.field("weight", pa.list_(pa.float32())), _lists(weights, offsets))


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


# pa.array() and to_numpy() import pandas where that is installed, which takes longer than a small data set.
def as_numpy(values: pa.Array) -> npt.NDArray[Any]:
    """Numbers of an Arrow array without nulls, as a view."""
    dtype = np.dtype(values.type.to_pandas_dtype())
    if not len(values):
        return np.zeros(0, dtype)
    return np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * dtype.itemsize)


def _numbers(values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _lists(values: npt.NDArray[Any], offsets: npt.NDArray[np.int32]) -> pa.Array:
    kind, flat = pa.list_(pa.from_numpy_dtype(values.dtype)), _numbers(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[flat])


def _texts(values: Sequence[str]) -> pa.Array:
    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )
