"""Promise: every fault of the list names a test that exists."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_each_fault_names_a_test_that_exists() -> None:
    faults = yaml.safe_load((ROOT / "tests" / "faults.yaml").read_text(encoding="utf-8"))
    assert len({fault["id"] for fault in faults}) == len(faults) > 20
    for fault in faults:
        assert set(fault) == {"id", "source", "test"}
        file, _, name = fault["test"].partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text if name else "def test_" in text, fault
