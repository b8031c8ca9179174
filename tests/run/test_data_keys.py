"""Promise: a key of the data section that would say nothing beside the others is refused, not ignored."""

from __future__ import annotations

import pytest

from outlive.run.config import load_run
from outlive.run.errors import InputError


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("data.pass_ends=first", "pass_ends"),
        ("data.used_up=stop", "used_up"),
        ("data.window=100", "window"),
        ("data.validation=[{path: b.jsonl, epochs: 2}]", "epochs"),
    ],
)
def test_a_key_that_says_nothing_is_refused_with_what_it_needs(given: str, key: str) -> None:
    with pytest.raises(InputError) as caught:
        load_run(None, [given], model="org/name", data="a.jsonl")
    assert key in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize(
    "given",
    [
        ["data.pass_ends=first", "data.mix_by=rows"],
        ["data.used_up=stop", "data.train.0.epochs=2"],
        ["data.window=100", "data.order=windowed"],
    ],
)
def test_with_what_it_needs_it_is_taken(given: list[str]) -> None:
    load_run(None, given, model="org/name", data="a.jsonl")
