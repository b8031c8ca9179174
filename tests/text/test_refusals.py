"""Promise: every refusal has one reason of a fixed list, which the documentation lists word for word."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

from outlive.run.errors import InputError
from outlive.text.spans import REASONS, Refusal

ROOT = Path(__file__).parents[2]


def documented() -> dict[str, str]:
    page = (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8")
    section = re.search(r"^## Rendering and spans\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section[1], re.MULTILINE))


def test_the_documentation_lists_the_same_reasons_in_the_same_words() -> None:
    assert documented() == REASONS


def test_the_code_raises_no_other_reason_and_uses_each() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src/outlive/text").glob("*.py"))
    assert set(re.findall(r"Refusal\(\s*\"(\w+)\"", sources)) == set(REASONS)


def test_a_refusal_crosses_a_process_and_is_an_error_of_input() -> None:
    refusal = pickle.loads(pickle.dumps(Refusal("no_end_of_turn", "here")))
    assert (refusal.reason, refusal.detail, refusal.exit_code) == ("no_end_of_turn", "here", 2)
    assert isinstance(refusal, InputError)
