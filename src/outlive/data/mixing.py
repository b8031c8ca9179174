"""How often each source is visited, and in which order: pure functions of the sources' sizes and the pass.

A source's visits go through an endless stream of passes over its units (groups, or single samples). C visits a pass,
a real number, are visits round(C·e) to round(C·(e+1)) in pass e: over all passes every unit comes equally often, to
within one visit. docs/mixing.md has the formulas in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
MixBy = Literal["passes", "rows", "tokens"]
PassEnds = Literal["all", "first"]
UsedUp = Literal["drop", "stop"]
_ANY = 1 << 62  # visits


class Size(NamedTuple):
    """How much a source has: `units` that are visited one by one, `tokens` in all of them."""

    units: int
    tokens: int


class Stretch(NamedTuple):
    """The visits of one source in one pass: begin … end - 1 of its endless stream."""

    begin: int
    end: int

    @property
    def number(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Mixing:
    """What the weights of sources mean.

    by: weights are passes over the source per pass over the data ("passes"), or shares of the samples ("rows") or of
    the tokens. pass_ends: with shares, a pass over the data ends when every source was seen once ("all"), or as soon as
    one was ("first"). epochs: how many passes over each source the whole run may take; None: any number. used_up: when
    a source has taken its last one, the others go on without it ("drop"), or the run ends ("stop").
    """

    weights: Sequence[float]
    by: MixBy = "passes"
    pass_ends: PassEnds = "all"
    epochs: Sequence[float | None] = ()
    used_up: UsedUp = "drop"

    def visits(self, sizes: Sequence[Size], epoch: int) -> list[Stretch]:
        """Which visits of each source pass `epoch` holds."""
        per_pass = self.per_pass(sizes)
        caps = self.caps(sizes)
        found = [
            Stretch(min(round(number * epoch), cap), min(round(number * (epoch + 1)), cap))
            for number, cap in zip(per_pass, caps, strict=True)
        ]
        if self.used_up == "drop":
            return found
        end = min((self._end(number, cap, epoch) for number, cap in zip(per_pass, caps, strict=True)), default=1.0)
        return [
            Stretch(begin, min(cap, begin + _by_time(round(number * (epoch + 1)) - begin, end)))
            for number, cap, (begin, _) in zip(per_pass, caps, found, strict=True)
        ]

    def per_pass(self, sizes: Sequence[Size]) -> list[float]:
        """The visits of each source in a pass over the data, as real numbers."""
        if self.by == "passes":
            return [size.units * weight for size, weight in zip(sizes, self.weights, strict=True)]
        shares = [
            (weight if self.by == "rows" else weight * size.units / size.tokens) if size.units and size.tokens else 0.0
            for size, weight in zip(sizes, self.weights, strict=True)
        ]
        lengths = [size.units / share for size, share in zip(sizes, shares, strict=True) if share > 0]
        if not lengths:
            return [0.0] * len(sizes)
        length = max(lengths) if self.pass_ends == "all" else min(lengths)
        return [min(length * share, float(_ANY)) if share > 0 else 0.0 for share in shares]

    def is_over(self, sizes: Sequence[Size], epoch: int) -> bool:
        """Whether nothing is left for pass `epoch` and all after it, since sources are used up."""
        per_pass = self.per_pass(sizes)
        used_up = [round(number * epoch) >= cap for number, cap in zip(per_pass, self.caps(sizes), strict=True)]
        if self.used_up == "stop":
            return any(used_up)
        return all(used or not number for used, number in zip(used_up, per_pass, strict=True)) and any(used_up)

    def caps(self, sizes: Sequence[Size]) -> list[int]:
        """The visits of each source that the whole run may hold."""
        epochs = self.epochs or [None] * len(sizes)
        return [_ANY if cap is None else round(size.units * cap) for size, cap in zip(sizes, epochs, strict=True)]

    def _end(self, per_pass: float, cap: int, epoch: int) -> float:
        """When in pass `epoch`, from 0 to 1, a source takes its last visit; 1 where it does not in this pass."""
        begin, end = round(per_pass * epoch), round(per_pass * (epoch + 1))
        if cap <= begin:
            return 0.0
        return 1.0 if cap >= end else (cap - begin) / (end - begin)


def _by_time(number: int, time: float) -> int:
    """How many of `number` evenly spread visits lie before a time of their pass (see `interleaved`)."""
    return min(number, math.floor(number * time + 0.5))


def interleaved(numbers: Sequence[int], begin: int = 0, end: int | None = None) -> tuple[Int, Int]:
    """Positions [begin, end) of a pass in which source s is visited `numbers[s]` times: the source of each, and the
    number of its visit, from 0.

    Visit j of source s stands at time (j + 1/2) / n_s, which is the order of Webster's method of apportionment
    (Sainte-Laguë; Balinski and Young, "Fair Representation", 1982). Before any time t source s was visited
    ⌊n_s·t + 1/2⌋ times, so among the first n positions |visits − n·n_s/N| ≤ (1 + K·n_s/N) / 2 for K sources and N
    visits in all. Any stretch is found without those before it, in memory for the stretch alone.
    """
    total = sum(numbers)
    end = total if end is None else min(end, total)
    sources, visits, times = [], [], []
    low, high = _counts(numbers, begin), _counts(numbers, end)
    for source, (first, last) in enumerate(zip(low, high, strict=True)):
        own = np.arange(first, last, dtype=np.int64)
        sources.append(np.full(len(own), source, np.int64))
        visits.append(own)
        times.append((own + 0.5) / max(1, numbers[source]))
    if not sources:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(np.concatenate(times), kind="stable")  # visits at one time in the order of the sources
    return np.concatenate(sources)[order], np.concatenate(visits)[order]


def _counts(numbers: Sequence[int], position: int) -> list[int]:
    """How often each source is visited before a position."""
    total = sum(numbers)
    if position >= total:
        return list(numbers)
    low, high = 0.0, 1.0  # times: fewer than, and at least, so many visits lie before them
    for _ in range(80):
        middle = (low + high) / 2
        if sum(_before(number, middle) for number in numbers) > position:
            high = middle
        else:
            low = middle
    counts = [_before(number, low) for number in numbers]
    for source in sorted(
        range(len(numbers)), key=lambda source: ((counts[source] + 0.5) / max(1, numbers[source]), source)
    ):
        missing = position - sum(counts)
        if missing <= 0:
            break
        if counts[source] < numbers[source]:
            counts[source] += 1
    return counts


def _before(number: int, time: float) -> int:
    """How many of the times (j + 1/2) / number, j = 0 … number - 1, as floats, are smaller than a time."""
    guess = min(number, max(0, math.floor(number * time + 0.5)))
    while guess > 0 and (guess - 0.5) / number >= time:
        guess -= 1
    while guess < number and (guess + 0.5) / number < time:
        guess += 1
    return guess
