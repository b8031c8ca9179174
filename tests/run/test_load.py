"""Promise: run file, overrides and options become one run, or one error that says where and what to set."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlive.run import load as load_module
from outlive.run.config import Run, load_run, plain
from outlive.run.errors import InputError
from outlive.run.yaml_file import parse

BASE = "model: org/model\ndata:\n  train: [{path: chats.jsonl}]\n"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_file_alone(write: Any) -> None:
    loaded = load_run(write(BASE, "support-json.yaml"))
    assert loaded.run.name == "support-json"
    assert loaded.run.model == "org/model"
    assert loaded.notes == []
    assert loaded.path is not None
    assert loaded.path.name == "support-json.yaml"


def test_without_a_file_model_and_data_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = load_run(None, [], model="org/Model-1", data="rows/chats.jsonl").run
    assert (run.model, run.data.train[0].path, run.name) == ("org/Model-1", "rows/chats.jsonl", "Model-1-chats")
    assert load_run(None, [], model="m", data="org/chats").run.data.train[0].hub == "org/chats"
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "chats").mkdir()
    assert load_run(None, [], model="m", data="org/chats").run.data.train[0].path == "org/chats"
    for model, data in ((None, None), ("m", None), (None, "d")):
        with pytest.raises(InputError, match="--model and --data"):
            load_run(None, [], model=model, data=data)


def test_options_and_overrides_win_over_the_file(write: Any) -> None:
    path = write(BASE + "seed: 3\nbatch: {tokens: 4096}\n")
    run = load_run(path, ["seed=4", "batch.tokens=8192", "data.train.0.limit=10"], model="other").run
    assert (run.model, run.seed, run.batch.tokens, run.data.train[0].limit) == ("other", 4, 8192, 10)
    assert load_run(path, [], data="b.jsonl").run.data.train[0].path == "b.jsonl"


def test_overrides_make_and_remove_sections(write: Any) -> None:
    path = write(BASE + "adapter: {rank: 8}\n")
    assert load_run(path, ["adapter=null"]).run.adapter is None
    added = load_run(write(BASE), ["adapter.rank=4"]).run.adapter
    assert added is not None
    assert added.rank == 4
    both = load_run(path, ["adapter.rank=4", "adapter={alpha: 8}"]).run.adapter
    assert both is not None
    assert (both.rank, both.alpha) == (4, 8)
    assert load_run(path, ["data.validation=null"]).run.data.validation is None


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("optimizer.lrr=1", "did you mean optimizer.lr"),
        ("optimiser.lr=1", "did you mean optimizer"),
        ("turn_end=content", "its place is data.turn_end"),
        ("data.train.0.pth=a", "did you mean data.train.0.path"),
        ("data.train.1.path=a", "has no entry 1"),
        ("data.train.x=a", "has no entry x"),
        ("seed.x=1", "seed"),
        ("seed", "not an override"),
        ("=1", "not an override"),
        ("a..b=1", "not an override"),
        ("seed=[1", "not YAML"),
        ("seed=null", "leave the key out"),
        ("optimizer=3", "keys and values"),
        ("zzzz=1", "one of schema_version, name, model"),
    ],
)
def test_wrong_overrides(write: Any, override: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        load_run(write(BASE), [override])
    assert override in (caught.value.where or caught.value.what)


def test_an_override_given_twice_is_refused(write: Any) -> None:
    with pytest.raises(InputError, match="given twice"):
        load_run(write(BASE), ["seed=1", "seed=2"])
    with pytest.raises(InputError, match="model is given twice"):
        load_run(write(BASE), ["model=a"], model="b")


def test_mistakes_in_the_file_have_their_lines(write: Any) -> None:
    path = write(BASE + "optimizer:\n  lrr: 1\n")
    with pytest.raises(InputError) as caught:
        load_run(path)
    assert caught.value.where == f"{path}:5"
    assert caught.value.what == "optimizer has no key `lrr`"
    assert caught.value.fix == "did you mean optimizer.lr?"
    path = write(BASE + "optimizer:\n  lr: fast\n")
    with pytest.raises(InputError) as caught:
        load_run(path)
    assert (caught.value.where, caught.value.what) == (f"{path}:5", "optimizer.lr: fast, expected a number")


def test_all_mistakes_are_named_at_once(write: Any) -> None:
    path = write("model: m\ndata:\n  train: [{pth: a}]\n  sequence_length: long\nsed: 1\noptimizer: {name: muon}\n")
    with pytest.raises(InputError) as caught:
        load_run(path)
    for line, words in (
        (3, "data.train.0 has no key `pth`"),
        (4, "whole number"),
        (5, "did you mean seed"),
        (6, "muon is not built"),
    ):
        mistake = next(item for item in caught.value.mistakes if item.where == f"{path}:{line}")
        assert words in str(mistake)
        assert str(mistake) in str(caught.value)


def test_a_mistake_between_keys_names_the_line_that_caused_it(write: Any) -> None:
    path = write(BASE + "  sequence_length: 32768\n")
    with pytest.raises(InputError, match="less than one pack") as caught:
        load_run(path)
    assert caught.value.where == f"{path}:4"


def test_missing_keys(write: Any) -> None:
    with pytest.raises(InputError, match="model is missing"):
        load_run(write("data: {train: [{path: a}]}"))
    with pytest.raises(InputError, match=r"data\.train is missing"):
        load_run(write("model: m\ndata:\n"))
    with pytest.raises(InputError, match="2 mistakes"):
        load_run(write(""))


def test_a_section_whose_keys_are_all_commented_out_has_its_defaults(write: Any) -> None:
    text = BASE + "optimizer:\n  # lr: 1\nstop:\nadapter:\n"
    assert load_run(write(text)).run == load_run(write(BASE)).run


def test_a_newer_schema_is_refused_and_an_older_one_migrated(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="schema_version 7; this version of outlive reads up to 1"):
        load_run(write(BASE + "schema_version: 7\n"))
    for wrong in ("true", "0", "one", "1.0"):
        with pytest.raises(InputError, match="schema_version"):
            load_run(write(BASE + f"schema_version: {wrong}\n"))
    monkeypatch.setattr(load_module, "SCHEMA_VERSION", 2)
    monkeypatch.setitem(load_module.MIGRATIONS, 1, lambda raw: {**raw, "seed": raw["sead"]})
    assert load_module.migrated({"sead": 3, "schema_version": 1}, "f") == {"sead": 3, "seed": 3, "schema_version": 2}


def test_credentials_are_refused_and_not_repeated(write: Any) -> None:
    for overrides, model, data in (
        ([], "https://me:sesame@host/m", "d"),
        ([], "m", "https://me:sesame@host/d"),
        (["data.train.0.path=https://me:sesame@host/d"], "m", "d"),
        (["data.train.0.paht=https://me:sesame@host/d"], "m", "d"),
    ):
        with pytest.raises(InputError) as caught:
            load_run(None, overrides, model=model, data=data)
        assert "sesame" not in str(caught.value)


def test_run_load(write: Any) -> None:
    assert Run.load(write(BASE), "seed=5", "stop.steps=9").seed == 5


WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), min_size=1, max_size=12).filter(
    lambda text: bool(text.strip()) and "@" not in text
)
SOURCES = st.builds(
    lambda place, text, weight, limit: {place: text, "weight": weight, "limit": limit},
    st.sampled_from(["path", "hub"]),
    WORDS,
    st.floats(0.001, 1e6),
    st.none() | st.integers(1, 10**9),
)
RUNS = st.fixed_dictionaries(
    {
        "model": WORDS
        | st.builds(lambda c, t: {"init": {"config": c, "tokenizer": t}}, WORDS | st.just({"a": [1]}), WORDS),
        "data": st.fixed_dictionaries(
            {
                "train": st.lists(SOURCES, min_size=1, max_size=2),
                "validation": st.none() | st.floats(0.01, 0.9) | st.lists(SOURCES, min_size=1, max_size=2),
                "sequence_length": st.integers(2, 2048),
                "packing": st.sampled_from(["best_fit", "none", "concatenate"]),
                "system": st.none() | WORDS | st.sampled_from(["yes", "1e-4", "null", "- a", "a: b", "two\nlines\n"]),
            }
        ),
        "adapter": st.none() | st.fixed_dictionaries({"targets": st.lists(WORDS, min_size=1) | st.just("all-linear")}),
        "optimizer": st.fixed_dictionaries(
            {"clip": st.none() | st.floats(1e-9, 1e9)},
            optional={"lr": st.floats(1e-12, 10), "betas": st.just([0.9, 0.95])},
        ),
        "batch": st.sampled_from([{}, {"sequences": 8, "micro_sequences": 2}, {"tokens": 4096, "micro_tokens": 2048}]),
        "stop": st.sampled_from([{}, {"steps": 7}, {"epochs": 3, "tokens": 10**12}]),
        "activation_checkpointing": st.sampled_from([True, False, "auto"]),
        "seed": st.integers(0, 2**63 - 1),
    }
).filter(lambda run: run["adapter"] is None or isinstance(run["model"], str))  # fresh weights take no adapter


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(RUNS)
def test_a_resolved_run_loads_to_itself(tmp_path: Path, values: dict[str, Any]) -> None:
    run = Run.model_validate(values)
    path = tmp_path / "resolved.yaml"
    path.write_text(run.to_yaml(), encoding="utf-8")
    loaded = load_run(path)
    assert loaded.run == run
    assert loaded.run.to_yaml() == run.to_yaml()
    assert loaded.notes == []


def test_the_resolved_run_has_every_key() -> None:
    run = Run.model_validate({"model": "m", "data": {"train": [{"path": "a"}]}})
    values = parse(run.to_yaml(), "f").value
    assert list(values) == list(Run.model_fields)
    assert list(values["optimizer"]) == list(type(run.optimizer).model_fields)
    assert values["data"]["train"] == [{"path": "a", "weight": 1.0}]
    assert values == plain(run)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.sampled_from(["a", "all", "auto", "true"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["path", "lr", "init", "tokens"]), inner)
    ),
    max_leaves=4,
)
KEYS = """
    model name data data.train data.train.0 data.validation optimizer optimizer.betas adapter adapter.targets batch
    batch.tokens stop method method.columns parallel engine seed learning_rate bf16 packing datasets max_steps
    lora_target_modules gradient_accumulation_steps per_device_train_batch_size output_dir val_set_size report_to
"""


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS.split()), JSON, max_size=3))
def test_any_value_for_any_key_gives_a_run_or_an_input_error(values: dict[str, Any]) -> None:
    overrides = [f"{key}={_flow(value)}" for key, value in values.items()]
    with contextlib.suppress(InputError):  # any other exception fails the test
        load_run(None, overrides, model=None if "model" in values else "m", data=None if "data" in values else "d")


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf"
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if not isinstance(value, str) else value
