"""The plan: step → packs → segments, a pure function of (stores, mixture, packing, seed, epoch).

A plan holds no tokens. The place in it is a cursor of three numbers, the same on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.data.order import order_key, permutation, permuted
from outlive.data.packing import best_fit, concatenated, one_each
from outlive.data.store import Store
from outlive.run.errors import InputError

Packing = Literal["best_fit", "none", "concatenate"]
Int = npt.NDArray[np.int64]


class Cursor(NamedTuple):
    """Where a run stands: `pack` packs of `epoch` are trained, in `step` optimizer steps since the run began."""

    epoch: int = 0
    pack: int = 0
    step: int = 0


class Segment(NamedTuple):
    """Tokens start:end of sample `sample` of store `store`; `part` counts the segments of one sample."""

    store: int
    sample: int
    start: int
    end: int
    part: int


@dataclass(frozen=True)
class Mixture:
    """Stores and how often each is seen per epoch: weight 1.0 is once, 0.5 half of it (another half next epoch)."""

    stores: Sequence[Store]
    weights: Sequence[float]

    def weighted(self) -> list[tuple[Store, float]]:
        """Each store with its weight."""
        return list(zip(self.stores, self.weights, strict=True))


@dataclass(frozen=True)
class Layout:
    """How packs are made and grouped: `packs_per_step` whole packs of at most `sequence_length` tokens each.

    `window`: None packs over all units (global); a number packs within windows of that many units (windowed), for
    streams whose end is not known.
    """

    sequence_length: int
    packs_per_step: int
    packing: Packing = "best_fit"
    window: int | None = None

    @classmethod
    def of(
        cls, sequence_length: int, *, tokens: int | None = None, sequences: int | None = None,
        packing: Packing = "best_fit", window: int | None = None,
    ) -> Layout:  # fmt: skip
        """From the capacity of a step: `tokens`, or `sequences` packs. Refuses less than one pack."""
        packs = sequences if sequences is not None else (tokens or 0) // sequence_length
        if packs < 1:
            raise InputError(
                f"batch.tokens = {tokens} holds no pack of data.sequence_length = {sequence_length}",
                fix=f"set batch.tokens to at least {sequence_length}, or a shorter data.sequence_length",
            )
        return cls(sequence_length, packs, packing, window)


@dataclass(frozen=True)
class Plan:
    """One epoch: the segments of all packs in training order, and where each pack begins among them.

    Arrays of one entry per segment: store, sample, start, end, part. `pack_start` has one entry more than packs.
    """

    epoch: int
    layout: Layout
    pack_start: Int
    store: Int
    sample: Int
    start: Int
    end: Int
    part: Int

    @property
    def num_packs(self) -> int:
        return len(self.pack_start) - 1

    @property
    def num_steps(self) -> int:
        return -(-self.num_packs // self.layout.packs_per_step)

    def segments(self, pack: int) -> list[Segment]:
        """The segments of one pack, in their order."""
        places = range(int(self.pack_start[pack]), int(self.pack_start[pack + 1]))
        columns = (self.store, self.sample, self.start, self.end, self.part)
        return [Segment(*(int(column[place]) for column in columns)) for place in places]

    def step_packs(self, first_pack: int) -> range:
        """The packs of the step that begins at `first_pack`; an epoch's last step holds what is left."""
        return range(first_pack, min(first_pack + self.layout.packs_per_step, self.num_packs))


