"""Promise: the JSON Schema says to an editor what the loader says: what loads fits, wrong keys and types don't."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from outlive.run.config import load_run
from outlive.run.init_file import init_text
from outlive.run.schema import json_schema

jsonschema = pytest.importorskip("jsonschema")


def errors(value: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(json_schema()).iter_errors(value)]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    json.dumps(json_schema(), allow_nan=False)


@pytest.mark.parametrize("overrides", [[], ["adapter={}"], ["batch={sequences: 4}", "data.validation=[{hub: a/b}]"]])
def test_what_loads_fits(overrides: list[str]) -> None:
    run = load_run(None, overrides, model="m", data="a.jsonl").run
    assert errors(yaml.safe_load(run.to_yaml())) == []


def test_the_init_file_fits() -> None:
    assert errors(yaml.safe_load(init_text())) == []


@pytest.mark.parametrize(
    "change",
    [
        {"sed": 1},
        {"seed": "1"},
        {"optimizer": {"lrr": 1}},
        {"optimizer": {"lr": 0}},
        {"precision": "bf17"},
        {"data": {"train": []}},
        {"data": {"train": [{"pth": "a"}]}},
        {"parallel": {"tp": 2}},
        {"export": {"merged": "yes"}},
        {"engine": "trl"},
        {"model": {"init": {"config": {}}}},
        {"schema_version": 2},
    ],
)
def test_what_is_wrong_does_not_fit(change: dict[str, Any]) -> None:
    assert errors({"model": "m", "data": {"train": [{"path": "a"}]}}) == []
    assert errors({"model": "m", "data": {"train": [{"path": "a"}]}, **change}) != []


def test_every_key_has_a_description() -> None:
    schema = json_schema()
    for section in [schema, *schema["$defs"].values()]:
        for name, key in section["properties"].items():
            assert key.get("description") or "$ref" in key, name
    assert all(key["description"] for key in schema["properties"].values())
