"""The plan: step → packs → segments, a pure function of (stores, mixture, packing, seed, epoch).

A plan holds no tokens. The place in it is a cursor of three numbers, the same on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.data.mixing import Mixing, Size, Stretch, interleaved
from outlive.data.order import order_key, permutation, streamed
from outlive.data.packing import best_fit, concatenated, one_each
from outlive.data.store import Store
from outlive.data.visit_limit import refuse_too_many
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
    """Stores and how often each is seen per epoch: weight 1.0 is once, 0.5 half of it (another half next epoch).

    `mixing`: what else the weights may mean, and how often a store may be seen in all.
    """

    stores: Sequence[Store]
    weights: Sequence[float]
    mixing: Mixing | None = None

    def weighted(self) -> list[tuple[Store, float]]:
        """Each store with its weight."""
        return list(zip(self.stores, self.weights, strict=True))

    @property
    def is_whole(self) -> bool:
        """Whether all samples are there: none of the stores is still being made."""
        return all(store.is_whole for store in self.stores)

    @property
    def extent(self) -> tuple[int, bool]:
        """How many samples are there now, and whether these are all."""
        return sum(len(store) for store in self.stores), self.is_whole

    def refresh(self) -> bool:
        """Take in what was prepared since; whether there is more. Raises what a preparation has failed with."""
        return any(store.refresh() for store in self.stores)

    @cached_property
    def units(self) -> list[tuple[Int, Int]]:
        """Of each store the first sample of every unit and how many samples it has."""
        found = []
        for store in self.stores:
            group = store.whole_column("group")
            first = np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)
            found.append((first, np.diff(np.append(first, len(group)))))
        return found

    @cached_property
    def sizes(self) -> list[Size]:
        """The units and tokens of each store."""
        pairs = zip(self.units, self.stores, strict=True)
        return [Size(len(first), int(store.lengths.sum(dtype=np.int64))) for (first, _), store in pairs]

    @cached_property
    def _mixing(self) -> Mixing:
        return self.mixing or Mixing(self.weights)

    @property
    def beyond_weights(self) -> dict[str, Any]:
        """What decides the visits besides the weights as passes; empty where nothing does."""
        mixing = self._mixing
        said = {} if mixing.by == "passes" else {"by": mixing.by, "pass_ends": mixing.pass_ends}
        capped = any(cap is not None for cap in mixing.epochs)
        return said | ({"epochs": list(mixing.epochs), "used_up": mixing.used_up} if capped else {})

    def visits(self, epoch: int) -> list[Stretch]:
        """Which visits of each store's units a pass holds."""
        return self._mixing.visits(self.sizes, epoch)

    def is_over(self, epoch: int) -> bool:
        """Whether nothing is left for a pass and all after it: the stores' epochs are used up."""
        return self._mixing.is_over(self.sizes, epoch)


@dataclass(frozen=True)
class Layout:
    """How packs are made and grouped: `packs_per_step` whole packs of at most `sequence_length` tokens each.

    `window`: None packs over all units (global); a number packs within windows of that many units (windowed): the
    packs of a window depend on its units alone.
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

    Best fit runs over the units in a keyed order, which breaks ties; the packs are shuffled after packing. With a
    window the units come in the order of the sources, mixed evenly, and each window of them is a plan of its own.
    Of a store that is still being made these are the windows that are there: the beginning of the whole plan.
    """
    units = _units(mixture, seed, epoch, in_order=layout.window is not None)
    if layout.window is None:
        return _plan_of(mixture, layout, units, (seed, epoch))
    window = layout.window
    there = len(units.store) if mixture.is_whole else len(units.store) // window * window
    parts = [
        _plan_of(mixture, layout, Units(*(column[begin : begin + window] for column in units)), (seed, epoch, begin))
        for begin in range(0, there, window)
    ]
    return _joined(parts, epoch, layout)


class Units(NamedTuple):
    """Units of stores, one entry each: the store, the first sample, how many samples and how many tokens it has."""

    store: Int
    first: Int
    num_samples: Int
    num_tokens: Int