def rank_packs(packs: range, rank: int, world: int) -> list[int | None]:
    """A rank's packs of a step, as many on every rank: None stands for a pack of weight 0."""
    mine = list(packs)[rank::world]
    return [*mine, *[None] * (-(-len(packs) // world) - len(mine))]


def make_plan(mixture: Mixture, layout: Layout, seed: int, epoch: int) -> Plan:
    """The plan of one epoch. Units (groups, or single samples) stay whole, except under `packing: concatenate`.

    Best fit runs over the units in a keyed order, which breaks ties; the packs are shuffled after packing.
    """
    store, first, count = _units(mixture, seed, epoch)
    unit_order = permutation(len(store), order_key(seed, epoch, "units"))
    store, first, count = store[unit_order], first[unit_order], count[unit_order]
    lengths = _unit_lengths(mixture, store, first, count)
    _check_fit(lengths, layout)
    if layout.packing == "concatenate":
        if (count > 1).any():
            raise InputError("packing: concatenate cuts samples, but groups must stay whole", fix="packing: best_fit")
        unit, start, end, pack = concatenated(lengths, layout.sequence_length)
        return _plan(epoch, layout, seed, store[unit], first[unit], start, end, pack)
    pack_of = _pack(lengths, layout)
    unit = np.repeat(np.arange(len(count)), count)
    sample = first[unit] + np.arange(len(unit)) - np.repeat(np.cumsum(count) - count, count)
    end = _sample_lengths(mixture, store[unit], sample)
    return _plan(epoch, layout, seed, store[unit], sample, np.zeros_like(end), end, pack_of[unit])


def refuse_empty(plan: Plan) -> Plan:
    """The plan, unless there is nothing in it: a run would end there, before its end."""
    if not plan.num_packs:
        raise InputError(
            f"pass {plan.epoch + 1} over the data holds no sample: the sources' weights leave none of so few rows",
            where="data.train",
            fix="raise the sources' weights",
        )
    return plan


def _pack(lengths: Int, layout: Layout) -> Int:
    if layout.packing == "none":
        return one_each(lengths)
    window = layout.window or max(1, len(lengths))
    packed, num_packs = [], 0
    for begin in range(0, len(lengths), window):
        pack_of = best_fit(lengths[begin : begin + window], layout.sequence_length)
        packed.append(pack_of + num_packs)
        num_packs += int(pack_of.max()) + 1
    return np.concatenate(packed) if packed else np.zeros(0, np.int64)


def _plan(epoch: int, layout: Layout, seed: int, store: Int, sample: Int, start: Int, end: Int, pack: Int) -> Plan:
    num_packs = int(pack.max()) + 1 if len(pack) else 0
    place = _pack_places(num_packs, pack, layout, order_key(seed, epoch, "packs"))
    by_place = np.argsort(place[pack], kind="stable")
    counts = np.bincount(place[pack], minlength=num_packs)
    pack_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    part = _parts(store, sample, start)
    columns = (column[by_place] for column in (store, sample, start, end, part))
    return Plan(epoch, layout, pack_start, *columns)


def _pack_places(num_packs: int, pack: Int, layout: Layout, key: int) -> Int:
    """Where each pack stands after the shuffle. Windowed plans keep packs near the window that they came from."""
    if layout.window is None:
        return permutation(num_packs, key)
    place = np.arange(num_packs, dtype=np.int64)
    for begin in range(0, num_packs, layout.window):
        size = min(layout.window, num_packs - begin)
        place[begin : begin + size] = begin + permutation(size, order_key(key, begin))
    return place


def _parts(store: Int, sample: Int, start: Int) -> Int:
    """The number of each segment among those of one visit to its sample: pieces follow each other in the stream."""
    continues = np.zeros(len(sample), dtype=bool)
    continues[1:] = (store[1:] == store[:-1]) & (sample[1:] == sample[:-1]) & (start[1:] > 0)
    place = np.arange(len(sample), dtype=np.int64)
    return place - np.maximum.accumulate(np.where(continues, 0, place)) if len(place) else place


def _units(mixture: Mixture, seed: int, epoch: int) -> tuple[Int, Int, Int]:
    """The units of this epoch: store, first sample and number of samples of each."""
    parts = []
    for number, (store, weight) in enumerate(zip(mixture.stores, mixture.weights, strict=True)):
        group = store.whole_column("group")
        first = np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)
        count = np.diff(np.append(first, len(group)))
        chosen = _visited(len(first), weight, order_key(seed, "mixture", number), epoch)
        parts.append((np.full(len(chosen), number, dtype=np.int64), first[chosen], count[chosen]))
    stores, firsts, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    return stores, firsts, counts


def _visited(size: int, weight: float, key: int, epoch: int) -> Int:
    """Which of `size` units this epoch sees: a stretch of an endless stream of keyed permutations.

    Every unit comes equally often over the epochs, to within one visit, whatever the weight.
    """
    begin, end = round(size * weight * epoch), round(size * weight * (epoch + 1))
    stream = np.arange(begin, end, dtype=np.int64)
    if size == 0 or not len(stream):
        return np.zeros(0, dtype=np.int64)
    rounds = stream // size
    visited = np.empty(len(stream), dtype=np.int64)
    for number in range(int(rounds[0]), int(rounds[-1]) + 1):
        here = rounds == number
        visited[here] = permuted(stream[here] % size, size, order_key(key, number))
    return visited


def _sample_lengths(mixture: Mixture, store: Int, sample: Int) -> Int:
    lengths = np.zeros(len(sample), dtype=np.int64)
    for number, source in enumerate(mixture.stores):
        here = store == number
        lengths[here] = source.lengths[sample[here]]
    return lengths


def _unit_lengths(mixture: Mixture, store: Int, first: Int, count: Int) -> Int:
    lengths = np.zeros(len(first), dtype=np.int64)
    for number, source in enumerate(mixture.stores):
        here = store == number
        total = np.concatenate([[0], np.cumsum(source.lengths, dtype=np.int64)])
        lengths[here] = total[first[here] + count[here]] - total[first[here]]
    return lengths


def _check_fit(lengths: Int, layout: Layout) -> None:
    if layout.packing != "concatenate" and len(lengths) and lengths.max() > layout.sequence_length:
        raise InputError(
            f"a group of {int(lengths.max())} tokens does not fit data.sequence_length = {layout.sequence_length}, "
            "and a group is never split",
            fix="raise data.sequence_length",
        )
