"""Near duplicates: texts that share most of their runs of characters, found by a sketch of each (Broder 1997).

The hashes of all runs of RUN bytes of a text, lower-cased and without white space; of these the SKETCH smallest are
kept. Two texts that have a share s of all their runs in common have about that share of their sketches.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

RUN = 8
SKETCH = 16
ALIKE = 13  # of SKETCH: about four fifths of all runs in common
MIN_BYTES = 80  # shorter texts are alike by chance; they have more than 4 * SKETCH runs
MAX_CHARACTERS = 20_000
MAX_TEXTS = 1 << 19  # sketches that are kept: 64 MiB
_BLOCK = 1 << 15  # bytes of texts that are hashed at once: 256 KiB of hashes stay in a processor's cache
_SLOTS = 1 << 21  # of the table by which earlier texts are found: 24 MiB
_KEYS = 2  # the smallest hashes of a sketch, which stand in it
_LOWER = bytes(range(256)).lower()
_BLANKS = bytes(code for code in range(128) if chr(code).isspace())
_FACTOR, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Near:
    """The sketches of the texts so far, in bounded memory: past MAX_TEXTS none is added, and a later text takes the
    slot of an earlier one where both fall on it."""

    def __init__(self) -> None:
        self._sketches = np.zeros((1024, SKETCH), np.uint64)
        self._rows: array[int] = array("q")
        # of memory that is not touched before it is used
        self._keys = np.zeros(_SLOTS, np.uint64).data
        self._places = np.zeros(_SLOTS, np.uint32).data

    @property
    def is_full(self) -> bool:
        """Whether no further text is kept."""
        return len(self._rows) >= MAX_TEXTS

    def add(self, sketch: npt.NDArray[np.uint64], row: int) -> int | None:
        """An earlier row whose text is nearly the same, or None. The sketch is kept where it is new."""
        values = sketch.tolist()
        for key in values[:_KEYS]:
            if self._keys[key % _SLOTS] == key:
                place = self._places[key % _SLOTS]
                if len(set(values).intersection(self._sketches[place].tolist())) >= ALIKE:
                    earlier: int = self._rows[place]
                    return earlier
        if not self.is_full:
            self._keep(sketch, row)
            for key in values[:_KEYS]:
                self._keys[key % _SLOTS], self._places[key % _SLOTS] = key, len(self._rows) - 1
        return None

    def _keep(self, sketch: npt.NDArray[np.uint64], row: int) -> None:
        place = len(self._rows)
        if place == len(self._sketches):
            self._sketches = np.concatenate([self._sketches, np.zeros_like(self._sketches)])
        self._sketches[place] = sketch
        self._rows.append(row)


def sketch_of(text: str) -> npt.NDArray[np.uint64] | None:
    """The SKETCH smallest hashes of a text's runs, ascending; None for a text too short to be compared."""
    data = _letters(text[:MAX_CHARACTERS])
    if len(data) < MIN_BYTES:
        return None
    number = len(data) - RUN + 1
    hashes = _hashes(data, number)
    sketch = _smallest(hashes[hashes < _bound(number)])
    return _smallest(hashes) if sketch is None else sketch  # runs that come again and again


def _hashes(data: bytes, number: int) -> npt.NDArray[np.uint64]:
    """A hash of the run that begins at each of the first `number` bytes."""
    hashes = np.ndarray((number,), np.uint64, data, 0, (1,)) * _FACTOR
    # a product's low bits depend on few characters: its high half is mixed in before it is ordered
    hashes ^= hashes >> _HALF
    hashes *= _FACTOR
    return hashes


def _bound(number: int) -> int:
    """Of `number` evenly spread hashes about four times as many as a sketch needs lie below this."""
    return (4 * SKETCH << 64) // number


def _smallest(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64] | None:
    """The SKETCH smallest of them, ascending; None where so many are not different."""
    distinct = _distinct(hashes)
    return distinct[:SKETCH] if len(distinct) >= SKETCH else None


def sketches_of(texts: Sequence[str]) -> list[npt.NDArray[np.uint64] | None]:
    """`sketch_of` each of many texts, in a fraction of the time."""
    found: list[npt.NDArray[np.uint64] | None] = [None] * len(texts)
    block: list[tuple[int, bytes]] = []
    size = 0
    for place, text in enumerate(texts):
        data = _letters(text[:MAX_CHARACTERS])
        if len(data) >= MIN_BYTES:
            block.append((place, data))
            size += len(data)
        if block and (size >= _BLOCK or place == len(texts) - 1):
            for (own, _), sketch in zip(block, _sketches([data for _, data in block]), strict=True):
                found[own] = sketch
            block, size = [], 0
    return found


def _sketches(block: Sequence[bytes]) -> Iterator[npt.NDArray[np.uint64] | None]:
    """The sketches of texts of MIN_BYTES and more, whose runs are hashed all at once."""
    data = b"".join(block)
    hashes = _hashes(data, len(data) - RUN + 1)
    # none of the runs that begin in a text and end in the next is below its bound, 0
    numbers = [len(own) - RUN + 1 for own in block]
    bounds = np.array([[_bound(number), 0] for number in numbers], np.uint64)
    counts = np.array([[number, RUN - 1] for number in numbers])
    counts[-1, 1] = 0
    below = np.flatnonzero(hashes < np.repeat(bounds.ravel(), counts.ravel()))
    ends = np.searchsorted(below, np.cumsum(counts.sum(axis=1)))
    sizes = np.diff(ends, prepend=0)
    table = np.full((len(block), max(int(sizes.max()), SKETCH)), np.uint64(2**64 - 1))  # no bound is above that
    table[np.arange(table.shape[1]) < sizes[:, None]] = hashes[below]
    table.sort(axis=1)
    is_first = np.arange(table.shape[1]) < sizes[:, None]
    is_first[:, 1:] &= table[:, 1:] != table[:, :-1]
    rank = np.cumsum(is_first, axis=1)
    is_full = rank[:, -1] >= SKETCH
    smallest = iter(table[is_first & (rank <= SKETCH) & is_full[:, None]].reshape(-1, SKETCH))
    for full, own, number in zip(is_full.tolist(), block, numbers, strict=True):
        yield next(smallest) if full else _smallest(_hashes(own, number))  # runs that come again and again


def _letters(text: str) -> bytes:
    """The text in lower case and without white space, in UTF-8."""
    if text.isascii():  # the same, at a fraction of the cost
        return text.encode().translate(_LOWER, _BLANKS)
    return "".join(text.split()).lower().encode("utf-8", "surrogatepass")


def _distinct(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The different ones among hashes, ascending."""
    hashes.sort()
    return hashes[np.concatenate(([True], hashes[1:] != hashes[:-1]))] if len(hashes) else hashes
