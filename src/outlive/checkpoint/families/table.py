"""All families, and the one that a config.json belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.checkpoint.families.family import Family
from outlive.checkpoint.families.llama import LLAMA, MISTRAL
from outlive.run.errors import InputError

FAMILIES: tuple[Family, ...] = (LLAMA, MISTRAL)
_BY_TYPE = {name: family for family in FAMILIES for name in family.model_types}


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a config.json. InputError where it is none that is known."""
    name = config.get("model_type")
    if isinstance(name, str) and name in _BY_TYPE:
        return _BY_TYPE[name]
    what = f"config.json has the model_type {name[:80]!r}" if isinstance(name, str) else "config.json has no model_type"
    raise InputError(
        f"{what}, for which there is no table of tensors",
        expected="one of " + ", ".join(sorted(_BY_TYPE)),
        fix="a family is one table in outlive/checkpoint/families: docs/families.md says how to add one",
    )
