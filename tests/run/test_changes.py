"""Promise: a run goes on as it began; whatever differs is told, asked for, or refused, and nothing passes unseen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from outlive.run.changes import Change, changes, fact_changes, facts, judge
from outlive.run.config import Run
from outlive.run.errors import InputError
from outlive.run.resume_rules import KEYS


def run(**values: Any) -> Run:
    return Run.model_validate({"model": "m", "data": {"train": [{"path": "a.jsonl"}]}, **values})


def data(**values: Any) -> dict[str, Any]:
    return {"data": {"train": [{"path": "a.jsonl"}], **values}}


def sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a key's type names, at any depth of unions, lists and annotations."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from sections(part)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key at which two run files can differ."""
    for name, field in model.model_fields.items():
        below = list(sections(field.annotation))
        # A section that is always there differs in its keys only; others also as a whole.
        if below != [field.annotation]:
            yield prefix + name
        for section in below:
            yield from keys(section, f"{prefix}{name}.")


def test_every_key_of_the_run_file_has_its_rule_and_no_rule_is_of_no_key() -> None:
    known = set(keys(Run)) - {"model.init"}  # a fresh model always has both of its keys
    assert "data.train.path" in known
    assert known - KEYS.keys() == set(), "give these a rule in run/resume_rules.py"
    assert KEYS.keys() - known == set(), "these are no keys any more"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"name": "other", "track": [], "trust_remote_code": True}, {"name": "free", "trust_remote_code": "free"}),
        ({"optimizer": {"lr": 1e-3, "betas": [0.9, 0.95]}}, {"optimizer.lr": "ask", "optimizer.betas": "ask"}),
        ({"stop": {"steps": 9}}, {"stop.epochs": "ask", "stop.steps": "ask"}),
        ({"batch": {"micro_tokens": 4096}}, {"batch.micro_tokens": "free"}),
        ({"seed": 1, "precision": "fp32"}, {"seed": "ask", "precision": "ask"}),
        ({"adapter": {"rank": 4}, "optimizer": {"lr": 2e-5}}, {"adapter": "never"}),
        ({"model": "elsewhere/m"}, {"model": "free"}),  # its content is compared
        (
            {"model": {"init": {"config": {"model_type": "x"}, "tokenizer": "t"}}, "optimizer": {"lr": 2e-5}},
            {"model": "never"},
        ),
        (data(sequence_length=512, validation=0.1), {"data.sequence_length": "ask", "data.validation": "ask"}),
        (
            {"data": {"train": [{"path": "b.jsonl", "weight": 2.0}]}},
            {"data.train.0.path": "free", "data.train.0.weight": "ask"},
        ),
        ({"data": {"train": [{"path": "a.jsonl"}, {"path": "b.jsonl"}]}}, {"data.train": "ask"}),
    ],
)
def test_each_difference_has_its_key_and_kind(values: dict[str, Any], expected: dict[str, str]) -> None:
    assert {change.key: change.kind for change in changes(run(), run(**values))} == expected
    assert changes(run(**values), run(**values)) == []


def test_adapters_and_load_balancing() -> None:
    lora = run(adapter={"rank": 8})
    found = changes(lora, run(adapter={"rank": 16, "dropout": 0.1}))
    assert {change.key: change.kind for change in found} == {"adapter.rank": "never", "adapter.dropout": "ask"}
    coupled = {"method": {"router_aux_mode": "micro_batch"}}
    (change,) = changes(run(**coupled), run(**coupled, batch={"micro_tokens": 4096}))
    assert change.kind == "ask"


def test_the_date_of_the_first_start_is_kept() -> None:
    assert changes(run(**data(date="2026-01-02")), run()) == []
    assert [change.kind for change in changes(run(**data(date="2026-01-02")), run(**data(date="2026-01-03")))] == [
        "ask"
    ]


def test_a_key_without_a_rule_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KEYS, "export.dtype")
    assert [change.kind for change in changes(run(), run(export={"dtype": "fp32"}))] == ["ask"]


def test_the_refusal_lists_each_difference_with_what_accepts_it() -> None:
    found = changes(run(), run(name="x", optimizer={"lr": 1e-3}, stop={"steps": 9}))
    with pytest.raises(InputError) as caught:
        judge(found, ["optimizer.lr"])
    text = caught.value.what + str(caught.value.fix)
    assert "2 points" in text
    assert "stop.epochs: 2 → none" in text
    assert "stop.steps: none → 9" in text
    assert "schedule" in text
    assert text.count("--accept stop.epochs") == 2
    assert "optimizer.lr" not in text
    assert "name:" not in text


@pytest.mark.parametrize("accepted", [["optimizer", "stop"], ["optimizer.lr", "stop.epochs", "stop.steps"]])
def test_names_accept_what_is_below_them(accepted: list[str]) -> None:
    found = changes(run(), run(name="x", optimizer={"lr": 1e-3}, stop={"steps": 9}))
    assert judge(found, accepted) == found
    with pytest.raises(InputError):
        judge(found, [name[:-1] for name in accepted])  # a name is whole or does not count


