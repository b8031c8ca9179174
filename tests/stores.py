"""Random samples and the stores and plans that hold them; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from outlive.data.plan import Layout, Mixture, make_plan
from outlive.data.record_batch import Column
from outlive.data.samples import Sample
from outlive.data.store import Store
from outlive.data.store_writer import StoreWriter

VOCAB = 128


def random_samples(lengths: Sequence[int], seed: int = 0) -> list[Sample]:
    """Samples of the given lengths with real-valued weights, some of them 0, and none on the first token."""
    random = np.random.default_rng(seed)
    samples = []
    for length in lengths:
        weights = np.round(random.random(length), 2).astype(np.float32) * (random.random(length) < 0.7)
        weights[0] = 0.0
        samples.append(Sample(random.integers(3, VOCAB, length).astype(np.int32), weights.astype(np.float32)))
    return samples


def write_store(
    folder: Path,
    rows: Sequence[Sequence[Sample]],
    columns: dict[str, Column] | None = None,
    values: Sequence[Sequence[dict[str, Any]]] | None = None,
) -> Store:
    """A store of rows of samples; samples of one row that are coupled form a group."""
    folder.mkdir(parents=True)
    writer = StoreWriter(folder, columns, with_weight=True)
    for number, row in enumerate(rows):
        writer.add_row(row, f"test:{number}", number, values[number] if values else ())
    writer.close({"source": "test", "source_hash": "", "ledger": {}})
    return Store(folder)


def planned(store: Store, sequence_length: int, packs_per_step: int = 1000, **layout: Any) -> tuple[Any, Mixture]:
    """The plan of epoch 0 and the mixture of one store."""
    mixture = Mixture([store], [1.0])
    return make_plan(mixture, Layout(sequence_length, packs_per_step, **layout), seed=0, epoch=0), mixture