def _plan_of(mixture: Mixture, layout: Layout, units: Units, key: tuple[int, ...]) -> Plan:
    """The plan of some units. `key`: what its order depends on; seed and epoch first."""
    unit_order = permutation(len(units.store), order_key(*key[:2], "units", *key[2:]))
    store, first, count, lengths = (column[unit_order] for column in units)
    pack_key = order_key(*key[:2], "packs", *key[2:])
    _check_fit(lengths, layout)
    if layout.packing == "concatenate":
        if (count > 1).any():
            raise InputError("packing: concatenate cuts samples, but groups must stay whole", fix="packing: best_fit")
        unit, start, end, pack = concatenated(lengths, layout.sequence_length)
        return _plan(key[1], layout, pack_key, store[unit], first[unit], start, end, pack)
    pack_of = one_each(lengths) if layout.packing == "none" else best_fit(lengths, layout.sequence_length)
    unit = np.repeat(np.arange(len(count)), count)
    sample = first[unit] + np.arange(len(unit)) - np.repeat(np.cumsum(count) - count, count)
    end = _sample_lengths(mixture, store[unit], sample)
    return _plan(key[1], layout, pack_key, store[unit], sample, np.zeros_like(end), end, pack_of[unit])


def _joined(parts: Sequence[Plan], epoch: int, layout: Layout) -> Plan:
    """Plans one after the other."""
    if not parts:
        none = np.zeros(0, np.int64)
        return Plan(epoch, layout, np.zeros(1, np.int64), none, none, none, none, none)
    firsts = np.cumsum([0, *(len(part.store) for part in parts)])
    bounds = [part.pack_start[:-1] + first for part, first in zip(parts, firsts, strict=False)]
    pack_start = np.concatenate([*bounds, firsts[-1:]]).astype(np.int64)
    names = ("store", "sample", "start", "end", "part")
    return Plan(epoch, layout, pack_start, *(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def refuse_empty(plan: Plan) -> Plan:
    """The plan, unless there is nothing in it: a run would end there, before its end."""
    if not plan.num_packs:
        raise InputError(
            f"pass {plan.epoch + 1} over the data holds no sample: the sources' weights leave none of so few rows",
            where="data.train",
            fix="raise the sources' weights",
        )
    return plan


def _plan(epoch: int, layout: Layout, key: int, store: Int, sample: Int, start: Int, end: Int, pack: Int) -> Plan:
    num_packs = int(pack.max()) + 1 if len(pack) else 0
    place = permutation(num_packs, key)
    by_place = np.argsort(place[pack], kind="stable")
    counts = np.bincount(place[pack], minlength=num_packs)
    pack_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    part = _parts(store, sample, start)
    columns = (column[by_place] for column in (store, sample, start, end, part))
    return Plan(epoch, layout, pack_start, *columns)


def _parts(store: Int, sample: Int, start: Int) -> Int:
    """The number of each segment among those of one visit to its sample: pieces follow each other in the stream."""
    continues = np.zeros(len(sample), dtype=bool)
    continues[1:] = (store[1:] == store[:-1]) & (sample[1:] == sample[:-1]) & (start[1:] > 0)
    place = np.arange(len(sample), dtype=np.int64)
    return place - np.maximum.accumulate(np.where(continues, 0, place)) if len(place) else place


def _units(mixture: Mixture, seed: int, epoch: int, in_order: bool) -> Units:
    """The units of this epoch: store after store, or (`in_order`) mixed evenly, the first pass as it was read."""
    stretches = mixture.visits(epoch)
    refuse_too_many(mixture, stretches)
    chosen = [
        _visited(len(first), stretch, order_key(seed, "mixture", number), in_order)
        for number, ((first, _), stretch) in enumerate(zip(mixture.units, stretches, strict=True))
    ]
    if in_order:
        store, visit = interleaved([stretch.number for stretch in stretches])
    else:
        store = np.repeat(np.arange(len(chosen), dtype=np.int64), [len(own) for own in chosen])
        visit = np.concatenate([np.arange(len(own), dtype=np.int64) for own in chosen])
    first, count = np.zeros_like(store), np.zeros_like(store)
    for number, (firsts, counts) in enumerate(mixture.units):
        here = store == number
        unit = chosen[number][visit[here]]
        first[here], count[here] = firsts[unit], counts[unit]
    return Units(store, first, count, _unit_lengths(mixture, store, first, count))


def _visited(size: int, stretch: Stretch, key: int, in_order: bool) -> Int:
    """Which of `size` units a stretch of visits sees, in an endless stream of keyed permutations of them. `in_order`:
    the first of these is the order in which they were read."""
    begin, end = stretch
    if size == 0 or end <= begin:
        return np.zeros(0, dtype=np.int64)
    if in_order and begin < size:
        first = np.arange(begin, min(end, size), dtype=np.int64)
        return np.concatenate([first, _visited(size, Stretch(size, end), key, in_order)])
    return streamed(begin, end, size, key)


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
