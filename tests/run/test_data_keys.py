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


MEANWHILE = {
    "data.train_while_preparing": "true",
    "data.order": "windowed",
    "data.validation": "null",
    "data.bad_rows": "drop",
    "stop.steps": "100",
}


@pytest.mark.parametrize(
    ("changed", "need"),
    [
        ("data.order=global", "order: windowed"),
        ("data.validation=0.05", "validation: null, or sources of its own"),
        ("data.validation=[{path: b.jsonl}]", "validation_overlap: allow"),
        ("data.bad_rows=refuse", "bad_rows: drop"),
        ("data.train=[{path: a.jsonl}, {path: b.jsonl}]", "a single source"),
        ("data.train=[{path: a.jsonl, weight: 2}]", "a weight of 1"),
        ("data.train=[{path: a.jsonl, epochs: 2}]", "no epochs"),
        ("data.mix_by=tokens", "mix_by: passes"),
        ("stop.steps=null", "stop.steps"),
        ("stop.epochs=2", "stop.epochs"),
        ("stop.tokens=1000", "stop.tokens"),
    ],
)
def test_what_needs_all_rows_is_refused_for_training_before_they_are_there(changed: str, need: str) -> None:
    given = {**MEANWHILE, "data.train": "[{path: a.jsonl}]", **dict([changed.split("=", 1)])}
    with pytest.raises(InputError) as caught:
        load_run(None, [f"{key}={value}" for key, value in given.items()], model="org/name")
    assert need in str(caught.value)
    assert "train_while_preparing" in str(caught.value)


def test_training_before_all_rows_are_there_is_taken_with_what_it_needs() -> None:
    load_run(None, [f"{key}={value}" for key, value in MEANWHILE.items()], model="org/name", data="a.jsonl")
    own = {**MEANWHILE, "data.validation": "[{path: b.jsonl}]", "data.validation_overlap": "allow"}
    load_run(None, [f"{key}={value}" for key, value in own.items()], model="org/name", data="a.jsonl")
