"""Packing: which units share a model sequence. A unit is a sample, or a group that must stay together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]


def best_fit(lengths: Int, capacity: int) -> Int:
    """Best fit decreasing: the pack of each unit.

    `lengths` are tokens, 1 to `capacity` each. Longest units first; each goes into the fullest pack that still holds
    it. Among equal lengths the order given decides. Units of one length are placed together, since best fit fills the
    tightest pack with them until it holds no more: the work grows with the distinct lengths, not with the units.
    """
    pack_of = np.empty(len(lengths), dtype=np.int64)
    open_packs: dict[int, list[Int]] = {}  # free tokens → packs with just that much room
    free_mask = 0  # bit f is set where open_packs[f] holds packs: the tightest fit is one shift and one lowest bit
    num_packs = 0
    by_length = np.argsort(-lengths, kind="stable")
    starts = np.flatnonzero(np.diff(lengths[by_length], prepend=-1))
    for units in np.split(by_length, starts[1:]) if len(lengths) else []:
        length = int(lengths[units[0]])
        while len(units):
            fitting = free_mask >> length
            if fitting:
                free = length + (fitting & -fitting).bit_length() - 1
                packs = np.concatenate(open_packs.pop(free))
                free_mask &= ~(1 << free)
            else:
                free = capacity
                num_new = -(-len(units) // (capacity // length))
                packs = np.arange(num_packs, num_packs + num_new, dtype=np.int64)
                num_packs += num_new
            per_pack = free // length
            used = -(-len(units) // per_pack)
            placed = np.repeat(packs[:used], per_pack)[: len(units)]
            pack_of[units[: len(placed)]] = placed
            num_in_last = len(placed) - per_pack * (min(used, len(packs)) - 1)
            units = units[len(placed) :]
            for room, group in (
                (free - per_pack * length, packs[: min(used, len(packs)) - 1]),
                (free - num_in_last * length, packs[min(used, len(packs)) - 1 : used]),
                (free, packs[used:]),
            ):
                if room and len(group):
                    open_packs.setdefault(room, []).append(group)
                    free_mask |= 1 << room
    return pack_of


def one_each(lengths: Int) -> Int:
    """No packing: unit i is pack i."""
    return np.arange(len(lengths), dtype=np.int64)


def concatenated(lengths: Int, capacity: int) -> tuple[Int, Int, Int, Int]:
    """Fill packs in the order given and cut a unit where a pack ends: (unit, start, end, pack), one entry a piece.

    A piece that goes on repeats the last token before the cut as its first: it is context there and no target, so
    that every target is predicted once. A piece has at least 2 tokens, unless its unit has 1.
    """
    pieces: list[tuple[int, int, int, int]] = []
    pack, room = 0, capacity
    for unit, length in enumerate(lengths.tolist()):
        start = 0
        while True:
            if room < min(2, length - start):
                pack, room = pack + 1, capacity
            end = min(length, start + room)
            pieces.append((unit, start, end, pack))
            room -= end - start
            if end == length:
                break
            start = end - 1
    columns = np.array(pieces, dtype=np.int64).reshape(-1, 4).T
    return columns[0], columns[1], columns[2], columns[3]
