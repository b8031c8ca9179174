"""All families, and the one that a config.json belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.checkpoint.families.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from outlive.checkpoint.families.family import Family
from outlive.checkpoint.families.gemma import GEMMA2, GEMMA3, GEMMA3_TEXT
from outlive.checkpoint.families.llama import LLAMA, MISTRAL, MIXTRAL
from outlive.checkpoint.families.others import OLMO2, PHI3
from outlive.checkpoint.families.qwen import QWEN2, QWEN3, QWEN3_MOE
from outlive.checkpoint.families.qwen35 import QWEN35, QWEN35_TEXT
from outlive.run.errors import InputError

FAMILIES: tuple[Family, ...] = (
    LLAMA,
    MISTRAL,
    MIXTRAL,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    QWEN35,
    QWEN35_TEXT,
    GEMMA2,
    GEMMA3,
    GEMMA3_TEXT,
    PHI3,
    OLMO2,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
)
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
