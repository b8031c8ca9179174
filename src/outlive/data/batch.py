"""The batch: what the loop hands to a method. Targets are made here, once, on whole packs, before any slicing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from outlive.data.plan import Mixture, Plan, Segment
from outlive.data.store import Store

Number = TypeVar("Number", bound=np.generic)


class BatchSegment(NamedTuple):
    """A segment's place in its batch: tokens start:end. `prefix`: the segment of the batch that it continues, or -1."""

    start: int
    end: int
    prefix: int
    group: int
    role: str
    sample_id: str
    part: int


class PackPlace(NamedTuple):
    """Tokens start:end of a batch are pack number `pack` of the epoch's plan."""

    pack: int
    start: int
    end: int


@dataclass(frozen=True)
class Batch:
    """Packs laid end to end, without padding. Per token, arrays [T]:

    tokens int64; positions int64, which restart at each segment and go on from a prefix; segment_ids int32;
    target_ids int64, what position t predicts; target_weight float32, its weight: 0 at each segment's last token.
    `columns` holds what the method declared: [T], [segments] or [groups] by `kinds`. `group` of a segment counts the
    groups of this batch from 0.
    """

    tokens: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    segment_ids: npt.NDArray[np.int32]
    target_ids: npt.NDArray[np.int64]
    target_weight: npt.NDArray[np.float32]
    segments: list[BatchSegment]
    packs: list[PackPlace]
    columns: dict[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    @property
    def real_segments(self) -> list[BatchSegment]:
        """The segments without those of empty packs."""
        empty = {place.start for place in self.packs if place.pack < 0}
        return [segment for segment in self.segments if segment.start not in empty]

    @property
    def num_tokens(self) -> int:
        """Real tokens: all but those of empty packs."""
        return sum(segment.end - segment.start for segment in self.real_segments)

    @property
    def num_targets(self) -> int:
        return int(np.count_nonzero(self.target_weight))

    def denominators(self) -> dict[str, float]:
        """What terms can be divided by, counted on this batch; those of a global batch are sums of these.

        weight: Σ target weights. tokens: real tokens. segments: those with a target. groups: those with a target.
        """
        trained = [s for s in self.segments if self.target_weight[s.start : s.end].any()]
        return {
            "weight": float(self.target_weight.sum(dtype=np.float64)),
            "tokens": float(self.num_tokens),
            "segments": float(len(trained)),
            "groups": float(len({segment.group for segment in trained})),
        }


def make_batch(plan: Plan, mixture: Mixture, packs: Sequence[int | None]) -> Batch:
    """The batch of some packs of a plan, in that order. None, a rank with no pack left, gives one token of weight 0."""
    kinds = {name: column.kind for store in mixture.stores for name, column in store.columns.items()}
    builder = _Builder(mixture, kinds, {name: [] for name in kinds})
    for pack in packs:
        if pack is None:
            builder.add_empty()
        else:
            builder.add_pack(pack, plan.segments(pack))
    return builder.batch()


@dataclass
class _Builder:
    mixture: Mixture
    kinds: Mapping[str, str]
    columns: dict[str, list[npt.NDArray[np.generic]]]
    tokens: list[npt.NDArray[np.int32]] = field(default_factory=list)
    positions: list[npt.NDArray[np.int64]] = field(default_factory=list)
    target_ids: list[npt.NDArray[np.int32]] = field(default_factory=list)
    target_weight: list[npt.NDArray[np.float32]] = field(default_factory=list)
    segments: list[BatchSegment] = field(default_factory=list)
    packs: list[PackPlace] = field(default_factory=list)
    num_tokens: int = 0
    num_groups: int = 0

    def add_pack(self, pack: int, segments: Sequence[Segment]) -> None:
        begin, previous, group, first_of_group = self.num_tokens, None, -1, 0
        for segment in segments:
            store = self.mixture.stores[segment.store]
            this_group = int(store.value(segment.sample, "group"))
            # A unit's samples follow each other; the same group once more in a pack (weight above 1) is another unit.
            goes_on = previous == (segment.store, segment.sample - 1, this_group)
            if not goes_on:
                group, first_of_group = self.num_groups, len(self.segments)
                self.num_groups += 1
            previous = (segment.store, segment.sample, this_group)
            self._add_segment(store, segment, group, first_of_group, new_group=not goes_on)
        self.packs.append(PackPlace(pack, begin, self.num_tokens))

    def _add_segment(self, store: Store, segment: Segment, group: int, first_of_group: int, new_group: bool) -> None:
        index, cut = segment.sample, slice(segment.start, segment.end)
        tokens = store.tokens(index)[cut]
        prefix = int(store.value(index, "prefix"))
        prefix = first_of_group + prefix if prefix >= 0 else -1
        first_position = self.positions[prefix][-1] + 1 if prefix >= 0 else 0
        begin, self.num_tokens = self.num_tokens, self.num_tokens + len(tokens)
        self.tokens.append(tokens)
        self.positions.append(first_position + np.arange(len(tokens), dtype=np.int64))
        self.target_ids.append(shifted(tokens))
        self.target_weight.append(shifted(store.weights(index)[cut]))
        role, sample_id = store.value(index, "role"), store.value(index, "sample_id")
        self.segments.append(BatchSegment(begin, self.num_tokens, prefix, group, role, sample_id, segment.part))
        for name, kind in self.kinds.items():
            value = store.value(index, name)
            if kind == "token":
                self.columns[name].append(shifted(value[cut]))
            elif kind == "segment" or new_group:
                self.columns[name].append(np.array([value]))

    def add_empty(self) -> None:
        """One token that predicts nothing: a rank without a pack still runs every collective."""
        begin, self.num_tokens = self.num_tokens, self.num_tokens + 1
        self.tokens.append(np.zeros(1, np.int32))
        self.positions.append(np.zeros(1, np.int64))
        self.target_ids.append(np.zeros(1, np.int32))
        self.target_weight.append(np.zeros(1, np.float32))
        self.segments.append(BatchSegment(begin, self.num_tokens, -1, self.num_groups, "", "", 0))
        for name in self.kinds:
            self.columns[name].append(np.zeros(1, np.float32))
        self.num_groups += 1
        self.packs.append(PackPlace(-1, begin, self.num_tokens))

    def batch(self) -> Batch:
        lengths = [segment.end - segment.start for segment in self.segments]
        return Batch(
            tokens=np.concatenate(self.tokens).astype(np.int64),
            positions=np.concatenate(self.positions),
            segment_ids=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
            target_ids=np.concatenate(self.target_ids).astype(np.int64),
            target_weight=np.concatenate(self.target_weight),
            segments=self.segments,
            packs=self.packs,
            columns={name: np.concatenate(values) for name, values in self.columns.items()},
            kinds=dict(self.kinds),
        )


def shifted(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """What belongs to token t+1, at position t, which predicts it; the last position predicts nothing: 0."""
    return np.append(values[1:], values.dtype.type(0))
