"""A keyed permutation visits every position once, and is the same everywhere and always."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outlive.data.order import order_key, permutation, permuted, streamed


@given(size=st.integers(0, 3000), key=st.integers(0, 2**64 - 1))
def test_every_position_once(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permutation(size, key)), np.arange(size))


@given(size=st.integers(1, 2**40), key=st.integers(0, 2**64 - 1), data=st.data())
def test_any_part_alone_equals_the_whole(size: int, key: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)), dtype=np.int64)
    together = permuted(positions, size, key)
    assert all(permuted(positions[[place]], size, key)[0] == together[place] for place in range(len(positions)))
    assert ((together >= 0) & (together < size)).all()


@given(size=st.integers(1, 500), begin=st.integers(0, 2000), number=st.integers(0, 2000), key=st.integers(0, 2**64 - 1))
def test_a_stream_is_one_permutation_after_the_other(size: int, begin: int, number: int, key: int) -> None:
    rounds = range(begin // size, (begin + number) // size + 1)
    whole = np.concatenate([permutation(size, order_key(key, one)) for one in rounds])
    found = streamed(begin, begin + number, size, key)
    assert found.tolist() == whole[begin % size : begin % size + number].tolist()


PINNED = [7, 8, 5, 6, 3, 0, 2, 9, 4, 1]


def test_order_is_the_same_on_every_machine() -> None:
    """A change of these numbers would reorder the data of every run that is resumed."""
    assert permutation(10, order_key(0, 0, "packs")).tolist() == PINNED
    assert permutation(1000, 1)[:5].tolist() != permutation(1000, 2)[:5].tolist()


def test_neighbours_are_scattered() -> None:
    order = permutation(10_000, order_key(7))
    steps = np.abs(np.diff(order))
    assert 3000 < steps.mean() < 3700  # a random permutation has a mean step of a third of its size
    fixed = int((order == np.arange(10_000)).sum())
    assert fixed < 10
