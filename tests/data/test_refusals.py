"""Promise: a row is refused with one reason of a fixed list, which the documentation lists word for word."""

from __future__ import annotations

import re
from pathlib import Path

from outlive.data.refusals import DATA_REASONS
from outlive.text.spans import REASONS

ROOT = Path(__file__).parents[2]


def test_the_documentation_lists_the_same_reasons() -> None:
    page = (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8").partition("## Reading rows")[2]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)) == DATA_REASONS


def test_the_code_raises_no_other_reason_and_uses_each() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src/outlive/data").rglob("*.py"))
    raised = set(re.findall(r"Refusal\(\s*\"(\w+)\"", sources))
    assert raised - set(REASONS) == set(DATA_REASONS)
