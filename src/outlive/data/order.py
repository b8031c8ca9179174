"""Keyed permutations: an order that is a pure function of (size, key), with no state and no table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

Int = npt.NDArray[np.int64]
_ROUNDS = 6
_BLOCK = 1 << 16  # positions of short permutations that are found at once
_WORD = np.uint64(0xFFFFFFFFFFFFFFFF)


def order_key(*parts: object) -> int:
    """64 bits made of the parts, such as (seed, epoch, "packs"). Stable across machines and versions."""
    return xxhash.xxh3_64_intdigest("\x1f".join(map(str, parts)).encode())


def permuted(positions: Int, size: int, key: int) -> Int:
    """Where a keyed permutation of range(size) sends `positions` (int64, any shape; each in range(size)).

    A balanced Feistel network over the smallest even number of bits that holds `size`, with cycle walking for values
    outside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). It orders data; it hides nothing.
    """
    return _walked(positions, size, _round_keys([key]))


def streamed(begin: int, end: int, size: int, key: int) -> Int:
    """Positions begin … end - 1 of an endless stream of permutations of range(size), int64: permutation n, from 0, is
    keyed by (key, n). Many short ones take no longer than few long ones, but for their keys."""
    found = np.zeros(end - begin, dtype=np.int64)
    if size <= 1:
        return found
    at_once = max(1, _BLOCK // size)
    for first in range(begin // size, -(-end // size), at_once):
        low, high = max(begin, first * size), min(end, (first + at_once) * size)
        number, places = np.divmod(np.arange(low, high, dtype=np.int64), size)
        keys = _round_keys([order_key(key, one) for one in range(first, int(number[-1]) + 1)])
        found[low - begin : high - begin] = _walked(places, size, keys[:, number - first] if at_once > 1 else keys)
    return found


def permutation(size: int, key: int) -> Int:
    """The whole permutation of range(size), int64."""
    return permuted(np.arange(size, dtype=np.int64), size, key)


def _walked(positions: Int, size: int, keys: npt.NDArray[np.uint64]) -> Int:
    """`permuted`, with the keys of the rounds, [rounds, 1] or [rounds, one for each position]."""
    if size <= 1:
        return positions.copy()
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    values = positions.astype(np.uint64)
    outside = np.ones(values.shape, dtype=bool)
    while outside.any():
        own = keys if keys.shape[1] == 1 else keys[:, outside]
        values[outside] = _feistel(values[outside], half, own)
        outside = values >= np.uint64(size)
    return values.astype(np.int64)


def _round_keys(keys: Sequence[int]) -> npt.NDArray[np.uint64]:
    """The keys of all rounds, [rounds, keys]."""
    return np.array([[order_key(key, number) for key in keys] for number in range(_ROUNDS)], dtype=np.uint64)


def _feistel(values: npt.NDArray[np.uint64], half: np.uint64, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    low_bits = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & low_bits
    for round_key in keys:
        left, right = right, left ^ (_mixed(right ^ round_key) & low_bits)
    return (left << half) | right


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    # The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every input bit reaches every output bit.
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9) & _WORD
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB) & _WORD
    return x ^ (x >> np.uint64(31))
