"""What a run's weights, epochs and validation share do that one may not expect: notes, before the first step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from outlive.data.mixing import Mixing, Size
from outlive.data.prepare import Prepared
from outlive.run.config import Run
from outlive.run.sizes import counted

_FAR = 1e9  # passes; nobody needs to know which one exactly


def notes_on(run: Run, prepared: Prepared) -> list[str]:
    """What is to be said of a run's data, once they are prepared; nothing of those that are still being prepared."""
    notes = []
    share = run.data.validation
    if share is not None and prepared.validation is None:
        of_share = isinstance(share, float)
        why = f"a share of {share:g} leaves none of so few" if of_share else "none of its sources' is left"
        notes.append(f"there is no row for validation, and so no validation loss: {why} (data.validation)")
    mixture = prepared.train
    if mixture.is_whole:
        names = [str(store.manifest.get("source", store.folder)) for store in mixture.stores]
        mixing = mixture.mixing or Mixing(mixture.weights)
        notes += mixing_notes(mixing, mixture.sizes, names, run.stop.epochs)
    return notes


def mixing_notes(mixing: Mixing, sizes: Sequence[Size], names: Sequence[str], passes: int | None) -> list[str]:
    """Sources that give nothing, or begin late, or are used up before the run of so many passes (None: any) ends."""
    per_pass, caps = mixing.per_pass(sizes), mixing.caps(sizes)
    found = []
    for name, size, number, cap, weight in zip(names, sizes, per_pass, caps, mixing.weights, strict=True):
        if note := _nothing(size, number, cap, weight, passes):
            found.append(f"{name}: {note}")
    ends = [
        (first_pass(number, cap), name, cap)
        for name, number, cap in zip(names, per_pass, caps, strict=True)
        if number and _runs_out(number, cap, passes)
    ]
    return found + list(_used_up(mixing, sorted(ends), passes))


def _used_up(mixing: Mixing, ends: Sequence[tuple[int, str, int]], passes: int | None) -> Iterator[str]:
    for at, name, cap in ends:
        taken = f"{name} has taken its epochs ({counted(cap, 'visit')}) in pass {at}"
        if mixing.used_up == "stop":
            asked = f", before the {counted(passes, 'epoch')} of stop.epochs are over" if passes else ""
            yield f"{taken}, and the run ends there{asked} (data.used_up: stop)"
            return
        yield f"{taken}: from there on the run goes on without it"


def _nothing(size: Size, number: float, cap: int, weight: float, passes: int | None) -> str | None:
    if not size.units:
        return "no sample is left of it, so its weight counts for nothing"
    samples = counted(size.units, "sample")
    if cap == 0:
        return f"its epochs allow none of its {samples}"
    begin = first_pass(number, 1) if number else math.inf
    if begin > (passes or _FAR):
        over = f"in {'the one pass' if passes == 1 else f'all {passes} passes'} of the run" if passes else "ever"
        return f"its weight of {weight:g} gives it none of its {samples}, {over}"
    return f"its weight of {weight:g} gives it its first sample in pass {begin}" if begin > 1 else None


def _runs_out(number: float, cap: int, passes: int | None) -> bool:
    """Whether a source's epochs end its visits within the run."""
    at = first_pass(number, cap)
    return cap > 0 and at < _FAR and (passes is None or round(number * passes) > cap)


def first_pass(per_pass: float, visits: int) -> int:
    """The first pass, from 1, by whose end a source was visited so often; about that one where it is far away."""
    at = (visits - 0.5) / per_pass
    if at > _FAR:
        return math.ceil(min(at, 1e300))
    found = max(1, math.ceil(at))
    while round(per_pass * found) < visits:
        found += 1
    return found
