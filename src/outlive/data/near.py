"""Near duplicates: texts that share most of their runs of characters, found by a sketch of each (Broder 1997).

The hashes of all runs of RUN bytes of a text, lower-cased and without white space; of these the SKETCH smallest are
kept. Two texts that have a share s of all their runs in common have about that share of their sketches.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

RUN = 8
SKETCH = 16
ALIKE = 13  # of SKETCH: about four fifths of all runs in common
MIN_BYTES = 80  # shorter texts are alike by chance
MAX_CHARACTERS = 20_000
MAX_TEXTS = 1 << 19  # sketches that are kept: 64 MiB
_SLOTS = 1 << 21  # of the table by which earlier texts are found: 24 MiB
_KEYS = 2  # the smallest hashes of a sketch, which stand in it
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
    data = "".join(text[:MAX_CHARACTERS].split()).lower().encode("utf-8", "surrogatepass")
    if len(data) < MIN_BYTES:
        return None
    number = len(data) - RUN + 1
    hashes = np.ndarray((number,), np.uint64, data, 0, (1,)) * _FACTOR  # a run begins at each byte
    # a product's low bits depend on few characters: its high half is mixed in before it is ordered
    hashes ^= hashes >> _HALF
    hashes *= _FACTOR
    # of evenly spread hashes about four times as many as are needed lie below the bound
    smallest = _distinct(hashes[hashes < (4 * SKETCH << 64) // number] if number > 4 * SKETCH else hashes)
    if len(smallest) < SKETCH:  # runs that come again and again
        smallest = _distinct(hashes)
    return smallest[:SKETCH] if len(smallest) >= SKETCH else None


def _distinct(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The different ones among hashes, ascending."""
    hashes.sort()
    return hashes[np.concatenate(([True], hashes[1:] != hashes[:-1]))] if len(hashes) else hashes
