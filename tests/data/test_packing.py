"""Packing fills packs tightly, loses nothing, and best fit is best fit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outlive.data.packing import best_fit, concatenated

LENGTHS = st.lists(st.integers(1, 50), max_size=200)


def _reference(lengths: list[int], capacity: int) -> list[int]:
    """Best fit decreasing, one unit at a time, by its definition."""
    rooms: list[int] = []
    pack_of = [0] * len(lengths)
    for unit in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        fitting = [(room, pack) for pack, room in enumerate(rooms) if room >= lengths[unit]]
        if not fitting:
            fitting = [(capacity, len(rooms))]
            rooms.append(capacity)
        _, pack_of[unit] = min(fitting)
        rooms[pack_of[unit]] -= lengths[unit]
    return pack_of


def _fill(pack_of: list[int], lengths: list[int]) -> list[int]:
    return sorted(np.bincount(pack_of, weights=lengths).astype(int).tolist()) if lengths else []


@given(lengths=LENGTHS, capacity=st.integers(50, 120))
def test_best_fit_is_best_fit(lengths: list[int], capacity: int) -> None:
    pack_of = best_fit(np.array(lengths, dtype=np.int64), capacity).tolist()
    assert _fill(pack_of, lengths) == _fill(_reference(lengths, capacity), lengths)
    assert set(pack_of) == set(range(len(set(pack_of))))


def test_a_million_units_fill_their_packs() -> None:
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(6.1, 0.9, 1_000_000), 1, 4096).astype(np.int64)
    pack_of = best_fit(lengths, 4096)
    fill = np.bincount(pack_of, weights=lengths)
    assert fill.max() <= 4096
    assert lengths.sum() / (len(fill) * 4096) > 0.999


@given(lengths=st.lists(st.integers(1, 90), max_size=60), capacity=st.integers(2, 40))
def test_concatenation_keeps_every_target_once(lengths: list[int], capacity: int) -> None:
    """Token t > 0 of a unit is predicted in just one piece: pieces cover it behind their own first token."""
    unit, start, end, pack = concatenated(np.array(lengths, dtype=np.int64), capacity)
    predicted = [np.zeros(length, dtype=int) for length in lengths]
    for number, begin, stop in zip(unit, start, end, strict=True):
        predicted[number][begin + 1 : stop] += 1
    assert all(counts[0] == 0 and (counts[1:] == 1).all() for counts in predicted)
    if len(pack):
        assert np.bincount(pack, weights=end - start).max() <= capacity
        assert (np.diff(pack) >= 0).all()
