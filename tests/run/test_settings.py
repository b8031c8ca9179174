"""Promise: a run file has no unknown key, no value of a wrong type, and nothing that is accepted but does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from outlive.run.config import Adapter, Batch, Data, Method, Optimizer, Run, Section, Source, Stop, load_run
from outlive.run.errors import InputError
from outlive.run.mistakes import section_in
from outlive.run.settings.base import Mistake, NotBuilt


def load(*overrides: str) -> Run:
    model = None if any(text.startswith("model=") for text in overrides) else "org/model"
    data = None if any(text.startswith("data.train=") for text in overrides) else "chats.jsonl"
    return load_run(None, list(overrides), model=model, data=data).run


def sections(model: type[Section] = Run) -> Iterator[type[Section]]:
    yield model
    for field in model.model_fields.values():
        if inner := section_in(field.annotation):
            yield from sections(inner)


def test_every_key_is_described() -> None:
    names = [
        f"{model.__name__}.{name}"
        for model in sections()
        for name, f in model.model_fields.items()
        if not f.description
    ]
    assert names == []
    assert all(model.__doc__ for model in sections())


def test_defaults_are_those_that_the_documentation_names() -> None:
    run = load()
    assert run.data == Data(train=[Source(path="chats.jsonl")], validation=0.05, sequence_length=2048)
    assert run.adapter is None
    assert run.batch == Batch(tokens=16384, micro_tokens="auto")
    assert run.stop == Stop(epochs=2)
    assert (run.optimizer.warmup, run.optimizer.clip, run.optimizer.schedule) == (0.03, 1.0, "cosine")
    assert (run.precision, run.seed, run.engine, run.trust_remote_code) == ("auto", 0, "native", False)
    assert run.export.dtype == "bf16"


@pytest.mark.parametrize(
    ("overrides", "lr"),
    [
        (["adapter={}"], 1e-4),
        ([], 2e-5),
        (["model={init: {config: {model_type: llama}, tokenizer: t}}"], 3e-4),
        (["optimizer.lr=0.5", "adapter={}"], 0.5),
    ],
)
def test_learning_rate_depends_on_what_is_trained(overrides: list[str], lr: float) -> None:
    assert load(*overrides).optimizer.lr == lr


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("seed=1.5", "whole number"),
        ("seed=true", "whole number"),
        ('seed="3"', "quotes"),
        ("seed=-1", "0 or more"),
        ("data.sequence_length=1", "2 or more"),
        ("data.validation=1.5", "less than 1"),
        ("data.validation=0", "set it to null for no validation"),
        ("data.validation=true", "a number"),
        ("data.validation=[]", "at least 1"),
        ("data.train=[]", "at least 1"),
        ("data.date=2026-02-30", "not a date"),
        ("data.packing=bestfit", "did you mean best_fit"),
        ("data.train.0.weight=0", "more than 0"),
        ("data.train.0.hub=org/name", "exactly one of path and hub"),
        ("data.train.0.split=train", "only hub data sets"),
        ("data.train.0.path=https://me:secret@host/a", "credentials"),
        ("data.train=[{}]", "exactly one of path and hub"),
        ("optimizer.lr=0", "more than 0"),
        ("optimizer.lr=.nan", "finite"),
        ("optimizer.clip=.inf", "finite"),
        ("optimizer.betas=[0.9, 1.0]", "less than 1"),
        ("optimizer.betas=[0.9]", "optimizer.betas"),
        ('optimizer.betas=["0.9", 0.9]', "optimizer.betas.0"),
        ("optimizer.warmup=1.5", "neither a share"),
        ("optimizer={schedule: constant, min_lr_ratio: 0.1}", "no end"),
        ("batch={tokens: 4096, sequences: 4}", "both say"),
        ("batch={sequences: 4, micro_tokens: 2048}", "batch.micro_sequences"),
        ("batch={tokens: 4096, micro_sequences: 2}", "batch.micro_tokens"),
        ("batch={sequences: 4, micro_sequences: 8}", "can't be larger"),
        ("batch.micro_tokens=32768", "can't be larger"),
        ("batch.tokens=1024", "less than one pack"),
        ("batch.micro_tokens=1024", "less than one pack"),
        ("batch.micro_tokens=all", "auto or a whole number"),
        ("data.sequence_length=32768", "set batch.tokens to 32768"),
        ("stop.epochs=0", "1 or more"),
        ("stop.epochs=1.5", "whole number"),
        ("method.columns={a: token}", "method.loss"),
        ("method.loss=my_loss", "module:function"),
        ("method={loss: 'a.b:c', columns: {role: segment}}", "of its own"),
        ("method={loss: 'a.b:c', columns: {a: token}}", "not built"),
        ("data.train.0.weight=1e18", "1000000 or less"),
        ("data.sequence_length=1000000000000", "16777216 or less"),
        ("stop.steps=99999999999999999999", "or less"),
        ("method={loss: 'a.b:c', columns: {a: row}}", "token, segment or group"),
        ("adapter.rank=0", "1 or more"),
        ("adapter.targets=[]", "at least 1"),
        ("adapter.dropout=1", "less than 1"),
        ("model=' '", "empty"),
        ("model={init: {config: 3, tokenizer: t}}", "keys and values"),
        ("name=a/b", "slashes"),
        ("name=7", "quotes"),
        ("precision=bf17", "did you mean bf16"),
        ("trust_remote_code=yes", "true or false"),
        ("schema_version=2", "belongs to the file"),
    ],
)
def test_wrong_values_are_refused_with_what_to_set(override: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        load(override)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "override",
    [
        "parallel={dp_shard: 2}",
        "evals=[{task: a.jsonl}]",
        "track=[wandb]",
        "export.gguf=q4_k_m",
        "stop.early_stopping={patience: 3}",
        "engine=trl",
        "method.name=dpo",
        "optimizer.name=muon",
        "optimizer.schedule=wsd",
        "adapter.kind=qlora",
        "precision=fp16",
    ],
)
def test_what_is_not_built_is_refused_by_name(override: str) -> None:
    with pytest.raises(InputError, match="not built in this version") as caught:
        load(override)
    assert caught.value.exit_code == 2
    assert override.split("=")[0] in caught.value.what


@pytest.mark.parametrize(
    "override",
    [
        "parallel={}",
        "evals=[]",
        "track=[]",
        "export.gguf=null",
        "checkpoint={}",
        "engine=native",
    ],
)
def test_what_is_not_built_is_accepted_at_its_default(override: str) -> None:
    assert load(override) == load()


def test_not_built_false_is_not_confused_with_zero() -> None:
    with pytest.raises(Mistake, match="not built"):
        NotBuilt(False)._check(0)
    assert NotBuilt(False)._check(False) is False


def test_a_measure_that_nobody_takes_is_refused() -> None:
    with pytest.raises(InputError, match="no measure"):
        load("checkpoint.best=accuracy")
    assert load("checkpoint.best=null").checkpoint.best is None
    with pytest.raises(InputError, match="no adapter to merge"):
        load("export.merged=true")


def test_whole_numbers_may_be_written_as_floats() -> None:
    run = load("batch.tokens=1e5", "stop.epochs=3.0")
    assert (run.batch.tokens, run.stop.epochs) == (100_000, 3)
    assert type(run.batch.tokens) is int


def test_steps_alone_set_no_number_of_epochs() -> None:
    assert load("stop.steps=10").stop == Stop(steps=10)
    assert load("stop.steps=10").stop.epochs is None


def test_warmup_that_outlasts_the_run_is_refused() -> None:
    with pytest.raises(InputError, match="would not end"):
        load("stop.steps=100", "optimizer.warmup=100")
    assert load("stop.steps=101", "optimizer.warmup=100").optimizer.warmup == 100


def test_sections_are_frozen() -> None:
    run = load()
    with pytest.raises(ValidationError, match="frozen"):
        run.seed = 1  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        run.batch.tokens = 1  # type: ignore[misc]


def test_one_run_does_not_change_the_defaults_of_the_next() -> None:
    load("adapter={}")
    assert load().optimizer.lr == 2e-5
    assert Optimizer().lr == 1e-4


def test_sections_work_in_python() -> None:
    values: dict[str, Any] = {"adapter": Adapter(rank=8), "method": Method(), "batch": Batch(sequences=4)}
    run = Run(model="org/model", data=Data(train=[Source(path="a")], validation=None), **values)
    assert run.adapter == Adapter(rank=8)
    assert run.batch.tokens is None
    assert run.optimizer.lr == 1e-4