@pytest.mark.parametrize(
    ("name", "near"), [("optimiser.lr", "optimizer.lr"), ("optimzer", "optimizer"), ("stop.epoch", "stop.epochs")]
)
def test_an_accepted_name_that_nothing_is_called_by_is_refused(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"nothing is called {name}; did you mean {near}?") as caught:
        judge(changes(run(), run(optimizer={"lr": 1e-3})), ["optimizer.lr", name])
    assert str(caught.value.fix).endswith("optimizer.lr")
    assert judge([], ["seed"]) == []  # it differed at an earlier start of the same job


def test_what_the_state_can_not_go_on_with_is_refused_even_when_accepted() -> None:
    found = changes(run(adapter={"rank": 8}), run(adapter={"rank": 16}))
    with pytest.raises(InputError, match=r"8 → 16(.|\n)*can't be accepted") as caught:
        judge(found, ["adapter.rank"])
    assert "start a new run" in str(caught.value.fix)


def store(source_hash: str, samples: int = 400, tokens: int = 51_234, source: str = "x/chats.jsonl") -> dict[str, Any]:
    return {
        "source": source,
        "source_hash": source_hash,
        "num_samples": samples,
        "num_tokens": tokens,
        "num_targets": 9,
    }


LOCK = {
    "python": "3.11.1",
    "packages": {"torch": "2.13.0"},
    "threads": 4,
    "cpu": {"model": "A", "count": 8},
    "hashes": {"model": "m1", "tokenizer": "t1", "chat_template": "c1", "date": "2026-01-01", "stores": ["k1"]},
}


def test_contents_that_differ_are_asked_for_under_their_keys() -> None:
    hashes = {"model": "m2", "tokenizer": "t2", "chat_template": None, "date": "2026-01-02", "stores": ["k2"]}
    found = fact_changes(LOCK["hashes"], hashes)  # type: ignore[arg-type]
    keys = ["model", "tokenizer", "data.chat_template", "data.date", "data.train"]
    assert [(change.key, change.kind) for change in found] == [(key, "ask") for key in keys]
    assert fact_changes(LOCK["hashes"], LOCK["hashes"]) == []  # type: ignore[arg-type]


def test_other_data_is_told_in_rows_and_tokens() -> None:
    before = facts(LOCK, {"train": [store("a")], "validation": [store("a", 20, 999), store("v", source="held.jsonl")]})
    same = {**LOCK, "hashes": {**LOCK["hashes"], "stores": ["another key"]}}  # type: ignore[dict-item]
    assert fact_changes(before, facts(same, {"train": [store("a")], "validation": before["validation"]})) == []
    new = {"train": [store("b", 410, 52_000)], "validation": [store("b", 19, 998), store("w", source="held.jsonl")]}
    train, validation = fact_changes(before, facts(LOCK, new))
    assert str(train).startswith(
        "data.train: chats.jsonl: 400 samples, 51,234 tokens → other bytes: 410 samples, 52,000 tokens"
    )
    assert (train.kind, validation.kind, validation.key) == ("ask", "ask", "data.validation")
    assert str(validation.before).startswith("held.jsonl")
    (other,) = fact_changes(before, facts(LOCK, {**before, "train": [store("a", 399)]}))
    assert "the same bytes, but other samples" in str(other)
    more = {**before, "train": [store("a"), store("b", source="more.jsonl")]}
    (change,) = fact_changes(before, facts(LOCK, more))
    assert (change.before, change.after) == ("chats.jsonl", "chats.jsonl, more.jsonl")


def test_another_machine_or_version_is_told_and_may_be() -> None:
    other = {**LOCK, "python": "3.12.0", "packages": {"torch": "2.14.0"}, "threads": 2, "cpu": {"model": "B"}}
    found = fact_changes(facts(LOCK), facts(other))
    assert [(change.key, change.kind) for change in found] == [
        (key, "free") for key in ("python", "torch", "threads", "cpu")
    ]
    assert all("rounding" in change.why for change in found)
    assert judge(found, []) == found
    assert [str(change) for change in judge([Change("a", True, None, "free", "why")], [])] == ["a: true → none (why)"]


def test_a_free_name_does_not_hide_other_contents() -> None:
    """Another path or model name may be, since what it stands for is compared: then that must be asked for."""
    from outlive.cli.resume import same_contents

    found = changes(run(), run(model="other", data={"train": [{"path": "b.jsonl"}]}))
    before, after = facts(LOCK, {"train": [store("a")]}), facts(LOCK, {"train": [store("b")]})
    assert same_contents(before, before, found, []) == found
    for now in (after, {**before, "model": "m2"}):
        with pytest.raises(InputError, match="differs in one point"):
            same_contents(before, now, found, [])
    assert len(same_contents(before, {**after, "model": "m2"}, found, ["data", "model"])) == 4
