"""Promise: what weights, epochs and shares do that nobody expects is said, and what they do as expected is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.data.mixing import Mixing, Size
from outlive.data.mixing_notes import first_pass, mixing_notes

SIZES = [Size(100, 1000), Size(10, 100)]
NAMES = ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize(
    ("mixing", "passes", "said"),
    [
        (Mixing([1.0, 1.0]), 3, []),
        (Mixing([1.0, 0.01]), 2, ["b.jsonl: its weight of 0.01 gives it none of its 10 samples, in all 2 passes"]),
        (Mixing([1.0, 0.01]), 1, ["b.jsonl: its weight of 0.01 gives it none of its 10 samples, in the one pass"]),
        (Mixing([1.0, 0.01]), None, ["b.jsonl: its weight of 0.01 gives it its first sample in pass 6"]),
        (Mixing([1.0, 1e-300]), None, ["b.jsonl: its weight of 1e-300 gives it none of its 10 samples, ever"]),
        (Mixing([1.0, 1.0], epochs=[None, 2.0]), 2, []),
        (Mixing([1.0, 1.0], epochs=[None, 2.0]), 3, ["b.jsonl has taken its epochs (20 visits) in pass 2: from there"]),
        (Mixing([1.0, 1.0], epochs=[None, 0.5]), None, ["b.jsonl has taken its epochs (5 visits) in pass 1: from"]),
        (Mixing([1.0, 1.0], epochs=[None, 0.01]), 3, ["b.jsonl: its epochs allow none of its 10 samples"]),
        (
            Mixing([1.0, 1.0], epochs=[3.0, 0.1], used_up="stop"),
            5,
            ["b.jsonl has taken its epochs (1 visit) in pass 1, and the run ends there, before the 5 epochs"],
        ),
        (Mixing([1.0, 1.0], epochs=[2.0, 2.0], used_up="stop"), 2, []),
    ],
)
def test_what_is_said(mixing: Mixing, passes: int | None, said: list[str]) -> None:
    notes = mixing_notes(mixing, SIZES, NAMES, passes)
    assert len(notes) == len(said), notes
    for note, begin in zip(notes, said, strict=True):
        assert note.startswith(begin)


def test_a_source_without_samples_is_said() -> None:
    assert mixing_notes(Mixing([1.0, 1.0], "tokens"), [SIZES[0], Size(0, 0)], NAMES, 2) == [
        "b.jsonl: no sample is left of it, so its weight counts for nothing"
    ]


@settings(max_examples=300, deadline=None)
@given(
    weights=st.lists(st.floats(0.001, 3), min_size=2, max_size=2),
    caps=st.lists(st.none() | st.floats(0.05, 4), min_size=2, max_size=2),
    by=st.sampled_from(["passes", "rows", "tokens"]),
    passes=st.integers(1, 5),
)
def test_the_notes_are_true(weights: list[float], caps: list[float | None], by: Any, passes: int) -> None:
    """Held against the visits of each pass themselves."""
    mixing = Mixing(weights, by, epochs=caps)
    notes = mixing_notes(mixing, SIZES, NAMES, passes)
    every = [mixing.visits(SIZES, epoch) for epoch in range(passes)]
    free = [Mixing(weights, by).visits(SIZES, epoch) for epoch in range(passes)]
    for place, name in enumerate(NAMES):
        own = " ".join(note for note in notes if note.startswith(name))
        taken = sum(visits[place].number for visits in every)
        wanted = sum(visits[place].number for visits in free)
        assert ("none of its" in own) == (taken == 0)
        assert ("has taken its epochs" in own) == (0 < taken < wanted)


@given(st.floats(0.01, 50), st.integers(1, 500))
def test_the_first_pass(per_pass: float, visits: int) -> None:
    found = first_pass(per_pass, visits)
    assert round(per_pass * found) >= visits
    assert found == 1 or round(per_pass * (found - 1)) < visits
