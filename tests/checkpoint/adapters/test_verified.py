"""Promise: adapters of every kind that PEFT writes pass `verify` without an error, against their base, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from peft import LoraConfig

from outlive.checkpoint.verify.path import verify_path
from tests.checkpoint.adapters.peft_models import make, tiny
from tests.checkpoint.adapters.test_kinds import KINDS

# What is rightly warned of: one of two tied tensors was trained.
TIED = {"tied, all linear", "tied token indices", "tied and kept so"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_peft_writes(kind: str, tmp_path: Path) -> None:
    model_type, changes, options = KINDS[kind]
    made = make(
        tmp_path, tiny(model_type, **changes), LoraConfig(**{"task_type": "CAUSAL_LM", **options}), unload=False
    )
    found = [one for one in verify_path(made.adapter, made.base) if one.level != "note"]
    assert [one for one in found if one.level == "error"] == []
    assert {one.id for one in found} <= ({"tied_adapter"} if kind in TIED else set())
